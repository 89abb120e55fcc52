"""Exact scores of candidates and of given pairs, float64 sums rounded to float32, and their order: what makes a search
depend on the vectors alone."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from teleport.arrays import offsets_of, open_passages, places_of
from teleport.maxp import max_over_chunks
from teleport.refusal import Refusal

BLOCK = 65536  # vectors looked at at a time
PAIRS = 256  # (query, passage) pairs at a time: with fewer, threads wait for each other in the interpreter
ID_BITS = 32
NO_RANK, NO_KEY = np.iinfo(np.int32).max, np.iinfo(np.int64).max  # after every passage


def require_finite(path, vectors, what, progress=lambda *_: None):
    """Refuse the first row of vectors [n, dim], read block by block, with a number that is not finite. progress: is
    told how many were read, of how many, and what they are"""
    for start in range(0, len(vectors), BLOCK):
        finite = np.isfinite(vectors[start : start + BLOCK]).all(axis=1)
        if not finite.all():
            raise Refusal(
                f"{path}: the vector of {what} row {start + int(np.argmin(finite))} is not finite. The checkpoint that "
                "made it is broken: train with a lower learning rate, or with precision fp32."
            )
        progress(start + len(finite), len(vectors), "vectors")


def ranks_of(scores):
    """int32 numbers that rise as float32 scores fall: the bits of a float, mirrored."""
    bits = (scores + np.float32(0)).view(np.int32)  # adding 0 makes -0 equal to 0
    return ~np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)


def scores_of_ranks(ranks):
    """The float32 scores of `ranks_of`; -inf for `NO_RANK`."""
    bits = np.where(ranks < 0, ~ranks, ~ranks ^ np.int32(0x7FFFFFFF))
    return np.where(ranks == NO_RANK, np.float32(-np.inf), bits.view(np.float32))


def keys_of(scores, ids):
    """int64 keys whose ascending order is that of falling float32 scores, equal ones by the smaller passage number."""
    return ranks_of(scores).astype(np.int64) << ID_BITS | ids


def scores_of(keys):
    """The float32 scores of `keys_of`; -inf for `NO_KEY`."""
    return scores_of_ranks((keys >> ID_BITS).astype(np.int32))


def ids_of(keys):
    """The passage numbers of `keys_of`, int64."""
    return keys & (2**ID_BITS - 1)


def stable_topk(scores_QM, ids_QM, depth):
    """The `depth` highest scores, equal ones by the smaller number: (ids int32, scores float32), [Q, depth]."""
    keys_QM = keys_of(scores_QM, ids_QM)
    keys_QM.sort(axis=1)
    return ids_of(keys_QM[:, :depth]).astype(np.int32), scores_of(keys_QM[:, :depth])


def rescore(vectors, queries_QD, proposed_QM, ids_QM, depth, errors_Q, threads):
    """Exact scores of all candidates that can be among the first `depth`, else -inf: float64 sums as float32 [Q, M].

    proposed_QM: approximate scores, highest first (-inf: no candidate); errors_Q: their largest error per query. The
    lowest exact score of the first `depth` candidates bounds the last rank's from below: what does not reach it even
    with its error is not in the list.
    """
    scores_QM = np.full(ids_QM.shape, -np.inf, np.float32)

    def score_rows(rows):
        scorer = Scorer(vectors)
        for row in rows:
            query, ids, scores = queries_QD[row].astype(np.float64), ids_QM[row], scores_QM[row]
            real = np.count_nonzero(proposed_QM[row] > -np.inf)  # candidates, maybe fewer than the depth
            scorer.score(query, ids[: min(depth, real)], scores[: min(depth, real)])
            if real > depth:
                possible = np.count_nonzero(proposed_QM[row] >= scores[:depth].min() - errors_Q[row])
                scorer.score(query, ids[depth:possible], scores[depth:possible])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(score_rows, np.array_split(np.arange(len(queries_QD)), threads)))
    return scores_QM


class Scorer:
    """Inner products of queries with rows of `vectors` (float32 or float16; an array, a memory map, or
    `approximate.Decoded`), in buffers that are made once."""

    def __init__(self, vectors):
        # A memory map's own class takes longer.
        self.vectors = vectors.view(np.ndarray) if isinstance(vectors, np.memmap) else vectors
        self.stored = np.empty((PAIRS, vectors.shape[1]), vectors.dtype)
        self.double = np.empty((PAIRS, vectors.shape[1]), np.float64)

    def score(self, query, ids, out):
        """Write products to `out` (float32): of `query` (float64 [D], or one for each of up to `PAIRS`) with `ids`."""
        for start in range(0, len(ids), PAIRS):
            part = ids[start : start + PAIRS]
            stored, double = self.stored[: len(part)], self.double[: len(part)]
            self.vectors.take(part, axis=0, out=stored, mode="clip")  # other modes copy the result once more
            np.copyto(double, stored)
            out[start : start + PAIRS] = np.vecdot(double, query)


class PairScorer:
    """Scores under a checkpoint; of passages in several chunks those of the best chunk (ANCE, MaxP). queries: float32
    [num_queries, dim]; vectors, offsets: as `open_passages` gives them"""

    def __init__(self, queries, vectors, offsets):
        self.queries, self.vectors, self.offsets, self.scorer = queries, vectors, offsets, Scorer(vectors)

    @classmethod
    def of_job(cls, job, split):
        """Of the queries of `split` and the passages of a job. Raises Refusal for a query vector that is not finite."""
        path = job.input("queries", f"queries.{split}.npy")
        queries = np.load(path, mmap_mode="r")
        require_finite(path, queries, "query")
        return cls(queries, *open_passages(job))

    def __len__(self):
        return len(self.vectors) if self.offsets is None else len(self.offsets) - 1

    def score(self, rows, passages):
        """float32 [n]: scores of passages (int [n]) with the queries of `rows` (int [n], or one int for all)."""
        rows, offsets = np.broadcast_to(rows, np.shape(passages)), None
        if self.offsets is not None:
            lengths = self.offsets[passages + 1] - self.offsets[passages]
            passages, offsets = places_of(self.offsets, passages), offsets_of(lengths)
            rows = np.repeat(rows, lengths)
        scores = np.empty(len(passages), np.float32)
        for start in range(0, len(passages), PAIRS):
            part = slice(start, start + PAIRS)
            self.scorer.score(self.queries[rows[part]].astype(np.float64), passages[part], scores[part])
        return scores if offsets is None else max_over_chunks(scores, offsets)
