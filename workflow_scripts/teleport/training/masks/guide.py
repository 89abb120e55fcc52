"""A passage that a guide scores higher than the positive is probably a positive (GISTEmbed, arXiv 2402.16829). The
guide scores all passages of the batch, so it must have vectors: a dual encoder."""

from pydantic import Field

from teleport.settings.section import Compared, Number


class Settings(Compared):
    """A mask by the scores of a guide."""

    margin: Number = Field(
        0.0,
        description="How far above s+ the guide must score a passage to mask it (GISTEmbed: 0); "
        "sentence-transformers' margin with the sign changed.",
    )


def mask_scores(scores_QP, positive_columns_Q, own_columns_QN, guide_QP, margin=0.0):
    """bool [Q, P]: the guide scores the passage higher than the positive by more than the margin; never the positive's
    own column."""
    columns_Q1 = positive_columns_Q.unsqueeze(1)
    return (guide_QP > guide_QP.gather(1, columns_Q1) + margin).scatter(1, columns_Q1, False)
