"""CL-DRD (Zeng et al., SIGIR 2022, arXiv 2204.13679): pairs of a query's own list in a teacher's order, coarse at
first. It is a curriculum in which each episode ranks more. The released code (HansiZeng/CL-DRD, losses/lambda_rank.py
and dataset/nway_dataset.py) ranks 5, then 10, then all of lists of 30, each time from the checkpoint before."""

from pydantic import Field

from teleport.settings.section import Natural, Scored
from teleport.training.losses.own_lists import own_list


class Settings(Scored):
    """Pairs of the own list in a teacher's order; only the first passages are ordered among themselves."""

    ranked: Natural = Field(
        5,
        description="How many of the teacher's first passages are ranked; of the others, the first half ranks above "
        "the second, unordered within (released: 5, 10, 30 of 30).",
    )


def loss(scores_QP, positive_columns_Q, own_columns_QN, judged_QN, ranked=5):
    """Mean over the queries of their mean over all pairs (the teacher ranks i above j) of |1/r_i - 1/r_j| log(1 +
    exp(s_j - s_i)) (scalar). r: the model's own ranks of the list, from 1 on, without a gradient. The released code
    takes one mean over the pairs of a batch, which is the same if no mask shortens a list. Equal scores keep the list's
    order."""
    import torch
    from torch.nn.functional import logsigmoid

    scores_QN, judged_QN, counted_QN = own_list(scores_QP, positive_columns_Q, own_columns_QN, judged_QN)
    places_QN, ranks_QN = (  # by the teacher and by the model, both from 0 on; masked passages come last
        each_QN.argsort(dim=1, descending=True, stable=True).argsort(dim=1) for each_QN in (judged_QN, scores_QN)
    )
    others_Q1 = counted_QN.sum(1, keepdim=True) - ranked
    group_QN = places_QN.clamp(max=ranked) + (places_QN >= ranked + others_Q1.clamp(min=0) // 2)
    above_QNN = group_QN.unsqueeze(2) < group_QN.unsqueeze(1)
    pairs_QNN = above_QNN & counted_QN.unsqueeze(2) & counted_QN.unsqueeze(1)
    gains_QN = 1 / (1 + ranks_QN).to(scores_QN)
    weights_QNN = (gains_QN.unsqueeze(2) - gains_QN.unsqueeze(1)).abs()
    scores_QN = scores_QN.masked_fill(~counted_QN, 0.0)
    losses_QNN = -weights_QNN * logsigmoid(scores_QN.unsqueeze(2) - scores_QN.unsqueeze(1))
    sums_Q = torch.where(pairs_QNN, losses_QNN, 0.0).sum((1, 2))
    return (sums_Q / pairs_QNN.sum((1, 2)).clamp(min=1)).mean()
