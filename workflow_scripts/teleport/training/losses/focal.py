"""The softmax over the batch with a focal weight: a query that is learnt already counts less (KaLM-Embedding-V2, arXiv
2506.20923, after the focal loss of Lin et al. 2017)."""

from pydantic import Field

from teleport.settings.section import Number, Section


class Settings(Section):
    """The softmax over the batch, with less weight on easy queries."""

    gamma: Number = Field(0.5, ge=0, description="The weight is (1 - p+)^gamma; 0: the plain softmax.")


def loss(scores_QP, positive_columns_Q, own_columns_QN, gamma=0.5):
    """Mean over the queries of -(1 - p)^gamma log p (scalar), where p is the positive's share in the softmax over all
    passages of the batch. The weight has a gradient, as in the focal loss."""
    log_Q = scores_QP.log_softmax(1).gather(1, positive_columns_Q.unsqueeze(1)).squeeze(1)
    # At p = 1 the slope of a root is infinite, so 1 - p is clamped to at least 1e-7.
    return -((-log_Q.expm1()).clamp(min=1e-7) ** gamma * log_Q).mean()
