"""MarginMSE (Hofstätter et al., arXiv 2010.02666): a teacher's margins between the positive and each own negative."""

from teleport.settings.section import ScaledScores
from teleport.training.losses.pairs import num_own_pairs


class Settings(ScaledScores):
    """The squared difference of margins between the positive and each own negative."""


def loss(scores_QP, positive_columns_Q, own_columns_QN, judged_QN, teacher_scale=1.0):
    """Mean over all pairs of the squared difference of the margins of model and teacher (scalar); a masked passage
    makes no pair."""
    own_QN = scores_QP.gather(1, own_columns_QN)
    counted_QN = own_QN > float("-inf")
    margins_QN = scores_QP.gather(1, positive_columns_Q.unsqueeze(1)) - own_QN.masked_fill(~counted_QN, 0.0)
    wanted_QN = teacher_scale * (judged_QN[:, :1] - judged_QN[:, 1:]).to(margins_QN)
    return ((margins_QN - wanted_QN).square() * counted_QN).sum() / counted_QN.sum().clamp(min=1)


num_pairs = num_own_pairs
