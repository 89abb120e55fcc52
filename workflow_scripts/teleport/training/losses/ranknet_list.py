"""Pairs of a ranked list, all of one weight: the ablation of ADORE's loss (Zhan et al. 2021, Figure 5)."""

from teleport.training.losses.pairs import mean_list_loss


def loss(scores_QK, positive_QK, negative_QK):
    """`mean_list_loss` with all weights 1: every pair counts equally."""
    return mean_list_loss(scores_QK, positive_QK, negative_QK)
