"""A passage that scores more than a margin above the positive is probably a positive (Qwen3-Embedding, arXiv
2506.05176)."""

from pydantic import Field

from teleport.settings.section import Number, Section


class Settings(Section):
    """A mask by the scores of the step itself."""

    margin: Number = Field(
        0.1,
        ge=0,
        description="How far above s+ a passage must score to be masked, by q·d without encoder.scale (Qwen3: 0.1).",
    )


def mask_scores(scores_QP, positive_columns_Q, own_columns_QN, scale, margin=0.1):
    """bool [Q, P]: the passage scores higher than the positive by more than the margin."""
    return scores_QP > scores_QP.gather(1, positive_columns_Q.unsqueeze(1)) + scale * margin
