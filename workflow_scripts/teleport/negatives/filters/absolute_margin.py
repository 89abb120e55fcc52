"""Leave out candidates that score nearly as high as the positive, by a difference of scores."""

from typing import Annotated

from pydantic import Field

from teleport.settings.section import NotNegative

Settings = Annotated[NotNegative | None, Field(description="Leave out scores above s+ - margin.")]


def drops_scores(scores_QS, positive_scores_Q1, margin):
    """bool: the score is above s+ - margin."""
    return scores_QS > positive_scores_Q1 - margin
