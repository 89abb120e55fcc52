"""Exact scores of proposed passages, and the order of the best: what makes a search depend on the vectors alone."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from teleport.runtime.vectors import as_stored

PAIRS = 256  # (query, passage) pairs at a time: with fewer, threads wait for each other in the interpreter
ID_BITS = 32
NO_RANK, NO_KEY = np.iinfo(np.int32).max, np.iinfo(np.int64).max  # after every passage


def ranks_of(scores):
    """int32 numbers that rise as float32 scores fall: the bits of a float, mirrored."""
    bits = (scores + np.float32(0)).view(np.int32)  # adding 0 makes -0 equal to 0
    return ~np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)


def scores_of_ranks(ranks):
    """The float32 scores of `ranks_of`; -inf for `NO_RANK`."""
    bits = np.where(ranks < 0, ~ranks, ~ranks ^ np.int32(0x7FFFFFFF))
    return np.where(ranks == NO_RANK, np.float32(-np.inf), bits.view(np.float32))


def keys_of(scores, ids):
    """int64 keys whose ascending order is that of falling float32 scores, equal ones by the smaller passage number.

    Sorting one array of integers was 5 times as fast as sorting indices by two keys.
    """
    return ranks_of(scores).astype(np.int64) << ID_BITS | ids


def scores_of(keys):
    """The float32 scores of `keys_of`; -inf for `NO_KEY`."""
    return scores_of_ranks((keys >> ID_BITS).astype(np.int32))


def ids_of(keys):
    """The passage numbers of `keys_of`, int64."""
    return keys & (2**ID_BITS - 1)


def best(scores_QC, ids_QC, depth):
    """The `depth` best of the candidates, ties by the smaller number: (ids int32, scores float32), [Q, depth]."""
    keys_QC = keys_of(scores_QC, ids_QC)
    keys_QC.sort(axis=1)
    return ids_of(keys_QC[:, :depth]).astype(np.int32), scores_of(keys_QC[:, :depth])


def rescore(vectors, queries_QD, proposed_QC, ids_QC, depth, errors_Q, threads):
    """Exact scores of all candidates that can be among the best: float64 sums rounded to float32, else -inf; [Q, C].

    proposed_QC: approximate scores, best first (-inf: no candidate); errors_Q: their largest error per query
    The lowest exact score of the first `depth` candidates is a lower bound of the last rank's: a candidate whose
    approximate score plus its error is below it has no place among the best.
    """
    scores_QC = np.full(ids_QC.shape, -np.inf, np.float32)

    def score_rows(rows):
        scorer = Scorer(vectors)
        for row in rows:
            query, ids, scores = queries_QD[row].astype(np.float64), ids_QC[row], scores_QC[row]
            scorer.score(query, ids[:depth], scores[:depth])
            possible = np.count_nonzero(proposed_QC[row] >= scores[:depth].min() - errors_Q[row])
            scorer.score(query, ids[depth:possible], scores[depth:possible])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(score_rows, np.array_split(np.arange(len(queries_QD)), threads)))
    return scores_QC


class Scorer:
    """Inner products of one query with passages, in buffers that are made once."""

    def __init__(self, vectors):
        self.vectors = as_stored(vectors)
        self.single = np.empty((PAIRS, vectors.shape[1]), self.vectors.dtype)
        self.double = np.empty((PAIRS, vectors.shape[1]), np.float64)

    def score(self, query, ids, out):
        """Write to `out` (float32) the products of `query` (float64) with the passages `ids`."""
        for start in range(0, len(ids), PAIRS):
            part = ids[start : start + PAIRS]
            single, double = self.single[: len(part)], self.double[: len(part)]
            self.vectors.take(part, axis=0, out=single, mode="clip")  # other modes copy the result once more
            np.copyto(double, single)
            out[start : start + PAIRS] = np.vecdot(double, query)
