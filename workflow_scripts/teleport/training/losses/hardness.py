"""The softmax over the batch in which hard negatives count more: alpha times their own score is added to their logits
(EmbeddingGemma, arXiv 2509.20354: alpha 5, own negatives; LLaVE, arXiv 2503.04812, Eq. 5: alpha 9, in-batch ones)."""

from typing import Literal

from pydantic import Field

from teleport.refusal import Refusal
from teleport.settings.section import Number, Section


class Settings(Section):
    """The softmax over the batch in which hard negatives count more."""

    alpha: Number = Field(5.0, gt=0, description="Factor on q·d, which gets no gradient (EmbeddingGemma 5, LLaVE 9).")
    of: Literal["own", "batch", "all"] = Field(
        "own", description="Which negatives: a query's own (EmbeddingGemma), those of the others (LLaVE), or all."
    )

    def require(self, training, has_pool):
        """Raise Refusal if the other settings of an episode do not go with these."""
        if self.of == "own" and not has_pool:
            raise Refusal(
                "training.loss hardness weighs a query's own negatives, and there are none: set its `of` to batch or "
                "all, or negatives_per_query to 1 or more"
            )
        if self.of != "all" and training.mixed_negatives:
            raise Refusal(
                f"training.loss hardness with of: {self.of} separates a query's own negatives from those of the "
                "others, and mixed negatives are neither: set its `of` to all, or mixed_negatives to 0"
            )


def loss(scores_QP, positive_columns_Q, own_columns_QN, scale, alpha=5.0, of="own"):
    """Mean over the queries of -log softmax(scores + alpha q·d)[positive]. q·d = scores / scale is added for the chosen
    negatives alone, without a gradient. With normalised vectors it is the cosine of the papers."""
    import torch

    chosen_QP = torch.full_like(scores_QP, of != "own", dtype=torch.bool)
    if of != "all":
        chosen_QP = chosen_QP.scatter(1, own_columns_QN, of == "own")
    chosen_QP = chosen_QP.scatter(1, positive_columns_Q.unsqueeze(1), False)
    penalties_QP = torch.where(chosen_QP, alpha / scale * scores_QP.detach(), 0.0)
    return torch.nn.functional.cross_entropy(scores_QP + penalties_QP, positive_columns_Q)
