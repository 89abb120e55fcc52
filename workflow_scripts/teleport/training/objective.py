"""What a training minimises: the loss and the masks of its settings, as functions of a batch and its scores."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple


class Objective(NamedTuple):
    """loss: see `losses`, without settings of its own; num_pairs: function (bool [Q, P] of what is not left out, both
    columns; all numpy) -> of how many pairs the loss is the mean, or None: it is one over queries; masks: functions of
    a `data.Batch`, score_masks: of scores and both columns, on the device, both -> bool [Q, P], True where a passage is
    left out for a query; labels: function of a batch, what the loss gets as `labels`, or None"""

    loss: Callable
    num_pairs: Callable | None = None
    masks: list = []
    score_masks: list = []
    labels: Callable | None = None


def open_objective(job, data):
    """The `Objective` of a train job. data: its `data.TrainingSet`"""
    training, loss, masks, score_masks = job.settings.training, job.load("loss"), [], []
    for mask in training.masks:
        module = job.load(name := f"masks.{mask.kind}")
        if hasattr(module, "mask_scores"):
            score_masks.append(partial(module.mask_scores, **mask.own))
        else:
            masks.append(partial(masked, partial(module.mask, **mask.own), open_labels(job, name, data), data))
    function, num_pairs = partial(loss.loss, **training.loss.own), getattr(loss, "num_pairs", None)
    return Objective(function, num_pairs, masks, score_masks, open_labels(job, "loss", data))


def open_labels(job, name, data):
    """Function of a batch, what a stage says of its pairs: of the loss or mask `name`; None of one that reads none."""
    return job.load(name).open_labels(job, data) if name in job.inputs else None


def masked(mask, labels, data, batch):
    """What a mask leaves out of a batch."""
    return mask(batch, data, labels=labels(batch)) if labels else mask(batch, data)
