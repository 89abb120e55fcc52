"""Pairs of the positive and each own negative: ANCE's loss. The released code (model/models.py) takes a softmax over
one positive and one negative at a time, one triple per negative. Passages of other queries do not count."""

from teleport.training.losses.pairs import mean_pair_loss


def loss(scores_QP, positive_columns_Q, own_columns_QN):
    """Mean over all triples of log(1 + exp(s- - s+))."""
    positive_scores_Q = scores_QP.gather(1, positive_columns_Q.unsqueeze(1)).squeeze(1)
    return mean_pair_loss(positive_scores_Q, scores_QP.gather(1, own_columns_QN))


def num_pairs(counted_QP, positive_columns_Q, own_columns_QN):
    """How many triples the loss is the mean of."""
    import numpy as np  # here: loading a configuration loads this file

    return int(np.take_along_axis(counted_QP, own_columns_QN, axis=1).sum())
