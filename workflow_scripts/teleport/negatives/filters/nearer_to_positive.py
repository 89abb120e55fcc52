"""Leave out candidates that are at least as near to the positive as to the query: they probably answer it too (Meghwani
et al. 2025, arXiv 2505.18366: the second of two conditions, d(q, n) < d(p, n), keeps a candidate)."""

from typing import Annotated

from pydantic import AfterValidator, Field

Settings = Annotated[
    bool | None,
    Field(
        description="Leave out a candidate whose score with the first positive in place of the query is at least its "
        "score with the query (arXiv 2505.18366); needs one vector per passage."
    ),
    AfterValidator(lambda on: on or None),
]


def drops_anchors(scores_QS, anchor_scores_QS, on):
    """bool: the score with the positive is at least the one with the query."""
    return anchor_scores_QS >= scores_QS
