"""Exact search by inner product, in which equal scores are ranked by the smaller passage number.

The last bits of a matrix product depend on the library, the device, the number format, the shape of the block and the
position in it, so its ties and near-ties have no order of their own. Therefore the product only proposes candidates,
more than asked for. Those that can be in the list are scored again in float64, each pair by itself, rounded to float32,
and sorted by (score, passage number). Whether a passage that was not proposed could be in the list follows from the
bound on the error of the product; where it could, more are proposed. So the result depends on the vectors alone: the
number format of the product is a matter of speed, no setting, and decides no key.

A bound for all passages is only as good as that of the worst of them. Therefore an engine leaves out of it the few
that are far worse than the rest, its outliers: these are scored exactly for every query, proposed or not.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from teleport.refusal import Refusal
from teleport.search.exact import rescore, stable_topk

MARGIN = 32  # proposed beyond the depth: enough unless dozens of passages tie at the last rank
GROWTH = 8  # factor on the proposals for a query whose last rank is not settled
CANDIDATES = 2**25  # (query, candidate) pairs in memory at a time: 0.7 GB of numbers, scores and keys
BLOCK = 16384  # vectors read at a time
OUTLIERS, OUTLYING = 64, 1.5  # at most so many passages, with so many times the measure of those after them
ROUNDING = 2.0**-24  # largest relative error of a float32 operation that rounds to nearest
# Tensor cores cut instead. Products of fp16 numbers are exact in float32; k of them and the running sum are aligned to
# the largest, cut 23 or more bits below its leading bit, added, and cut again (Fasi, Higham, Mikaitis and Pranesh,
# Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 2021). That is at most k + 2 errors of 2^-23 for k
# products, with k >= 4 up to 1.5 for each; `product_errors` has 2.
TRUNCATION = 2.0**-23


def norms_of(vectors, block=BLOCK):
    """The Euclidean norms of the rows of an array [n, dim], read block by block: float32 [n]."""
    squares_P = np.empty(len(vectors), np.float32)
    for start in range(0, len(vectors), block):
        block_PD = np.asarray(vectors[start : start + block], np.float32)
        squares_P[start : start + block] = np.vecdot(block_PD, block_PD)
    return np.sqrt(squares_P)


def outliers_by(measures_P):
    """Numbers (int64, ascending) of at most `OUTLIERS` passages whose measure is far above that of all others."""
    rank = max(0, len(measures_P) - 1 - OUTLIERS)
    return np.flatnonzero(measures_P > OUTLYING * np.partition(measures_P, rank)[rank])


def product_errors(norms_Q, dim, max_norm, unit=ROUNDING):
    """Largest error of float32 inner products of queries `norms_Q` long with vectors up to `max_norm` long: [Q].

    Each of `dim` products and sums is off by at most unit x |q| |p| (Higham, Accuracy and Stability of Numerical
    Algorithms, §3.1); twice that covers the rest of a step (see `TRUNCATION`) and the final rounding.
    """
    return 2 * dim * unit * max_norm * norms_Q


class FaissFlat:
    """Candidates by faiss: float32 products with BLAS, block by block, of which it keeps the highest.

    vectors: float32 [n, dim], an array or a memory map, which is read once per 4,096 queries; or float16
    """

    overlaps, step = False, CANDIDATES

    def __init__(self, vectors, threads):
        import faiss

        self.faiss, self.vectors, self.threads = faiss, vectors, threads
        norms_P = norms_of(vectors)
        self.outliers = outliers_by(norms_P)
        self.max_norm = float(np.delete(norms_P, self.outliers).max())

    def errors(self, queries_QD):
        """The largest error of a score proposed for a passage that is no outlier, float64 [Q]."""
        norms_Q = np.linalg.norm(queries_QD.astype(np.float64), axis=1)
        return product_errors(norms_Q, queries_QD.shape[1], self.max_norm)

    def first_count(self, depth):
        """How many candidates to propose at first."""
        return depth + MARGIN

    def propose(self, queries_QD, depth, count, errors_Q):
        """(scores [Q, count] highest first, passages int64 [Q, count], upper bound on all other scores [Q])."""
        self.faiss.omp_set_num_threads(self.threads)  # it holds for the thread that calls
        result = self.faiss.ResultHeap(len(queries_QD), count, keep_max=True)
        step = len(self.vectors) if self.vectors.dtype == np.float32 else BLOCK  # others are converted by block
        for start in range(0, len(self.vectors), step):
            block_PD = np.asarray(self.vectors[start : start + step], np.float32)
            width, metric = min(count, len(block_PD)), self.faiss.METRIC_INNER_PRODUCT
            scores_QM, rows_QM = self.faiss.knn(queries_QD, block_PD, width, metric=metric)
            result.add_result(scores_QM, rows_QM + start)
        result.finalize()
        return result.D, result.I, result.D[:, -1].astype(np.float64)


def require_depth(depth, total):
    """Raise Refusal when there are fewer passages than are asked for."""
    if depth > total:
        raise Refusal(
            f"depth {depth} is more than the collection's {total} passages: lower mining.depth or evaluation.depth."
        )


def search(index, queries_QD, depth):
    """The `depth` passages of largest inner product, ties by the smaller number, for each query.

    index: FaissFlat, Int8Flat or TorchFlat; queries_QD: float32, finite
    returns: (ids int32, scores float32), both [Q, depth], highest first. Raises Refusal when there are fewer passages.
    Candidates are proposed for at most `index.step` queries at a time. Where the index computes on a device
    (`index.overlaps`), the host scores those of one step while the next step is proposed.
    """
    total = len(index.vectors)
    require_depth(depth, total)
    ids_QK = np.empty((len(queries_QD), depth), np.int32)
    scores_QK = np.empty((len(queries_QD), depth), np.float32)

    def proposals(steps, count):
        for rows in steps:
            errors_Q = index.errors(queries_QD[rows])
            yield errors_Q, *index.propose(queries_QD[rows], depth, count, errors_Q)

    unsettled, count = np.arange(len(queries_QD)), min(index.first_count(depth), total)
    while len(unsettled):
        step, remaining = max(1, min(index.step, CANDIDATES // count)), []
        steps = [unsettled[start : start + step] for start in range(0, len(unsettled), step)]
        proposed = proposals(steps, count)
        for rows, proposal in zip(steps, prefetch(proposed) if index.overlaps else proposed, strict=True):
            ids_QK[rows], scores_QK[rows], others_Q = rank(index, queries_QD[rows], depth, *proposal)
            settled = (count == total) | (scores_QK[rows, -1] > others_Q)
            remaining.append(rows[~settled])
        unsettled, count = np.concatenate(remaining), min(GROWTH * count, total)
    return ids_QK, scores_QK


def prefetch(items):
    """The items of an iterator, each made by another thread while the caller works with the one before."""
    with ThreadPoolExecutor(1) as maker:
        making = maker.submit(next, items, None)
        while (item := making.result()) is not None:
            making = maker.submit(next, items, None)
            yield item


def rank(index, queries_QD, depth, errors_Q, proposed_QM, ids_QM, others_Q):
    """The first `depth` of the candidates and all outliers: (ids int32 [Q, depth], exact scores float32 [Q, depth],
    upper bound on the exact scores of all other passages [Q]).
    """
    scores_QM = rescore(index.vectors, queries_QD, proposed_QM, ids_QM, depth, errors_Q, index.threads)
    if count := len(index.outliers):
        scores_QM[np.isin(ids_QM, index.outliers)] = -np.inf  # each passage once
        outliers_QM = np.broadcast_to(index.outliers, (len(queries_QD), count))
        zeros_QM = np.zeros(outliers_QM.shape)
        exact_QM = rescore(index.vectors, queries_QD, zeros_QM, outliers_QM, count, errors_Q, index.threads)
        scores_QM, ids_QM = np.hstack([scores_QM, exact_QM]), np.hstack([ids_QM, outliers_QM])
    return *stable_topk(scores_QM, ids_QM, depth), others_Q + errors_Q
