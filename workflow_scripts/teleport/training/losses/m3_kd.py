"""FlagEmbedding's m3_kd_loss (BGE M3, Chen et al., arXiv 2402.03216;
FlagEmbedding/abc/finetune/embedder/AbsModeling.py). Each passage of a query's own list in turn is the positive of a
softmax over the batch, weighed by the teacher's softmax."""

from teleport.settings.section import ScaledScores
from teleport.training.losses.own_lists import own_list


class Settings(ScaledScores):
    """The softmax over the batch, with each passage of the own list as a positive, weighed by a teacher."""


def loss(scores_QP, positive_columns_Q, own_columns_QN, judged_QN, teacher_scale=1.0):
    """Mean over the queries of the sum over their list, the positive first, of softmax(judged)_n times -log softmax of
    passage n (scalar). That softmax is among passage n, the later ones of the list, and all passages outside it."""
    import torch

    columns_QN = torch.cat([positive_columns_Q.unsqueeze(1), own_columns_QN], dim=1)
    scores_QN, judged_QN, counted_QN = own_list(
        scores_QP, positive_columns_Q, own_columns_QN, teacher_scale * judged_QN
    )
    scores_QN = scores_QN.masked_fill(~counted_QN, -1e30)  # -inf has no gradient below
    rest_Q1 = scores_QP.scatter(1, columns_QN, -1e30).logsumexp(1, keepdim=True)
    among_QN = torch.cat([rest_Q1, scores_QN.flip(1)], dim=1).logcumsumexp(1)[:, 1:].flip(1)
    return (judged_QN.softmax(1) * (among_QN - scores_QN) * counted_QN).sum(1).mean()
