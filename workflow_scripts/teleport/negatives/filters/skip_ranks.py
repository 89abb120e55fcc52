"""Leave out the first ranks of every retrieved list: they have most of the positives without a judgment."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from teleport.settings.section import not_bool

Settings = Annotated[
    Annotated[int, Field(ge=0, le=1_000_000), BeforeValidator(not_bool)] | None,
    Field(description="Leave out this many first ranks of each list, counted as ranks_after says."),
    AfterValidator(lambda skipped: skipped or None),
]


def drops_ranks(ranks_QS, skipped):
    """bool: the rank is one of the first `skipped`."""
    return ranks_QS <= skipped
