"""What the losses over pairs of a positive and another passage share: RankNet's logistic loss (Burges et al. 2005)."""

from torch.nn.functional import logsigmoid


def mean_pair_loss(positive_scores_Q, other_scores_QK):
    """Mean of log(1 + exp(other - positive)) over all pairs of a query's positive and one of its K others (scalar).

    A masked score (-inf) makes no pair: it counts neither in the sum nor in the number. 0 when there is no pair.
    """
    losses_QK = -logsigmoid(positive_scores_Q.unsqueeze(1) - other_scores_QK)  # 0 for a masked score
    pairs = (other_scores_QK > float("-inf")).sum()
    return losses_QK.sum() / pairs.clamp(min=1)
