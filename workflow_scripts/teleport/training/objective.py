"""The objective of a training: the loss and the masks of its settings, as functions of a batch and its scores."""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from teleport.arrays import Ragged, offsets_of, open_passages, places_of
from teleport.negatives.scores import PairTable, require_informative
from teleport.refusal import Refusal
from teleport.training.seen import JUDGMENTS, SCORES, VECTORS, look, names_seen, needed
from teleport.training.vectors import require_teacher

BLOCK_QUERIES = 4096  # whose pairs are looked up at once


class Teacher(NamedTuple):
    """A teacher's scores and vectors, for a loss or a mask. score: function (query rows, passage rows) → float32;
    queries, passages: vectors of the training queries and of all passages (numpy); each None if nothing needs it;
    offsets: int64 [passages + 1], where the vectors of each passage begin, None if it has one"""

    score: Callable | None = None
    queries: np.ndarray | None = None
    passages: np.ndarray | None = None
    offsets: np.ndarray | None = None


class Term(NamedTuple):
    """One loss of a step. Shapes: Q queries, P passages of a batch.

    loss: see `losses`, with its settings bound
    num_pairs: function (bool [Q, P] of what is not left out, both columns; all numpy) -> the number of pairs that the
        loss is a mean over; None if it is a mean over queries
    sees: function of a `seen.Step` -> {argument of the loss: value}
    weight: its factor in the sum
    """

    loss: Callable
    num_pairs: Callable | None = None
    sees: Callable = lambda step: {}
    weight: float = 1.0


class Objective(NamedTuple):
    """Functions of a step. Shapes: Q queries, P passages of a batch.

    terms: the `Term`s whose weighted sum is minimised (list)
    masks: functions of a `data.Batch` -> bool [Q, P], True where a passage is left out for a query
    score_masks: [(function of scores and both columns, on the device -> the same, its `sees`)]
    """

    terms: list
    masks: list = []
    score_masks: list = []


def open_objective(job, data, side):
    """The `Objective` of a train job. data: its `data.TrainingSet`; side: of the passages"""
    training, masks, score_masks = job.settings.training, [], []
    tables = cache(partial(open_table, job, data))
    for mask in training.masks:
        of_mask, (whose, own) = job.load(f"masks.{mask.kind}"), split_scores(mask)
        if hasattr(of_mask, "mask_scores"):
            sees = open_sees(job, tables, of_mask.mask_scores, whose, side)
            score_masks.append((partial(of_mask.mask_scores, **own), sees))
        else:
            seen = open_sees(job, tables, of_mask.mask, whose, side)(None)
            masks.append(partial(of_mask.mask, data=data, **seen, **own))
    return Objective([open_term(job, tables, side, loss) for loss in training.losses], masks, score_masks)


def open_term(job, tables, side, loss):
    """The `Term` of a loss (`section.Weighted`) of a train job. tables: see `open_sees`"""
    module, (whose, own) = job.load(f"losses.{loss.kind}"), split_scores(loss)
    require = getattr(module, "require_scores", None)
    sees = open_sees(job, tables, module.loss, whose, side, require and partial(require, **own))
    return Term(partial(module.loss, **own), getattr(module, "num_pairs", None), sees, loss.weight)


def split_scores(chosen):
    """(whose scores a loss or a mask reads, None if it reads none; its other settings)."""
    own = chosen.own
    return own.get("scores"), {key: value for key, value in own.items() if key != "scores"}


def open_sees(job, tables, function, whose, side, require_scores=None):
    """Return what a loss or a mask reads, as a function of a `seen.Step`. tables: function (judge) -> its `PairTable`;
    whose: scores; require_scores: of a loss that takes only some scores, function (name, float32 array)"""
    names, needs, given = names_seen(function), needed(function), {}
    if SCORES in needs:
        table = tables(whose)
        if require_scores:
            require_scores(table.name, table.scores)
        given["score"] = partial(grades_of, table) if whose == JUDGMENTS else table.score
    if VECTORS in needs:
        given |= open_vectors(job, whose, side if "vectors" in names else None)
    return partial(look, names, Teacher(**given))


def open_table(job, data, whose):
    """The `PairTable` of a judge. Raises Refusal if all scores are equal, or a pair that is trained on has none."""
    grades, number = whose == JUDGMENTS, len(data.query_ids)
    table = read_grades(job, number) if grades else PairTable.open(job, f"scores.{whose}")
    require_informative(table.scores, table.name)
    if not grades:
        require_pairs(table, data)
    return table


def require_pairs(table, data):
    """Raise Refusal if a `PairTable` lacks a query that is trained on with a positive that an epoch may take, or with a
    negative of its pool: its batch may come after hours. data: `data.TrainingSet`"""
    positives = data.positives
    if data.training.positive == "first":
        firsts = positives.values[positives.offsets[data.rows]]
        positives = Ragged.grouped(data.rows, firsts, len(positives))
    for rows in np.split(data.rows, range(BLOCK_QUERIES, len(data.rows), BLOCK_QUERIES)):
        for lists in (positives, data.pools) if data.pools is not None else (positives,):
            table.score(rows.repeat(lists.lengths[rows]), lists.values[places_of(lists.offsets, rows)])


def read_grades(job, num_queries):
    """The `PairTable` of the judged pairs of the training queries: their grades divided by the highest one; a grade
    below 0 is 0. Raises Refusal if all grades are the same."""
    columns = ["query", "passage", "grade"]
    qrels = pq.read_table(job.input("split.train", "qrels.train.parquet"), columns=columns)
    rows, passages, grades = (qrels[name].to_numpy() for name in columns)
    grades = np.maximum(grades, 0)
    if len(np.unique(grades)) < 2:
        raise Refusal(
            f"training.loss learns from the grades of judgments (`scores: {JUDGMENTS}`), and all {len(grades):,} "
            "judgments of the training queries have the same one. Give graded judgments, or name a teacher."
        )
    order = np.lexsort((passages, rows))
    offsets = offsets_of(np.bincount(rows, minlength=num_queries))
    return PairTable(JUDGMENTS, offsets, passages[order], (grades[order] / grades.max()).astype(np.float32))


def grades_of(table, rows, passages):
    """float32 [n]: the grades of pairs (int arrays [n]) in the `PairTable` of `read_grades`; 0 if not judged."""
    return np.nan_to_num(table.score(rows, passages, partial=True))


def open_vectors(job, whose, side=None):
    """{"queries", "passages", "offsets": numpy} of a teacher's vectors. side: of the model's passages, with whose
    vectors they are compared, or None. Raises Refusal if widths or chunks differ, or by `require_teacher`."""
    queries = np.load(job.input(f"vectors.{whose}.queries", "queries.train.npy"), mmap_mode="r")
    passages, offsets = open_passages(job, f"vectors.{whose}.passages")
    if side and (dim := side.encoder.dim) != (width := passages.shape[1]):
        raise Refusal(
            f"the vectors of the teacher {whose} are {width} wide and those of the model {dim}, so they cannot be "
            f"compared. Set encoder.projection to {width}, or take another teacher."
        )
    if side and not np.array_equal(offsets, side.offsets):
        raise Refusal(
            f"the teacher {whose} cuts passages into other chunks than the model, so their vectors cannot be compared. "
            "Set `chunks: 1` in both encoders, or take a teacher with the same tokenizer."
        )
    require_teacher(job, whose)
    return {"queries": queries, "passages": passages, "offsets": offsets}
