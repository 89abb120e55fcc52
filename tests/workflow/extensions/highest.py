"""The negative that a judge scores highest is left out."""

from teleport.negatives.relabelling import DROPPED, KEPT
from teleport.settings.section import Scored


class Settings(Scored):
    """By the judge whom `scores` names."""


def labels(judged, scores):
    """Several of a query where they score the same."""
    import numpy as np

    scores_N, highest_Q = judged.scores(scores), np.full(judged.number, -np.inf, np.float32)
    np.maximum.at(highest_Q, judged.queries_N, scores_N)
    return np.where(scores_N == highest_Q[judged.queries_N], DROPPED, KEPT)
