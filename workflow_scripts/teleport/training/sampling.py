"""Which queries, positives and negatives a step sees: pure functions of seed, query id and epoch, without any state."""

from collections import deque
from functools import lru_cache

import numpy as np

from teleport.runtime.seed import derive_seed


@lru_cache(maxsize=2)
def query_order(num_queries, epoch, seed):
    """The order of the queries in an epoch: a seeded permutation, int64 [num_queries]."""
    return np.random.default_rng(derive_seed(seed, "order", epoch)).permutation(num_queries)


def negative_window(pool_size, num_negatives, epoch, seed, query_id):
    """Places in a query's pool that epoch 0, 1, ... draws, int64 [num_negatives].

    Released rule of ANCE-Tele (and of Tevatron): the pool in one shuffled order, the same in all epochs, laid out
    twice; an epoch takes the next `num_negatives` of it. So nothing repeats before the pool is used up. A pool smaller
    than `num_negatives` is drawn from with replacement. The shuffle derives from the query's id, where the released
    code has its row number, which depends on the order in which files are listed.
    """
    if pool_size < num_negatives:
        rng = np.random.default_rng(derive_seed(seed, "negatives", query_id, epoch))
        return rng.integers(pool_size, size=num_negatives)
    shuffled = np.random.default_rng(derive_seed(seed, "negatives", query_id)).permutation(pool_size)
    start = epoch * num_negatives % pool_size
    return np.concatenate([shuffled, shuffled])[start : start + num_negatives]


def positive_place(num_positives, epoch, seed, query_id, rule):
    """Which of a query's positives (in the order of the judgments) an epoch uses.

    `rotate`: the next one in every epoch, from a start that differs by query (released: MS MARCO). `first`: always
    the first (released: NQ, TriviaQA).
    """
    if rule == "first":
        return 0
    return (derive_seed(seed, "positive", query_id) + epoch) % num_positives


class DistinctBatch:
    """Queries of which none brings a passage into the batch that is known as a positive of another one.

    drawn, known: functions of a query: the positive that it brings (int), and all its positives (int array)
    """

    def __init__(self, drawn, known):
        self.drawn, self.known, self.queries, self.passages, self.positives = drawn, known, [], set(), set()

    def add(self, query):
        """Take a query where it goes with those that are there; returns whether it does."""
        drawn, known = self.drawn(query), set(self.known(query).tolist())
        if drawn in self.positives or not self.passages.isdisjoint(known):
            return False
        self.queries.append(query)
        self.passages.add(drawn)
        self.positives |= known
        return True


def distinct_order(order, drawn, known, size):
    """The queries of an epoch in batches of `size` that are each a `DistinctBatch`, end to end (int64).

    order: those of the epoch (int); as many whole batches are made of them. A batch takes the first ones that go
    together, and the others wait for the next. When those that wait do not fill a batch, it takes some a second time,
    from the beginning, and as many are left out of this epoch. Sentence-transformers' NoDuplicatesBatchSampler is of
    this kind and compares texts, where this has judgments. Raises ValueError when there is no such batch.
    """
    waiting, made = deque(order.tolist()), []
    for _ in range(len(order) // size):
        batch, passed = DistinctBatch(drawn, known), []
        while waiting and len(batch.queries) < size:
            if not batch.add(waiting[0]):
                passed.append(waiting[0])
            waiting.popleft()
        for query in order.tolist() if len(batch.queries) < size else ():
            if len(batch.queries) < size:
                batch.add(query)
        if len(batch.queries) < size:
            raise ValueError(
                f"training.distinct_positives: no batch of {size} queries was found in which none has the positive of "
                f"another, but one of {len(batch.queries)}. Lower training.batch_queries, or set it to false."
            )
        waiting.extendleft(reversed(passed))
        made += batch.queries
    return np.array(made, np.int64)
