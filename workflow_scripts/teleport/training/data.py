"""The queries of each step, by seed, step and the queries that can be trained on, and their positives and negatives, by
seed, step and query id; without state."""

from collections import deque
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain

import numpy as np
import pyarrow.parquet as pq

from teleport.arrays import Ragged, offsets_of
from teleport.reader import positives_of_job, read_positives, united, with_same_text
from teleport.refusal import Refusal
from teleport.running.log import log
from teleport.seed import derive_seed
from teleport.settings.section import rows_of_part
from teleport.settings.training import reads_judgments, rows_per_query
from teleport.training.clusters import clustered_order, read_clusters


@dataclass(frozen=True)
class Batch:
    """The rows of one step: Q queries, and for each in turn its positive and its N negatives, P = Q * (1 + N). With
    triples a query has N rows, each with one of its negatives, so N is 1 here. With `positive: all` it has one row per
    positive, and the positives come before its N negatives. positive_columns_Q, own_columns_QN: columns in `passages_P`
    of each row's positive and own negatives; starts: int64 [queries + 1, 2], the first row and the first passage of
    each query, and the ends; None if all queries have equally many"""

    queries_Q: np.ndarray
    passages_P: np.ndarray
    positive_columns_Q: np.ndarray
    own_columns_QN: np.ndarray
    starts: np.ndarray | None = None

    def split(self, size):
        """`size` consecutive `Batch`es with equally many queries each, and their passages; `size` must divide the
        queries."""
        starts = self.starts
        if starts is None:
            starts = np.outer(np.arange(size + 1), (len(self.queries_Q) // size, len(self.passages_P) // size))
        width = (len(starts) - 1) // size
        return [self.part(starts[n * width : (n + 1) * width + 1]) for n in range(size)]

    def part(self, starts):
        """The `Batch` of consecutive queries, by their `starts` and ends."""
        (first, first_passage), (last, last_passage) = starts[[0, -1]]
        rows, own = slice(first, last), None if self.starts is None else starts - starts[0]
        columns = (each[rows] - first_passage for each in (self.positive_columns_Q, self.own_columns_QN))
        return Batch(self.queries_Q[rows], self.passages_P[first_passage:last_passage], *columns, own)


class TrainingSet:
    """Batches of the queries that can be trained on; the batch of a step is a pure function of (seed, step).

    query_ids: text ids; positives, pools: `Ragged` lists of passage rows, one per query (pools None: a step has no own
    negatives); relevant: `Ragged` lists of more passages that are no negatives, or None; part: the
    `settings.section.Part` of the queries to train on, or None; clusters: int32, the cluster of each query, if a batch
    takes one cluster, or None. Queries with an empty pool, or without a positive, are left out.
    """

    def __init__(self, query_ids, positives, pools, training, seed, relevant=None, part=None, clusters=None):
        self.query_ids, self.positives, self.pools, self.relevant = query_ids, positives, pools, relevant
        self.training, self.seed, self.clusters = training, seed, clusters
        self.rows_per_query = rows_per_query(training)
        self.order = lru_cache(maxsize=2)(self.draw_order)  # by epoch
        first, last = rows_of_part(part, len(positives))
        with_positives = positives.lengths[first:last] > 0
        with_negatives = np.ones(last - first, bool) if pools is None else pools.lengths[first:last] > 0
        self.rows = first + np.flatnonzero(with_negatives & with_positives)
        self.without_negatives = int(np.count_nonzero(~with_negatives))
        self.without_positives = int(np.count_nonzero(~with_positives))
        if self.without_negatives:  # the pool's stage warns
            log.info("%d of %d training queries have no negatives: left out", self.without_negatives, last - first)
        if self.without_positives:
            log.warning("%d of %d training queries have no positives: left out", self.without_positives, last - first)

    @property
    def steps_per_epoch(self):
        """Batches of a pass over the queries; the last incomplete one is dropped."""
        return len(self.rows) * self.rows_per_query // self.training.batch_queries

    def queries(self, step):
        """(queries of the batch of step 0, 1, ...; the number of each row within its query: both int [Q]; the step's
        epoch)."""
        size = self.training.batch_queries
        epoch, step = divmod(step, self.steps_per_epoch)
        query_Q, row_Q = np.divmod(np.arange(step * size, (step + 1) * size), self.rows_per_query)
        return self.order(epoch)[query_Q], row_Q, epoch

    def draw_order(self, epoch):
        """The query rows of an epoch in the order of its batches, int64."""
        rows = self.rows[query_order(len(self.rows), epoch, self.seed)]
        if self.clusters is not None:
            seed = derive_seed(self.seed, "batches", epoch)
            return clustered_order(rows, self.clusters[rows], self.training.batch_queries, seed)
        if not self.training.distinct_positives:
            return rows
        drawn = partial(self.drawn_positives, epoch=epoch)
        return distinct_order(rows, drawn, self.known_positives, self.training.batch_queries)

    def batch(self, step):
        """The `Batch` of step 0, 1, ..."""
        queries_Q, row_Q, epoch = self.queries(step)
        if self.training.positive == "all":
            own = [self.passages(query, epoch) for query in queries_Q]
            return with_all_positives(queries_Q, own, self.training.negatives_per_query)
        passages = {query: self.passages(query, epoch) for query in dict.fromkeys(queries_Q)}
        if self.training.triples:
            rows = [passages[query][[0, 1 + row]] for query, row in zip(queries_Q, row_Q, strict=True)]
        else:
            rows = list(passages.values())
        passages_P = np.concatenate(rows)
        columns = np.arange(len(passages_P)).reshape(len(queries_Q), -1)
        return Batch(queries_Q, passages_P, columns[:, 0], columns[:, 1:])

    def passages(self, row, epoch):
        """The query's positive, or all of them, and its negatives in an epoch: passage rows, int64 [1 + N]."""
        num_negatives, negatives = self.training.negatives_per_query, ()
        if num_negatives:
            pool = self.pools[row]
            negatives = pool[negative_window(len(pool), num_negatives, epoch, self.seed, self.query_ids[row])]
        return np.array([*self.drawn_positives(row, epoch), *negatives], np.int64)

    def drawn_positives(self, row, epoch):
        """The positives of a query in an epoch: passage rows (list of int). One, or with `positive: all` up to
        training.max_positives; if there are more, each epoch takes the next ones."""
        positives, query_id = self.positives[row], self.query_ids[row]
        if self.training.positive != "all":
            return [int(positives[positive_index(len(positives), epoch, self.seed, query_id, self.training.positive)])]
        if len(positives) > (most := self.training.max_positives):
            first = positive_index(len(positives), epoch * most, self.seed, query_id, "rotate")
            positives = np.take(positives, np.arange(first, first + most), mode="wrap")
        return positives.tolist()

    def known_positives(self, row):
        """The passages that are no negatives of a query (rows, perhaps with repeats)."""
        return self.positives[row] if self.relevant is None else np.append(self.positives[row], self.relevant[row])


def with_all_positives(queries, passages, num_negatives):
    """The `Batch` in which each of some queries (int array) has a row for every positive. passages: for each query its
    positives and then its negatives (list of int64 [n + N])"""
    lengths = np.array([len(own) for own in passages])
    starts = np.column_stack([offsets_of(lengths - num_negatives), offsets_of(lengths)])
    number_Q = np.repeat(np.arange(len(queries)), lengths - num_negatives)  # of the query of each row
    first_Q = starts[number_Q, 1]  # passage of the query
    positive_columns_Q = first_Q + np.arange(len(number_Q)) - starts[number_Q, 0]
    ends_Q1 = starts[number_Q + 1, 1][:, None]
    own_columns_QN = ends_Q1 - num_negatives + np.arange(num_negatives)
    return Batch(queries[number_Q], np.concatenate(passages), positive_columns_Q, own_columns_QN, starts)


def other_positives(batch):
    """bool [Q, P]: which passages of a `Batch` are another positive of the row's query (`positive: all`), so neither
    its negative nor its positive."""
    masked_QP = np.zeros((len(batch.queries_Q), len(batch.passages_P)), bool)
    masked_QP[:, batch.positive_columns_Q] = batch.queries_Q[:, None] == batch.queries_Q
    masked_QP[np.arange(len(masked_QP)), batch.positive_columns_Q] = False
    return masked_QP


def distinct_order(order, drawn, known, size):
    """The queries of an epoch in whole batches of `size`, end to end (int64); in no batch does a query bring a known
    positive of another (training.distinct_positives). drawn, known: functions of a query: the positives that it brings
    (list of int), and all its positives (int array)

    A batch takes the first queries that go together, and the others wait for the next. If those that wait do not fill a
    batch, it takes some queries a second time, from the beginning, and as many are left out of this epoch.
    Sentence-transformers' NoDuplicatesBatchSampler works the same way, but compares texts instead of judgments.
    """
    waiting, batches = deque(order.tolist()), []
    for _ in range(len(order) // size):
        batch, passages, positives, passed, first = [], set(), set(), [], len(waiting)
        for turn, query in enumerate(chain((waiting.popleft() for _ in range(first)), order)):
            own = set(known(query).tolist())
            if positives.isdisjoint(drawn(query)) and passages.isdisjoint(own):
                batch.append(int(query))
                passages.update(drawn(query))
                positives.update(own)
            elif turn < first:
                passed.append(query)
            if len(batch) == size:
                break
        else:
            raise Refusal(
                f"training.distinct_positives: there is no batch of {size} queries in which none has the positive of "
                f"another, but one of {len(batch)}. Lower training.batch_queries, or set it to false."
            )
        waiting.extendleft(reversed(passed))
        batches += batch
    return np.array(batches, np.int64)


def query_order(num_queries, epoch, seed):
    """The order of the queries in an epoch: a seeded permutation, int64 [num_queries]."""
    return np.random.default_rng(derive_seed(seed, "order", epoch)).permutation(num_queries)


def negative_window(pool_size, num_negatives, epoch, seed, query_id):
    """Positions in a query's pool that epoch 0, 1, ... draws, int64 [num_negatives]. Released rule of ANCE-Tele and
    Tevatron: shuffle the pool once for all epochs and lay it out twice; each epoch takes the next `num_negatives`. A
    pool of fewer is drawn from with replacement. Here the shuffle derives from the query's id, in the released code
    from its row."""
    if pool_size < num_negatives:
        rng = np.random.default_rng(derive_seed(seed, "negatives", query_id, epoch))
        return rng.integers(pool_size, size=num_negatives)
    shuffled = np.random.default_rng(derive_seed(seed, "negatives", query_id)).permutation(pool_size)
    start = epoch * num_negatives % pool_size
    return shuffled.take(np.arange(start, start + num_negatives), mode="wrap")


def positive_index(num_positives, epoch, seed, query_id, rule):
    """Return which of a query's positives (in the order of the judgments) an epoch uses. `rotate`: the next one in
    every epoch, from a start that differs by query (released: MS MARCO); `first`: the first (released: NQ,
    TriviaQA)."""
    if rule == "first":
        return 0
    return (derive_seed(seed, "positive", query_id) + epoch) % num_positives


class QuerySet(TrainingSet):
    """Batches of queries alone, in the same order: a live search adds their passages once they are encoded."""

    def batch(self, step):
        """The `Batch` of step 0, 1, ..., without passages."""
        none = np.empty(0, np.int64)
        return Batch(self.queries(step)[0], none, none, none.reshape(0, 0))


def read_training_set(job, seed):
    """The `TrainingSet` of a train job, from its inputs `split.train`, `positives`, `negatives` and `clusters`; a
    `QuerySet` for a live search."""
    training, split = job.settings.training, job.inputs["split.train"]
    queries = pq.read_table(split.path("queries.train.parquet"), columns=["query_id"])
    positives, pools, relevant = positives_of_job(job, "train"), None, None
    if training.negatives_per_query:
        pools = Ragged.open(job.input("negatives", "offsets.npy"), job.input("negatives", "passages.npy"))
    if reads_judgments(job.settings, job.loads):
        relevant = read_positives(split, "train", job.settings.relevant_grade)
        if job.settings.same_text:
            relevant = with_same_text(job.inputs["corpus"], split, "train", united(relevant, positives))
    query_ids = queries["query_id"].to_pylist()
    kind = QuerySet if job.settings.live else TrainingSet
    clusters = read_clusters(job, seed) if training.clusters else None
    return kind(query_ids, positives, pools, training, seed, relevant, job.settings.part, clusters)
