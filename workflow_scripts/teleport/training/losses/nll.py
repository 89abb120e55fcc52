"""Pairs of the positive and each own negative: ANCE's loss.

The released code (model/models.py) takes a softmax over one positive and one negative at a time, and each negative of
a query makes one such triple. Passages of other queries do not count.
"""

from teleport.training.losses.pairs import mean_pair_loss


def loss(scores_QP, positive_columns_Q, own_columns_QN):
    """Mean over all triples of log(1 + exp(s- - s+)) (scalar).

    scores_QP: float, -inf where a passage is left out; positive_columns_Q, own_columns_QN: int64 columns of each
    query's positive and of its own negatives. Raises ValueError when there are no own negatives.
    """
    if own_columns_QN.shape[1] == 0:
        raise ValueError(
            "training.loss nll compares a positive with the query's own negatives, and training.negatives_per_query is "
            "0: set it to 1 or more, or take a loss over the batch (softmax, ranknet, hardest)."
        )
    positive_scores_Q = scores_QP.gather(1, positive_columns_Q.unsqueeze(1)).squeeze(1)
    return mean_pair_loss(positive_scores_Q, scores_QP.gather(1, own_columns_QN))
