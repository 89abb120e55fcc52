"""ANCE-Tele's loss: a softmax over all passages of the batch. Shapes: Q queries, P passages, D dimensions."""

import numpy as np
import torch


def softmax_loss(query_vectors_QD, passage_vectors_PD, positive_columns_Q, scale, masked_QP=None):
    """Mean over the queries of -log softmax(s)[positive], s = scale * query . passage over every passage of the batch.

    ANCE-Tele Eq. 1 in the form of the released code: the negatives of a query are its own N and all passages of the
    other queries in the batch. Vectors are float [Q, D] and [P, D], `positive_columns_Q` int64, and the result is a
    scalar. `masked_QP` (bool) leaves passages out of a query's denominator, see `false_negative_mask`.
    """
    scores_QP = scale * query_vectors_QD @ passage_vectors_PD.T
    if masked_QP is not None:
        scores_QP = scores_QP.masked_fill(masked_QP, float("-inf"))
    return torch.nn.functional.cross_entropy(scores_QP, positive_columns_Q)


def false_negative_mask(passages_P, positive_columns_Q, positives):
    """Bool [Q, P]: which passages of the batch are known positives of a query, except the column of its own positive.

    `passages_P` are int row numbers, `positives` lists the known positives of every query (Q int arrays). A second
    copy of a query's own positive, drawn for another query, is masked too. Neither the paper nor the released code
    masks anything.
    """
    masked_QP = np.stack([np.isin(passages_P, known) for known in positives])
    masked_QP[np.arange(len(positives)), positive_columns_Q] = False
    return torch.from_numpy(masked_QP)
