"""Exact search by inner product, in which equal scores are ranked by the smaller passage number.

The last bits of a matrix product depend on the library, the device, the number format, the shape of the block and
the place in it, so its ties and near-ties have no order of their own. Therefore the product only proposes candidates,
more than asked for. The scores of those that can be among the best are computed again in float64, each pair by
itself, rounded to float32, and sorted by (score, passage number). Whether a passage that was not proposed could
belong among the best follows from the bound on the error of the product; where it could, more are proposed. So the
result depends on the vectors alone, and the number format of the product is a matter of speed: it is no setting, and
decides no key.

A bound for all passages is only as good as that of the worst of them. Therefore an engine leaves out of it the few
that are far worse than the rest, its outliers: these are scored exactly for every query, proposed or not.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from teleport.runtime.vectors import Halves
from teleport.search.exact import best, rescore

MARGIN = 32  # proposed beyond the depth: enough unless dozens of passages tie at the last rank
GROWTH = 8  # factor on the proposals for a query whose last rank is not settled
CANDIDATES = 2**25  # (query, candidate) pairs in memory at a time: 0.7 GB of numbers, scores and keys
ROUNDING = 2.0**-24  # largest relative error of one float32 operation
BLOCK = 16384  # vectors read at a time
OUTLIERS, OUTLYING = 64, 1.5  # at most so many passages, with so many times the measure of those after them


def norms_of(vectors, block=BLOCK):
    """The Euclidean norms of the rows of a float32 [n, dim], read block by block: float32 [n]."""
    starts = range(0, len(vectors), block)
    blocks = (np.asarray(vectors[start : start + block]) for start in starts)
    return np.sqrt(np.concatenate([np.vecdot(vectors_BD, vectors_BD) for vectors_BD in blocks]))


def outliers_by(measures_P):
    """Numbers (int64, ascending) of at most `OUTLIERS` passages whose measure is far above that of all others."""
    place = max(0, len(measures_P) - 1 - OUTLIERS)
    return np.flatnonzero(measures_P > OUTLYING * np.partition(measures_P, place)[place])


def product_errors(norms_Q, dim, max_norm):
    """Largest error of float32 inner products of queries `norms_Q` long with vectors up to `max_norm` long: [Q].

    |float32 product - exact product| <= dim x rounding x |q| |p|; twice that covers the final rounding too.
    """
    return 2 * dim * ROUNDING * max_norm * norms_Q


class FaissFlat:
    """Candidates by faiss, which computes the product in float32 with BLAS, block by block, and keeps the best.

    vectors: float32 [n, dim], an array or a memory map, which is read once per 4,096 queries, or `Halves`
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
        """(scores [Q, count] best first, passage numbers int64 [Q, count], what no other score exceeds [Q])."""
        self.faiss.omp_set_num_threads(self.threads)  # it holds for the thread that calls
        if not isinstance(self.vectors, Halves):
            scores_QC, ids_QC = self.knn(queries_QD, self.vectors, count)
            return scores_QC, ids_QC, scores_QC[:, -1].astype(np.float64)
        found = self.faiss.ResultHeap(len(queries_QD), count, keep_max=True)
        for start in range(0, len(self.vectors), BLOCK):
            block = np.asarray(self.vectors[start : start + BLOCK])
            scores_QC, ids_QC = self.knn(queries_QD, block, min(count, len(block)))
            found.add_result(scores_QC, ids_QC + start)
        found.finalize()
        return found.D, found.I, found.D[:, -1].astype(np.float64)

    def knn(self, queries_QD, vectors, count):
        """(scores [Q, count] best first, rows int64 [Q, count]) of a float32 array."""
        return self.faiss.knn(queries_QD, vectors, count, metric=self.faiss.METRIC_INNER_PRODUCT)


def require_finite(path, vectors, what, first=0):
    """Raise ValueError that names the first row with a number that is not finite; row `first` is the first given."""
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"{path}: the vector of {what} row {first + int(np.argmin(finite))} is not finite. The checkpoint that "
            "made it is broken: train with a lower learning rate, or with precision fp32."
        )


def require_depth(depth, total):
    """Raise ValueError when there are fewer passages than are asked for."""
    if depth > total:
        raise ValueError(
            f"depth {depth} is more than the collection's {total} passages: lower mining.depth or evaluation.depth."
        )


def search(index, queries_QD, depth):
    """The `depth` passages of largest inner product, ties by the smaller number, for each query.

    index: FaissFlat, ReducedFlat or TorchFlat; queries_QD: float32, finite
    returns: (ids int32, scores float32), both [Q, depth], best first. Raises ValueError when there are fewer passages.

    Candidates are proposed for at most `index.step` queries at a time. Where the index computes on a device
    (`index.overlaps`), the host scores those of one step while the next step is proposed.
    """
    total = len(index.vectors)
    require_depth(depth, total)
    ids_QK = np.empty((len(queries_QD), depth), np.int32)
    scores_QK = np.empty((len(queries_QD), depth), np.float32)
    unsettled, count = np.arange(len(queries_QD)), min(index.first_count(depth), total)
    while len(unsettled):
        step, remaining = max(1, min(index.step, CANDIDATES // count)), []
        parts = [unsettled[start : start + step] for start in range(0, len(unsettled), step)]
        proposals = (propose(index, queries_QD[rows], depth, count) for rows in parts)
        for rows, proposed in zip(parts, ahead(proposals) if index.overlaps else proposals, strict=True):
            ids_QK[rows], scores_QK[rows], possible_Q = rank(index, queries_QD[rows], depth, *proposed)
            settled = (count == total) | (scores_QK[rows, -1] > possible_Q)
            remaining.append(rows[~settled])
        unsettled, count = np.concatenate(remaining), min(GROWTH * count, total)
    return ids_QK, scores_QK


def ahead(items):
    """The items of an iterator, each made by another thread while the caller works with the one before."""
    with ThreadPoolExecutor(1) as maker:
        making = maker.submit(next, items, None)
        while (item := making.result()) is not None:
            making = maker.submit(next, items, None)
            yield item


def propose(index, queries_QD, depth, count):
    """What `index` proposes, and the errors of it: (errors [Q], scores [Q, C], passage numbers [Q, C], others [Q])."""
    errors_Q = index.errors(queries_QD)
    return errors_Q, *index.propose(queries_QD, depth, count, errors_Q)


def rank(index, queries_QD, depth, errors_Q, proposed_QC, ids_QC, others_Q):
    """(ids int32, scores float32) of the `depth` best candidates, [Q, depth], and what no other score exceeds, [Q]."""
    exact_QC, ids_QC = score(index, queries_QD, proposed_QC, ids_QC, depth, errors_Q)
    return *best(exact_QC, ids_QC, depth), others_Q + errors_Q


def score(index, queries_QD, proposed_QC, ids_QC, depth, errors_Q):
    """(exact scores [Q, C], passage numbers [Q, C]) of the candidates that can be among the best, and all outliers."""
    scores_QC = rescore(index.vectors, queries_QD, proposed_QC, ids_QC, depth, errors_Q, index.threads)
    count = len(index.outliers)
    if not count:
        return scores_QC, ids_QC
    scores_QC[np.isin(ids_QC, index.outliers)] = -np.inf  # each passage once
    ids_QO = np.broadcast_to(index.outliers, (len(queries_QD), count))
    scores_QO = rescore(index.vectors, queries_QD, np.zeros(ids_QO.shape), ids_QO, count, errors_Q, index.threads)
    return np.hstack([scores_QC, scores_QO]), np.hstack([ids_QC, ids_QO])
