"""Leave out candidates that score nearly as high as the positive, by a share of the positive's score (TopK-PercPos)."""

from typing import Annotated

from pydantic import Field

from teleport.settings.section import Share

Settings = Annotated[Share | None, Field(description="Leave out scores above s+ - |s+| x margin.")]


def drops_scores(scores_QS, positive_scores_Q1, margin):
    """bool: the score is above s+ - |s+| * margin, which is below s+ for negative scores too."""
    return scores_QS > positive_scores_Q1 - abs(positive_scores_Q1) * margin
