"""What the losses over ranked lists share: pairs of a positive and a negative of one list."""

from torch.nn.functional import logsigmoid


def mean_list_loss(scores_QK, positive_QK, negative_QK, gains_K=None):
    """Mean over the queries of their mean over all pairs (i positive, j negative) of w_ij log(1 + exp(s_j - s_i)).

    A scalar. w_ij is |gain_i - gain_j|, or 1 without gains. A query without a pair has the loss 0 and is counted.
    scores_QK: float; positive_QK, negative_QK: bool; gains_K: float, of each rank
    """
    most = int(positive_QK.sum(1).max())  # positives are few: the other rows of a K x K matrix are never made
    columns_QI = positive_QK.byte().argsort(dim=1, descending=True, stable=True)[:, :most]
    losses_QIK = -logsigmoid(scores_QK.gather(1, columns_QI).unsqueeze(2) - scores_QK.unsqueeze(1))
    if gains_K is not None:
        losses_QIK = (gains_K[columns_QI].unsqueeze(2) - gains_K).abs() * losses_QIK
    pairs_QIK = positive_QK.gather(1, columns_QI).unsqueeze(2) & negative_QK.unsqueeze(1)
    sums_Q, numbers_Q = (losses_QIK * pairs_QIK).sum((1, 2)), pairs_QIK.sum((1, 2))
    return (sums_Q / numbers_Q.clamp(min=1)).mean()
