"""Leave out candidates that score higher than the positive."""

from typing import Annotated

from pydantic import AfterValidator, Field

Settings = Annotated[
    bool | None, Field(description="Leave out scores above s+."), AfterValidator(lambda on: on or None)
]


def drops_scores(scores_QS, positive_scores_Q1, on):
    """bool: the score is above s+."""
    return scores_QS > positive_scores_Q1
