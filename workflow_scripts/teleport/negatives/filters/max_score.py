"""Leave out candidates that score higher than a fixed number: the cap of Arctic-Embed (arXiv 2405.05374)."""

from typing import Annotated

from pydantic import Field

from teleport.settings.section import NumberOrNull

Settings = Annotated[NumberOrNull, Field(description="Leave out scores above this.")]


def drops_scores(scores_QS, positive_scores_Q1, cap):
    """bool: the score is above the cap."""
    return scores_QS > cap
