"""A negative that a judge ranks above the positive becomes a positive. One that ranks below it and has an answer is
neither, and is left out (ARHN, Choi et al., arXiv 2604.11092)."""

from pydantic import Field

from teleport.negatives.relabelling import DROPPED, KEPT, POSITIVE
from teleport.settings.pool import PositiveScore
from teleport.settings.section import Judge, Scored


class Settings(Scored):
    """`scores` ranks the passages of a query: the higher a score, the better (ARHN: a language model's order)."""

    positive_score: PositiveScore = Field("lowest", description="s+ of a query with several positives.")
    answers: Judge | None = Field(
        None,
        description="Whose scores of at least 0.5 say that a passage has an answer; null: its text has one of the "
        "query's answers in the collection.",
    )


def labels(judged, scores, positive_score, answers):
    """Label negatives by their rank and answers. If the query has no positive, no negative is above it."""
    import numpy as np

    scores_N = judged.scores(scores)
    above_N = scores_N > judged.positive_scores(scores, positive_score)
    answering_N = judged.have_answers() if answers is None else judged.scores(answers) >= np.float32(0.5)
    return np.where(above_N, POSITIVE, np.where(answering_N & ~np.isnan(scores_N), DROPPED, KEPT))
