"""Which queries, positives and negatives a step sees: pure functions of seed, query id and epoch, without any state."""

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
