"""Pairs of the positive and every other passage of the batch: STAR's loss (Zhan et al. 2021).

The released code (DRhard, model.py) weighs all pairs equally: own negatives are the static hard ones, passages of other
queries the random ones. The paper's Eq. 13, L_s + alpha L_r, weighs the latter; the code does not, and no value of
alpha is printed. Here L_s and L_r are means over pairs. With equal weights, B queries and one own negative each, the
gradient is that of alpha = 2B - 2, scaled by 1 / (2B - 1). If L_s and L_r are read as sums, L_s over the S static
negatives of a query and L_r over the corpus C, the same weight is alpha = (2B - 2) S / |C|: 0.0115 for B = 256, S = 200
and MS MARCO. STAR leaves out known positives: `training.masks: [known_positives]`.
"""

from pydantic import Field

from teleport.refusal import Refusal
from teleport.settings.section import NumberOrNull, Section
from teleport.training.losses.pairs import mean_pair_loss


class Settings(Section):
    """Pairs of the positive with all passages of the batch (STAR)."""

    star_alpha: NumberOrNull = Field(
        None,
        ge=0,
        description="Mean over own negatives + star_alpha x mean over the others (STAR, Eq. 13); null: one mean over "
        "all pairs (released).",
    )

    def require(self, training, has_pool):
        """Raise Refusal if the other settings of an episode do not go with these."""
        if self.star_alpha is not None and not has_pool:
            raise Refusal(
                "training.loss.star_alpha weighs own negatives against the rest of the batch, but there are none: set "
                "it to null, or negatives_per_query to 1 or more"
            )
        if self.star_alpha is not None and training.batch_queries == training.accumulate:
            raise Refusal(
                "training.loss.star_alpha weighs the passages of other queries, and a micro-batch of one query has "
                "none: lower training.accumulate, or raise training.batch_queries"
            )
        masks = training.masks or training.positive == "all"
        if self.star_alpha is not None and masks and training.accumulate > 1:
            raise Refusal(
                "training.loss.star_alpha adds two means over pairs, and masks leave micro-batches unequal numbers "
                "of pairs: set training.accumulate to 1, masks to [], or star_alpha to null"
            )


def loss(scores_QP, positive_columns_Q, own_columns_QN, star_alpha=None):
    """Mean of log(1 + exp(s - s+)) over all pairs of a query's positive and another passage of the batch. With
    `star_alpha` (STAR, Eq. 13): the mean over the own negatives, plus star_alpha times the mean over all others."""
    columns_Q1 = positive_columns_Q.unsqueeze(1)
    positive_scores_Q = scores_QP.gather(1, columns_Q1).squeeze(1)
    others_QP = scores_QP.scatter(1, columns_Q1, float("-inf"))
    if star_alpha is None:
        return mean_pair_loss(positive_scores_Q, others_QP)
    own = mean_pair_loss(positive_scores_Q, scores_QP.gather(1, own_columns_QN))
    return own + star_alpha * mean_pair_loss(positive_scores_Q, others_QP.scatter(1, own_columns_QN, float("-inf")))


def num_pairs(counted_QP, positive_columns_Q, own_columns_QN):
    """How many pairs there are in all means together."""
    return int(counted_QP.sum()) - len(positive_columns_Q)
