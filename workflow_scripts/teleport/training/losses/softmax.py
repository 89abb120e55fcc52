"""The softmax over all passages of the batch: ANCE-Tele's loss, and DPR's.

ANCE-Tele's released code (losses/contrastive_loss.py): the negatives of a query are its own and all passages of the
other queries in the batch, which the paper does not mention.
"""

from torch.nn.functional import cross_entropy


def loss(scores_QP, positive_columns_Q, own_columns_QN):
    """Mean over the queries of -log softmax(scores)[positive] (scalar).

    scores_QP: float, -inf where a passage is left out; positive_columns_Q: int64, the column of each query's positive;
    own_columns_QN: int64, those of its own negatives, which are a part of the batch like any other here
    """
    return cross_entropy(scores_QP, positive_columns_Q)
