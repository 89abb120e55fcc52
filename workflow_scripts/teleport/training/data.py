"""The training queries of an episode with their positives and negatives, as batches of row numbers."""

from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import pyarrow.parquet as pq

from teleport.collection.reader import positives_of_job, read_positives
from teleport.runtime.arrays import Ragged
from teleport.runtime.log import log
from teleport.training.sampling import distinct_order, negative_window, positive_place, query_order


@dataclass(frozen=True)
class Batch:
    """Row numbers of one step: Q queries, and for each in turn its positive and its N negatives, P = Q * (1 + N).

    With triples a query comes N times, with one of its negatives each: then N is 1 here.

    positive_columns_Q, own_columns_QN: where in `passages_P` each query's positive and its own negatives are
    """

    queries_Q: np.ndarray
    passages_P: np.ndarray
    positive_columns_Q: np.ndarray
    own_columns_QN: np.ndarray

    def split(self, parts):
        """Consecutive `Batch`es with Q / parts queries each, and their passages; `parts` must divide Q."""
        queries, passages, positives, own = (
            np.split(a, parts) for a in (self.queries_Q, self.passages_P, self.positive_columns_Q, self.own_columns_QN)
        )
        starts = np.arange(parts) * len(passages[0])
        split = zip(queries, passages, positives, own, starts, strict=True)
        return [Batch(q, p, c - start, n - start) for q, p, c, n, start in split]


class TrainingSet:
    """Batches of the queries that can be trained on; the batch of a step is a pure function of (seed, step).

    query_ids: text ids; positives, pools: `Ragged` lists of passage rows, one list per query; pools: None when a step
    has no negatives of its own; relevant: `Ragged` lists of more passages that are no negatives, or None; part: the
    `settings.section.Part` of the queries that is trained on, or None for all.
    Queries with an empty pool, or without a positive, are left out, counted and logged.

    A trainer asks for `batch`, and for `known_positives` where it masks them.
    """

    def __init__(self, query_ids, positives, pools, training, seed, relevant=None, part=None):
        self.query_ids, self.positives, self.pools, self.relevant = query_ids, positives, pools, relevant
        self.training, self.seed = training, seed
        self.order = lru_cache(maxsize=2)(self.find_order)  # by epoch
        first, last = part.rows(len(positives)) if part else (0, len(positives))
        with_positives = positives.lengths[first:last] > 0
        with_negatives = np.ones(last - first, bool) if pools is None else pools.lengths[first:last] > 0
        self.rows = first + np.flatnonzero(with_negatives & with_positives)
        self.without_negatives = int(np.count_nonzero(~with_negatives))
        self.without_positives = int(np.count_nonzero(~with_positives))
        for what in ("negatives", "positives"):
            if number := getattr(self, f"without_{what}"):
                log.info("%d of %d training queries have no %s: left out", number, last - first, what)

    @property
    def copies(self):
        """How many rows of a batch a query makes: one, or with triples one for each of its negatives."""
        return self.training.negatives_per_query if self.training.triples else 1

    @property
    def steps_per_epoch(self):
        """Batches of a pass over the queries; the last incomplete one is dropped."""
        return len(self.rows) * self.copies // self.training.batch_queries

    def queries(self, step):
        """(query rows of the batch of step 0, 1, ...; which of its query's copies each row is, int [Q]; its epoch)."""
        size = self.training.batch_queries
        epoch, place = divmod(step, self.steps_per_epoch)
        query_Q, copy_Q = np.divmod(np.arange(place * size, (place + 1) * size), self.copies)
        return self.order(epoch)[query_Q], copy_Q, epoch

    def find_order(self, epoch):
        """The query rows of an epoch in the order in which batches take them, int64."""
        rows = self.rows[query_order(len(self.rows), epoch, self.seed)]
        if not self.training.distinct_positives:
            return rows
        drawn = partial(self.positive, epoch=epoch)
        return distinct_order(rows, drawn, self.known_positives, self.training.batch_queries)

    def batch(self, step):
        """The `Batch` of step 0, 1, ..."""
        queries_Q, copy_Q, epoch = self.queries(step)
        found = {row: self.passages(row, epoch) for row in dict.fromkeys(queries_Q)}
        if self.training.triples:
            passages = [found[row][[0, 1 + copy]] for row, copy in zip(queries_Q, copy_Q, strict=True)]
        else:
            passages = list(found.values())
        passages_P = np.concatenate(passages)
        columns = np.arange(len(passages_P)).reshape(len(queries_Q), -1)
        return Batch(queries_Q, passages_P, columns[:, 0], columns[:, 1:])

    def passages(self, row, epoch):
        """The query's positive and negatives of an epoch: passage rows, int64 [1 + N]."""
        number, negatives = self.training.negatives_per_query, ()
        if number:
            pool = self.pools[row]
            negatives = pool[negative_window(len(pool), number, epoch, self.seed, self.query_ids[row])]
        return np.array([self.positive(row, epoch), *negatives], np.int64)

    def positive(self, row, epoch):
        """The positive that a query has in an epoch: a passage row (int)."""
        positives = self.positives[row]
        place = positive_place(len(positives), epoch, self.seed, self.query_ids[row], self.training.positive)
        return int(positives[place])

    def known_positives(self, row):
        """The passages that are no negatives of a query (rows, some maybe twice)."""
        return self.positives[row] if self.relevant is None else np.append(self.positives[row], self.relevant[row])


class QuerySet(TrainingSet):
    """Batches of queries alone, in the same order: their passages are found when the step has encoded them."""

    def batch(self, step):
        """The `Batch` of step 0, 1, ..., without passages."""
        queries_Q, _, _ = self.queries(step)
        none = np.empty(0, np.int64)
        return Batch(queries_Q, none, none, none.reshape(0, 0))


def read_training_set(job, seed):
    """The `TrainingSet` of a train job, from its inputs `collection`, `positives` (optional) and `negatives`.

    Without negatives of its own, a step has those of the batch alone, and every query with a positive is trained on.
    With live search it is a `QuerySet`.
    """
    training, collection = job.settings.training, job.inputs["collection"]
    queries = pq.read_table(collection.path("queries.train.parquet"), columns=["query_id"])
    pools = relevant = None
    if training.negatives_per_query:
        pools = Ragged.open(job.input("negatives", "offsets.npy"), job.input("negatives", "passages.npy"))
    if training.mask_false_negatives or training.distinct_positives or job.settings.live:
        relevant = read_positives(collection, "train", job.settings.relevant_grade)
    query_ids = queries["query_id"].to_pylist()
    positives, kind = positives_of_job(job, "train"), QuerySet if job.settings.live else TrainingSet
    return kind(query_ids, positives, pools, training, seed, relevant, job.settings.part)
