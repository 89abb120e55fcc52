"""Embedding distillation: pulls the model's vectors towards a teacher's (EmbedDistill, arXiv 2301.12005; jina-v5, arXiv
2602.15547; sentence-transformers' EmbedDistillLoss). Both must have the same width: encoder.projection gives the model
the teacher's."""

from pydantic import Field

from teleport.settings.section import Compared, Number


class Settings(Compared):
    """The distance of the model's vectors from a teacher's."""

    mse: Number = Field(0.0, ge=0, description="Weight of the added mean squared difference of the components.")


def loss(scores_QP, positive_columns_Q, own_columns_QN, vectors, teacher_vectors, shares_M, mse=0.0):
    """Mean over all queries and passages of the batch of 1 - cos(own vector, teacher's vector) (scalar), plus `mse`
    times the mean squared difference of their numbers. A passage's distance is the mean over its chunks."""
    import torch
    from torch.nn.functional import cosine_similarity

    own_MD = torch.cat(vectors)
    wanted_MD = torch.cat(teacher_vectors).to(own_MD)
    distances_M = 1 - cosine_similarity(own_MD, wanted_MD, dim=1)
    if mse:
        distances_M = distances_M + mse * (own_MD - wanted_MD).square().mean(dim=1)
    return shares_M @ distances_M / shares_M.sum()
