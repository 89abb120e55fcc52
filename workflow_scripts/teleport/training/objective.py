"""The objective of a training: the loss and the masks of its settings, as functions of a batch and its scores."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from teleport.arrays import CHUNK_OFFSETS
from teleport.negatives.scores import PairTable, require_informative
from teleport.refusal import Refusal
from teleport.training.seen import SCORES, VECTORS, look, names_seen, needed


class Teacher(NamedTuple):
    """A teacher's scores and vectors, for a loss or a mask. score: function (query rows, passage rows) → float32;
    queries, passages: vectors of the training queries and of all passages (numpy); each None if nothing needs it"""

    score: Callable | None = None
    queries: np.ndarray | None = None
    passages: np.ndarray | None = None


class Objective(NamedTuple):
    """Functions of a step. Shapes: Q queries, P passages of a batch, N own negatives of a query.

    loss: see `losses`, with its settings bound
    num_pairs: function (bool [Q, P] of what is not left out, both columns; all numpy) -> the number of pairs that the
    loss
        is a mean over; None if it is a mean over queries
    masks: functions of a `data.Batch` -> bool [Q, P], True where a passage is left out for a query
    score_masks: [(function of scores and both columns, on the device -> the same, its `sees`)]
    sees: function of a `seen.Step` -> {argument of the loss: value}
    """

    loss: Callable
    num_pairs: Callable | None = None
    masks: list = []
    score_masks: list = []
    sees: Callable = lambda step: {}


def open_objective(job, data, dim):
    """The `Objective` of a train job. data: its `data.TrainingSet`; dim: of the trained vectors"""
    training, module, masks, score_masks = job.settings.training, job.load("loss"), [], []
    for mask in training.masks:
        of_mask, own = job.load(f"masks.{mask.kind}"), mask.own
        if hasattr(of_mask, "mask_scores"):
            sees = open_sees(job, data, of_mask.mask_scores, own, dim)
            score_masks.append((partial(of_mask.mask_scores, **own), sees))
        else:
            seen = open_sees(job, data, of_mask.mask, own, dim)(None)
            masks.append(partial(of_mask.mask, data=data, **seen, **own))
    own = training.loss.own
    sees = open_sees(job, data, module.loss, own, dim, getattr(module, "require_scores", None))
    return Objective(partial(module.loss, **own), getattr(module, "num_pairs", None), masks, score_masks, sees)


def open_sees(job, data, function, own, dim, require_scores=None):
    """Return what a loss or a mask reads, as a function of a `seen.Step`. own: its settings, from which `scores` is
    removed; require_scores: of a loss that takes only some scores, function (name, float32 array, the other
    settings)"""
    whose, names, needs, given = own.pop("scores", None), names_seen(function), needed(function), {}
    if SCORES in needs:
        table = PairTable.open(job, f"scores.{whose}", len(data.query_ids))
        require_informative(table.scores, table.name)
        if require_scores:
            require_scores(table.name, table.scores, **own)
        given["score"] = table.score
    if VECTORS in needs:
        given |= open_vectors(job, whose, dim if "vectors" in names else None)
    return partial(look, names, Teacher(**given))


def open_vectors(job, whose, dim):
    """{"queries", "passages": numpy} of a teacher's vectors. Raises Refusal if they are not `dim` wide (None: any
    width)."""
    roles = f"vectors.{whose}.queries", f"vectors.{whose}.passages"
    paths = job.input(roles[0], "queries.train.npy"), job.input(roles[1], "passages.npy")
    queries, passages = (np.load(path, mmap_mode="r") for path in paths)
    if CHUNK_OFFSETS in job.inputs[roles[1]].manifest["files"]:
        raise Refusal(f"the teacher {whose} has several vectors of a passage. Set `chunks: 1` in its encoder.")
    if dim is not None and dim != passages.shape[1]:
        width = passages.shape[1]
        raise Refusal(
            f"the vectors of the teacher {whose} are {width} wide and those of the model {dim}, so they cannot be "
            f"compared. Set encoder.projection to {width}, or take another teacher."
        )
    return {"queries": queries, "passages": passages}
