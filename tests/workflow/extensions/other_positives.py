"""The positives of the other queries in a batch are no negatives."""

import numpy as np


def mask(batch, data):
    """bool [Q, P]: the passage is the positive of another query."""
    masked_QP = np.zeros((len(batch.queries_Q), len(batch.passages_P)), bool)
    masked_QP[:, batch.positive_columns_Q] = True
    masked_QP[np.arange(len(masked_QP)), batch.positive_columns_Q] = False
    return masked_QP
