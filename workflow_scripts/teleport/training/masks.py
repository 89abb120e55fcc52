"""Which passages of a batch are no negatives of a query."""

import numpy as np
import torch


def false_negative_mask(passages_P, positive_columns_Q, positives):
    """Bool [Q, P]: which passages of the batch are known positives of a query, except the column of its own positive.

    `passages_P` are int row numbers, `positives` lists the known positives of every query (Q int arrays). A second
    copy of a query's own positive, drawn for another query, is masked too. STAR masks so (DRhard, model.py); neither
    ANCE-Tele's paper nor its released code masks anything.
    """
    masked_QP = np.stack([np.isin(passages_P, rows) for rows in positives])
    masked_QP[np.arange(len(positives)), positive_columns_Q] = False
    return torch.from_numpy(masked_QP)
