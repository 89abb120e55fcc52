"""Leave out candidates that score above a share of the positive's score: TopK-PercPos (NV-Retriever, arXiv 2407.15831),
and Nemotron's recipe, which takes the lowest of several positives. `relative_margin` is the form for scores of any
sign."""

from typing import Annotated

from pydantic import BeforeValidator, Field, FiniteFloat

from teleport.settings.section import not_bool

Settings = Annotated[
    Annotated[FiniteFloat, Field(gt=0, lt=2), BeforeValidator(not_bool)] | None,
    Field(description="Leave out scores above s+ x percentage (TopK-PercPos: 0.95)."),
]


def drops_scores(scores_QS, positive_scores_Q1, share):
    """bool: the score is above share * s+."""
    return scores_QS > positive_scores_Q1 * scores_QS.dtype.type(share)
