"""MarginMSE over the batch (TAS-B, Hofstätter et al., SIGIR 2021, arXiv 2104.06967): a teacher's margins between the
positive and each passage of another query. The released code (matchmaker, train.py) adds 0.75 times it to MarginMSE
with the own negatives. The teacher scores all passages of the batch, so it must have vectors: a dual encoder."""

from teleport.settings.section import Compared, ScaledScores


class Settings(Compared, ScaledScores):
    """The squared difference of margins between the positive and each passage of another query."""


def loss(scores_QP, positive_columns_Q, own_columns_QN, guide_QP, teacher_scale=1.0):
    """Mean over all pairs of a query and a passage of another one of the squared difference of the margins of model and
    teacher (scalar); a masked passage makes no pair."""
    import torch

    columns_Q1 = positive_columns_Q.unsqueeze(1)
    columns_QN = torch.cat([columns_Q1, own_columns_QN], dim=1)
    counted_QP = (scores_QP > float("-inf")).scatter(1, columns_QN, False)
    margins_QP = scores_QP.gather(1, columns_Q1) - scores_QP.masked_fill(~counted_QP, 0.0)
    wanted_QP = teacher_scale * (guide_QP.gather(1, columns_Q1) - guide_QP).to(margins_QP)
    return ((margins_QP - wanted_QP).square() * counted_QP).sum() / counted_QP.sum().clamp(min=1)


def num_pairs(counted_QP, positive_columns_Q, own_columns_QN):
    """How many pairs the loss is the mean of."""
    import numpy as np  # here: loading a configuration loads this file

    columns_QN = np.column_stack([positive_columns_Q, own_columns_QN])
    return int(counted_QP.sum() - np.take_along_axis(counted_QP, columns_QN, axis=1).sum())
