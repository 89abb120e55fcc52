"""Every random draw derives from one root seed and from stable names, never from a global state or the clock."""

import hashlib


def derive_seed(root, *names):
    """A 63-bit seed for the draw called `names` under the root seed, the same on every machine."""
    digest = hashlib.sha256(repr((int(root), *names)).encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "little") >> 1
