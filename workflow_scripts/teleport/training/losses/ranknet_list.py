"""Pairs of a list, all of one weight: the ablation of ADORE's loss (Zhan et al. 2021, Figure 5)."""

from teleport.training.losses.lists import mean_list_loss


def loss(scores_QK, positive_QK, negative_QK):
    """Mean over the queries of their mean over all pairs (i positive, j negative) of log(1 + exp(s_j - s_i)) (scalar).

    scores_QK: float; positive_QK, negative_QK: bool, both False where a passage makes no pair
    """
    return mean_list_loss(scores_QK, positive_QK, negative_QK)
