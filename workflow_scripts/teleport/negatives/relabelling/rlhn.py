"""False negatives by a judge's verdicts or scores become positives, or are left out (RLHN, Thakur et al. 2025, arXiv
2505.16967; castorini/rlhn, rlhn/dataset/techniques.py: `rlhn`, `hn_remove` and `remove`)."""

from typing import Literal

from pydantic import Field

from teleport.negatives.relabelling import DROPPED, KEPT, POSITIVE, WITHOUT_QUERY
from teleport.settings.pool import PositiveScore
from teleport.settings.section import Natural, NumberOrNull, Scored


class Settings(Scored):
    """A false negative is one that the judge scores as high as `from_score`, or above s+ (RLHN)."""

    from_score: NumberOrNull = Field(
        None,
        description="A negative of at least this score is false, such as 0.5 for verdicts true and false; null: one "
        "above s+.",
    )
    positive_score: PositiveScore = Field(
        "lowest", description="s+ of a query with several positives, if from_score is null."
    )
    become: Literal["positive", "dropped", "query_dropped"] = Field(
        "positive", description="What a false negative becomes (RLHN: positive); query_dropped: its query is left out."
    )
    most: Natural = Field(8, description="A query with more false negatives is left out (RLHN, released: 8).")


def labels(judged, scores, from_score, positive_score, become, most):
    """Label negatives. A query with more than `most` different false negatives is left out, whatever these become."""
    import numpy as np

    scores_N = judged.scores(scores)
    if from_score is None:
        false_N = scores_N > judged.positive_scores(scores, positive_score)
    else:
        false_N = scores_N >= np.float32(from_score)
    labels_N = np.where(false_N, POSITIVE if become == "positive" else DROPPED, KEPT)
    too_many = 0 if become == "query_dropped" else most
    labels_N[judged.different(false_N) > too_many] = WITHOUT_QUERY
    return labels_N
