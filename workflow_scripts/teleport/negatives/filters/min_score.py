"""Leave out candidates that score lower than a fixed number: they are so easy that they teach nothing."""

from typing import Annotated

from pydantic import Field

from teleport.settings.section import NumberOrNull

Settings = Annotated[NumberOrNull, Field(description="Leave out scores below this.")]


def drops_scores(scores_QS, positive_scores_Q1, floor):
    """bool: the score is below the floor."""
    return scores_QS < floor
