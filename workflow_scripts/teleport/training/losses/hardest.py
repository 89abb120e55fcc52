"""The pair of the positive and the hardest passage of the batch: the baseline NCE of ANCE's Table 1."""

from teleport.training.losses.pairs import mean_pair_loss


def loss(scores_QP, positive_columns_Q, own_columns_QN):
    """Mean over the queries of log(1 + exp(s- - s+)), where s- is the highest score of any passage but the positive.
    Passages with equal highest scores share the gradient. A second copy of the positive counts as another passage,
    unless it is masked."""
    columns_Q1 = positive_columns_Q.unsqueeze(1)
    hardest_Q1 = scores_QP.scatter(1, columns_Q1, float("-inf")).amax(1, keepdim=True)
    return mean_pair_loss(scores_QP.gather(1, columns_Q1).squeeze(1), hardest_Q1)


def num_pairs(counted_QP, positive_columns_Q, own_columns_QN):
    """How many queries have a pair: another passage besides the positive."""
    return int((counted_QP.sum(axis=1) > 1).sum())
