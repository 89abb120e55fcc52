"""ListMLE (Xia et al., ICML 2008): the likelihood of a teacher's ranking of a query's own list."""

from teleport.settings.section import Scored
from teleport.training.losses.own_lists import own_list


class Settings(Scored):
    """The likelihood of a teacher's ranking of the positive and the own negatives."""


def loss(scores_QP, positive_columns_Q, own_columns_QN, judged_QN):
    """Mean over the queries of -log P(the teacher's order) by Plackett and Luce (scalar): the sum over the ranks k of
    log sum over j >= k of exp(s_j), minus s_k. Equal scores of the teacher keep the order of the list."""
    scores_QN, judged_QN, _ = own_list(scores_QP, positive_columns_Q, own_columns_QN, judged_QN)
    order_QN = judged_QN.argsort(dim=1, descending=True, stable=True)
    ranked_QN = scores_QN.gather(1, order_QN)  # masked passages come last
    counted_QN = ranked_QN > float("-inf")
    ranked_QN = ranked_QN.masked_fill(~counted_QN, -1e30)  # -inf has no gradient below
    rest_QN = ranked_QN.flip(1).logcumsumexp(1).flip(1)
    return ((rest_QN - ranked_QN) * counted_QN).sum(1).mean()
