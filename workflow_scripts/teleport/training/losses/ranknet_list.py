"""Pairs of a ranked list, all of one weight: the ablation of ADORE's loss (Zhan et al. 2021, Figure 5)."""


def loss(scores_QK, positive_QK, negative_QK, gains_K=None):
    """Mean over the queries of their mean over all pairs (i positive, j negative) of w_ij log(1 + exp(s_j - s_i)).

    A scalar. w_ij is |gain_i - gain_j|, or 1 without gains. A query without a pair has the loss 0 and is counted.
    scores_QK: float; positive_QK, negative_QK: bool, on the CPU, so that nothing waits for the device of the scores;
    gains_K: float, of each rank
    """
    from torch.nn.functional import logsigmoid

    from teleport.encoder.precision import to_device

    most = int(positive_QK.sum(1).max())  # positives are few: the other rows of a K x K matrix are never made
    columns_QI = positive_QK.byte().argsort(dim=1, descending=True, stable=True)[:, :most]
    labels = columns_QI, positive_QK.gather(1, columns_QI), negative_QK
    columns_QI, positive_QI, negative_QK = (to_device(label, scores_QK.device) for label in labels)
    losses_QIK = -logsigmoid(scores_QK.gather(1, columns_QI).unsqueeze(2) - scores_QK.unsqueeze(1))
    if gains_K is not None:
        losses_QIK = (gains_K[columns_QI].unsqueeze(2) - gains_K).abs() * losses_QIK
    pairs_QIK = positive_QI.unsqueeze(2) & negative_QK.unsqueeze(1)
    sums_Q = (losses_QIK * pairs_QIK).sum((1, 2))
    return (sums_Q / pairs_QIK.sum((1, 2)).clamp(min=1)).mean()
