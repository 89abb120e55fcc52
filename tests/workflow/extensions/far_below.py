"""What scores much lower than the positive is left out: it is too easy."""

from typing import Annotated

from pydantic import Field

from teleport.settings.section import NotNegative

Settings = Annotated[NotNegative | None, Field(description="Leave out a score below s+ - this.")]


def drops_scores(scores_QS, positive_scores_Q1, distance):
    """bool: the score is lower than that of the positive by more than the distance."""
    return scores_QS < positive_scores_Q1 - distance
