"""RankNet's logistic loss (Burges et al. 2005) of pairs of a batch or of ranked lists, and the number of own pairs.

Several losses share this file. It is no loss itself: if one loss imported another, an edit of one would rerun both.
"""


def mean_pair_loss(positive_scores_Q, other_scores_QK):
    """Mean of log(1 + exp(other - positive)) over all pairs of a query's positive and one of its K others (scalar); 0
    if there is no pair. A masked score (-inf) makes no pair."""
    from torch.nn.functional import logsigmoid  # here: loading a configuration loads this file

    losses_QK = -logsigmoid(positive_scores_Q.unsqueeze(1) - other_scores_QK)  # 0 for a masked score
    pairs = (other_scores_QK > float("-inf")).sum()
    return losses_QK.sum() / pairs.clamp(min=1)


def num_own_pairs(counted_QP, positive_columns_Q, own_columns_QN):
    """The number of pairs of a query's positive and one of its own negatives; losses have it as `num_pairs`."""
    import numpy as np

    return int(np.take_along_axis(counted_QP, own_columns_QN, axis=1).sum())


def mean_list_loss(scores_QK, positive_QK, negative_QK, gains_K=None):
    """Mean over the queries of their mean over all pairs (i positive, j negative) of w_ij log(1 + exp(s_j - s_i))
    (scalar). w_ij = |gain_i - gain_j|, or 1 without gains; a query without a pair counts 0. scores_QK: float;
    positive_QK, negative_QK: bool, on the CPU, so that nothing waits for the device of the scores; gains_K: float, of
    each rank"""
    from torch.nn.functional import logsigmoid

    from teleport.encoder.precision import to_device

    most = int(positive_QK.sum(1).max())  # positives are few: a K x K matrix would waste most of its rows
    columns_QI = positive_QK.byte().argsort(dim=1, descending=True, stable=True)[:, :most]
    labels = columns_QI, positive_QK.gather(1, columns_QI), negative_QK
    columns_QI, positive_QI, negative_QK = (to_device(label, scores_QK.device) for label in labels)
    losses_QIK = -logsigmoid(scores_QK.gather(1, columns_QI).unsqueeze(2) - scores_QK.unsqueeze(1))
    if gains_K is not None:
        losses_QIK = (gains_K[columns_QI].unsqueeze(2) - gains_K).abs() * losses_QIK
    pairs_QIK = positive_QI.unsqueeze(2) & negative_QK.unsqueeze(1)
    sums_Q = (losses_QIK * pairs_QIK).sum((1, 2))
    return (sums_Q / pairs_QIK.sum((1, 2)).clamp(min=1)).mean()
