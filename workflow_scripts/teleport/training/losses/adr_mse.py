"""ADR-MSE (Rank-DistiLLM, Schlatt et al., ECIR 2025, arXiv 2405.07920; sentence-transformers' ADRMSELoss): fits
differentiable ranks of the model within a query's own list to a teacher's ranks; high ranks count more."""

from pydantic import Field

from teleport.settings.section import Number, Scored
from teleport.training.losses.own_lists import own_list
from teleport.training.losses.pairs import num_own_pairs


class Settings(Scored):
    """The squared distance between the model's approximate ranks and a teacher's, within the own list."""

    alpha: Number = Field(
        1.0, gt=0, description="Factor on score differences; higher: nearer to ranks, smaller gradients."
    )


def loss(scores_QP, positive_columns_Q, own_columns_QN, judged_QN, alpha=1.0):
    """Mean over the passages of all lists of (r - a)^2 / log2(1 + r) (scalar). r: the teacher's rank, from 1 on; equal
    scores share the mean of their ranks. a = 1 + sum over the others j of sigmoid(alpha (s_j - s_i))."""
    import torch

    scores_QN, judged_QN, counted_QN = own_list(scores_QP, positive_columns_Q, own_columns_QN, judged_QN)
    others_QNN = counted_QN.unsqueeze(1) & ~torch.eye(scores_QN.shape[1], dtype=torch.bool, device=scores_QN.device)
    higher_QNN = judged_QN.unsqueeze(1) > judged_QN.unsqueeze(2)
    equal_QNN = judged_QN.unsqueeze(1) == judged_QN.unsqueeze(2)
    ranks_QN = 1 + ((higher_QNN + 0.5 * equal_QNN) * others_QNN).sum(2).to(scores_QN)
    scores_QN = scores_QN.masked_fill(~counted_QN, 0.0)
    above_QNN = (alpha * (scores_QN.unsqueeze(1) - scores_QN.unsqueeze(2))).sigmoid()
    approximate_QN = 1 + (above_QNN * others_QNN).sum(2)
    losses_QN = (ranks_QN - approximate_QN).square() / (1 + ranks_QN).log2()
    return (losses_QN * counted_QN).sum() / counted_QN.sum()


def num_pairs(counted_QP, positive_columns_Q, own_columns_QN):
    """How many passages the loss is the mean of."""
    return len(positive_columns_Q) + num_own_pairs(counted_QP, positive_columns_Q, own_columns_QN)
