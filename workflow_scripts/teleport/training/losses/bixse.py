"""BiXSE (arXiv 2508.06781): binary cross-entropy with graded relevance, in-batch negatives with grade 0."""

from pydantic import Field

from teleport.refusal import Refusal
from teleport.settings.section import Number, Scored


class Settings(Scored):
    """Binary cross-entropy with a teacher's grades from 0 to 1 (BiXSE)."""

    bias: Number = Field(0.0, description="Added to scores; negative because most pairs of a batch are irrelevant.")
    clip: bool = Field(False, description="Clip grades to between 0 and 1, as for cosines; false: refuse other grades.")


def loss(scores_QP, positive_columns_Q, own_columns_QN, judged_QN, bias=0.0, clip=False):
    """Mean over the queries of the sum over all passages of the batch of the binary cross-entropy of sigmoid(score +
    bias) with the grade (scalar): the teacher's for the positive and the own negatives, 0 for all others. The paper
    learns the bias; here it is a setting."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    columns_QN = torch.cat([positive_columns_Q.unsqueeze(1), own_columns_QN], dim=1)
    grades_QP = torch.zeros_like(scores_QP).scatter(1, columns_QN, judged_QN.to(scores_QP).clamp(0, 1))
    counted_QP = scores_QP > float("-inf")
    logits_QP = scores_QP.masked_fill(~counted_QP, 0.0) + bias
    losses_QP = binary_cross_entropy_with_logits(logits_QP, grades_QP, reduction="none")
    return (losses_QP * counted_QP).sum(1).mean()


def require_scores(name, scores, bias=0.0, clip=False):
    """Raise Refusal for scores outside 0 to 1, unless `clip` clips them."""
    if len(scores) and not clip and not (scores.min() >= 0 and scores.max() <= 1):
        raise Refusal(
            f"training.loss bixse takes grades from 0 to 1, and the scores of {name} go from {scores.min():g} to "
            f"{scores.max():g}. Give grades, such as those of a file, or set clip to true."
        )
