"""The training queries of an episode with their positives and negatives, as batches of row numbers."""

from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq

from teleport.collection.reader import positives_of_job
from teleport.runtime.log import log
from teleport.training.sampling import negative_window, positive_place, query_order


@dataclass(frozen=True)
class Batch:
    """Row numbers of one step: Q queries, and for each in turn its positive and its N negatives, P = Q * (1 + N)."""

    queries_Q: np.ndarray
    passages_P: np.ndarray
    positive_columns_Q: np.ndarray

    def split(self, parts):
        """Consecutive `Batch`es with Q / parts queries each, and their passages; `parts` must divide Q."""
        queries, passages, columns = (
            np.split(a, parts) for a in (self.queries_Q, self.passages_P, self.positive_columns_Q)
        )
        starts = np.arange(parts) * len(passages[0])
        return [Batch(q, p, c - start) for q, p, c, start in zip(queries, passages, columns, starts, strict=True)]


@dataclass(frozen=True)
class Ragged:
    """Lists of different lengths in two flat arrays: list `row` is values[offsets[row] : offsets[row + 1]]."""

    offsets: np.ndarray
    values: np.ndarray

    def __getitem__(self, row):
        return self.values[self.offsets[row] : self.offsets[row + 1]]


class TrainingSet:
    """Batches of the queries that have negatives; the batch of a step is a pure function of (seed, step).

    `query_ids` are text ids, `positives` and `pools` are `Ragged` lists of passage rows, one list per query. Queries
    with an empty pool, or without a positive, are left out, counted and logged.
    """

    def __init__(self, query_ids, positives, pools, training, seed):
        self.query_ids, self.positives, self.pools = query_ids, positives, pools
        self.training, self.seed = training, seed
        with_negatives, with_positives = np.diff(pools.offsets) > 0, np.diff(positives.offsets) > 0
        self.rows = np.flatnonzero(with_negatives & with_positives)
        self.without_negatives = int(np.count_nonzero(~with_negatives))
        self.without_positives = int(np.count_nonzero(~with_positives))
        for what in ("negatives", "positives"):
            if number := getattr(self, f"without_{what}"):
                log.info("%d of %d training queries have no %s: left out", number, len(query_ids), what)

    def batch(self, step):
        """The `Batch` of step 0, 1, ...; the last incomplete batch of an epoch is dropped."""
        size = self.training.batch_queries
        epoch, place = divmod(step, len(self.rows) // size)
        order = query_order(len(self.rows), epoch, self.seed)
        queries_Q = self.rows[order[place * size : (place + 1) * size]]
        passages_P = np.concatenate([self.passages(row, epoch) for row in queries_Q])
        return Batch(queries_Q, passages_P, np.arange(size) * (1 + self.training.negatives_per_query))

    def passages(self, row, epoch):
        """The query's positive and negatives of an epoch: passage rows, int64 [1 + N]."""
        query_id, positives, pool = self.query_ids[row], self.positives[row], self.pools[row]
        place = positive_place(len(positives), epoch, self.seed, query_id, self.training.positive)
        window = negative_window(len(pool), self.training.negatives_per_query, epoch, self.seed, query_id)
        return np.concatenate([positives[[place]], pool[window]]).astype(np.int64)


def read_training_set(job, seed):
    """The `TrainingSet` of a train job, from its inputs `collection` and `negatives`."""
    queries = pq.read_table(job.input("collection", "queries.train.parquet"), columns=["query_id"])
    positives = Ragged(*positives_of_job(job, "train"))
    offsets = np.load(job.input("negatives", "offsets.npy"))
    pools = Ragged(offsets, np.load(job.input("negatives", "passages.npy"), mmap_mode="r"))
    return TrainingSet(queries["query_id"].to_pylist(), positives, pools, job.settings.training, seed)
