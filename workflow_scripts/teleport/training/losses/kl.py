"""The divergence of the model's distribution over a query's own list from a teacher's (Hinton et al. 2015; SimLM,
FlagEmbedding; sentence-transformers' DistillKLDivLoss)."""

from pydantic import Field

from teleport.settings.section import Number, ScaledScores
from teleport.training.losses.own_lists import own_list


class Settings(ScaledScores):
    """The divergence from a teacher's distribution over the positive and the own negatives."""

    temperature: Number = Field(
        1.0, gt=0, description="Divides the scores of model and teacher; its square multiplies the loss."
    )


def loss(scores_QP, positive_columns_Q, own_columns_QN, judged_QN, teacher_scale=1.0, temperature=1.0):
    """Mean over the queries of T^2 KL(softmax(judged / T) || softmax(scores / T)) over the positive and the own
    negatives (scalar)."""
    from torch import xlogy

    scores_QN, judged_QN, counted_QN = own_list(
        scores_QP, positive_columns_Q, own_columns_QN, teacher_scale * judged_QN
    )
    shares_QN = (judged_QN / temperature).softmax(1)
    logs_QN = (scores_QN / temperature).log_softmax(1).masked_fill(~counted_QN, 0.0)
    divergence_Q = (xlogy(shares_QN, shares_QN) - shares_QN * logs_QN).sum(1)
    return temperature**2 * divergence_Q.mean()
