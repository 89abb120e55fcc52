"""Pairs of a list weighed by what their ranks are worth: ADORE's LambdaLoss (Zhan et al. 2021).

The released code (DRhard, adore/train.py) weighs a pair by the difference of the reciprocal ranks. If the list has one
positive, that is how much the reciprocal rank would change if the two were swapped.
"""

from pydantic import Field

from teleport.settings.section import Integer, Section
from teleport.training.losses.pairs import mean_list_loss


class Settings(Section):
    """Pairs of a ranked list weighed by their ranks (ADORE)."""

    metric_cut: Integer = Field(
        ge=1, description="Last rank that the metric counts (ADORE: passages 200, documents 10)."
    )


def loss(scores_QK, positive_QK, negative_QK, metric_cut):
    """Mean over the queries of their mean over all pairs (i positive, j negative) of w_ij log(1 + exp(s_j - s_i)), w_ij
    = |r(i) - r(j)|, where r(k) = 1 / k up to rank `metric_cut` and 0 after it. Ranks are positions in the list, from 1
    on, also for an appended positive."""
    import torch

    ranks_K = torch.arange(1, scores_QK.shape[1] + 1, device=scores_QK.device, dtype=scores_QK.dtype)
    gains_K = torch.where(ranks_K <= metric_cut, 1 / ranks_K, 0)
    return mean_list_loss(scores_QK, positive_QK, negative_QK, gains_K)
