"""How large a negative of a pool is, for stages and for the forecast."""

import numpy as np

# `pool.Items` says what they are.
FIELDS = dict(passages=np.int32, sources=np.uint16, first_episodes=np.uint8, ranks=np.int32, scores=np.float32)
POOL_BYTES = sum(np.dtype(kind).itemsize for kind in FIELDS.values())
