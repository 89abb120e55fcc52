"""Pairs of the positive and every other passage of the batch: STAR's loss (Zhan et al. 2021).

The released code (DRhard, model.py) weighs all pairs alike: the own negatives are the static hard ones, the passages of
the other queries the random ones. The paper's Eq. 13 has a weight alpha for the latter, which the code has not.
STAR leaves out known positives: `training.mask_false_negatives`.
"""

from teleport.training.losses.pairs import mean_pair_loss


def loss(scores_QP, positive_columns_Q, own_columns_QN):
    """Mean over all pairs of a query's positive and another passage of the batch of log(1 + exp(s - s+)) (scalar).

    scores_QP: float, -inf where a passage is left out and makes no pair; positive_columns_Q: int64, the column of each
    query's positive, which makes no pair either; own_columns_QN: int64, not told from other passages here
    """
    columns_Q1 = positive_columns_Q.unsqueeze(1)
    others_QP = scores_QP.scatter(1, columns_Q1, float("-inf"))
    return mean_pair_loss(scores_QP.gather(1, columns_Q1).squeeze(1), others_QP)
