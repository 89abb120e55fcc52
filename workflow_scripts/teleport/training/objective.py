"""What a training minimises: the loss and the masks of its settings, as functions of a batch and its scores."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from teleport.negatives.scores import PairTable


class Objective(NamedTuple):
    """Functions of a step. Shapes: Q queries, P passages of a batch, N own negatives of a query.

    loss: see `losses`, without settings of its own
    num_pairs: function (bool [Q, P] of what is not left out, both columns; all numpy) -> of how many pairs the loss is
        the mean; None: it is one over queries
    masks: functions of a `data.Batch` -> bool [Q, P], True where a passage is left out for a query
    score_masks: functions of scores and both columns, on the device -> the same
    labels: function of a batch -> float32 [Q, 1 + N], what the loss compares its scores with; None: nothing
    """

    loss: Callable
    num_pairs: Callable | None = None
    masks: list = []
    score_masks: list = []
    labels: Callable | None = None


def open_objective(job, data):
    """The `Objective` of a train job. data: its `data.TrainingSet`"""
    training, module, masks, score_masks = job.settings.training, job.load("loss"), [], []
    for mask in training.masks:
        of_mask, own, given = job.load(f"masks.{mask.kind}"), mask.own, {}
        if whose := own.pop("scores", None):
            given["score"] = open_scores(job, whose, data).score
        if hasattr(of_mask, "mask_scores"):
            score_masks.append(partial(of_mask.mask_scores, **own))
        else:
            masks.append(partial(of_mask.mask, data=data, **given, **own))
    own, labels = training.loss.own, None
    if whose := own.pop("scores", None):
        labels = partial(scores_of_pairs, open_scores(job, whose, data).score)
    return Objective(partial(module.loss, **own), getattr(module, "num_pairs", None), masks, score_masks, labels)


def open_scores(job, whose, data):
    """What keeps the contract of `negatives.scores` for the pairs of the pool and the positives."""
    return PairTable.open(job, f"scores.{whose}", len(data.query_ids))


def scores_of_pairs(score, batch):
    """float32 [Q, 1 + N]: the scores of each query's positive, and then of its own negatives."""
    columns_QN = np.column_stack([batch.positive_columns_Q, batch.own_columns_QN])
    rows_QN = np.broadcast_to(batch.queries_Q[:, None], columns_QN.shape)
    return score(rows_QN.ravel(), batch.passages_P[columns_QN].ravel()).reshape(columns_QN.shape)
