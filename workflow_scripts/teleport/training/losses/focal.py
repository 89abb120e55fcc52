"""The softmax over the batch with a focal weight: what is learnt already counts less (KaLM-Embedding-V2, arXiv
2506.20923, after the focal loss of Lin et al. 2017)."""

from pydantic import Field

from teleport.settings.section import Number, Section


class Settings(Section):
    """The softmax over the batch, of which easy queries count less."""

    gamma: Number = Field(0.5, ge=0, description="The weight is (1 - p+)^gamma; 0: the plain softmax.")


def loss(scores_QP, positive_columns_Q, own_columns_QN, gamma=0.5):
    """Mean over the queries of -(1 - p)^gamma log p, p the positive's share in the softmax over all passages of the
    batch (scalar). The weight has a gradient, as in the focal loss."""
    log_Q = scores_QP.log_softmax(1).gather(1, positive_columns_Q.unsqueeze(1)).squeeze(1)
    # At p = 1 the slope of a root is infinite: the share of all others is taken to be 1e-7 at least.
    return -((-log_Q.expm1()).clamp(min=1e-7) ** gamma * log_Q).mean()
