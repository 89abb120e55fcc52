"""The softmax over all passages of the batch: ANCE-Tele's loss, and DPR's. ANCE-Tele's released code
(losses/contrastive_loss.py) takes all passages of other queries for negatives too; the paper does not mention it."""

from pydantic import Field

from teleport.settings.section import Number, Section


class Settings(Section):
    """The softmax over all passages of the batch (ANCE-Tele, released)."""

    label_smoothing: Number = Field(
        0.0, ge=0, lt=1, description="Share of the target that is spread equally over all passages."
    )


def loss(scores_QP, positive_columns_Q, own_columns_QN, label_smoothing=0.0):
    """Mean over the queries of -log softmax(scores)[positive]. With `label_smoothing` e the target is 1 - e on the
    positive and e spread evenly over all passages that are not left out, itself included (Szegedy et al., CVPR 2016,
    Section 7)."""
    from torch.nn.functional import cross_entropy, log_softmax

    hard = cross_entropy(scores_QP, positive_columns_Q)
    if not label_smoothing:
        return hard
    counted_QP = scores_QP > float("-inf")
    logs_QP = log_softmax(scores_QP, dim=1).masked_fill(~counted_QP, 0.0)
    even = -(logs_QP.sum(1) / counted_QP.sum(1)).mean()
    return (1 - label_smoothing) * hard + label_smoothing * even
