"""Pairs of the positive and each own negative: ANCE's loss. The released code (model/models.py) takes a softmax over
one positive and one negative at a time, one triple per negative. Passages of other queries do not count."""

from teleport.training.losses.pairs import mean_pair_loss, num_own_pairs


def loss(scores_QP, positive_columns_Q, own_columns_QN):
    """Mean over all triples of log(1 + exp(s- - s+))."""
    positive_scores_Q = scores_QP.gather(1, positive_columns_Q.unsqueeze(1)).squeeze(1)
    return mean_pair_loss(positive_scores_Q, scores_QP.gather(1, own_columns_QN))


num_pairs = num_own_pairs
