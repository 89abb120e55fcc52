"""Exact search by inner product, in which equal scores are ranked by the smaller passage number.

The last bits of a matrix product in float32 depend on the library, the device, the shape of the block and the place
in it, so its ties and near-ties have no order of their own. Therefore the product only proposes candidates, a few
more than asked for. Their scores are computed again in float64, each pair by itself, rounded to float32, and sorted
by (score, passage number). Whether a passage that was not proposed could belong among the best follows from the bound
on the rounding error of a float32 product; where it could, more are proposed. So the result depends on the vectors
alone.
"""

import numpy as np

MARGIN = 64  # proposed beyond the depth: enough unless dozens of passages tie at the last rank
GROWTH = 8  # factor on the proposals for a query whose last rank is not settled
PAIRS = 2**26  # (query, candidate) pairs in memory at a time: 0.8 GB of numbers and scores
ROUNDING = 2.0**-24  # largest relative error of one float32 operation


class FaissFlat:
    """Candidates by faiss, which computes the product in blocks with BLAS and keeps the best of each.

    vectors: float32 [n, dim], an array or a memory map
    """

    def __init__(self, vectors, threads):
        import faiss

        faiss.omp_set_num_threads(threads)
        self.faiss, self.vectors = faiss, vectors

    def nearest(self, queries_QD, count):
        """(scores float32, passage numbers int64), both [Q, count]; rounding and ties as they fall."""
        return self.faiss.knn(queries_QD, self.vectors, count, metric=self.faiss.METRIC_INNER_PRODUCT)

    def exact_scores(self, queries_QD, ids_QC):
        """Inner products of each query with its candidates: float64 sums rounded to float32 [Q, C]."""
        scores_QC = np.empty(ids_QC.shape, np.float32)
        step = max(1, PAIRS // self.vectors.shape[1])
        for row, query in enumerate(queries_QD.astype(np.float64)):
            for start in range(0, ids_QC.shape[1], step):
                candidates = self.vectors[ids_QC[row, start : start + step]].astype(np.float64)
                scores_QC[row, start : start + step] = np.vecdot(candidates, query)
        return scores_QC


def largest_norm(vectors, block=65536):
    """The largest Euclidean norm of the rows of a float32 [n, dim], read block by block."""
    squares = [np.vecdot(vectors[s : s + block], vectors[s : s + block]).max() for s in range(0, len(vectors), block)]
    return float(np.sqrt(max(squares)))


def search(index, queries_QD, depth, max_norm):
    """The `depth` passages of largest inner product, ties by the smaller number, for each query.

    index: FaissFlat or TorchFlat; queries_QD: float32, finite; max_norm: `largest_norm` of the index's vectors
    returns: (ids int32, scores float32), both [Q, depth], best first

    Raises ValueError when there are fewer passages than `depth`.
    """
    total, dim = index.vectors.shape
    if depth > total:
        raise ValueError(
            f"depth {depth} is more than the collection's {total} passages: lower mining.depth or evaluation.depth."
        )
    # |float32 product - exact product| <= dim x rounding x |q| |p|; twice that covers the final rounding too.
    errors_Q = 2 * dim * ROUNDING * max_norm * np.linalg.norm(queries_QD.astype(np.float64), axis=1)
    ids_QK = np.empty((len(queries_QD), depth), np.int32)
    scores_QK = np.empty((len(queries_QD), depth), np.float32)
    unsettled, count = np.arange(len(queries_QD)), min(depth + MARGIN, total)
    while len(unsettled):
        remaining, step = [], max(1, PAIRS // count)
        for start in range(0, len(unsettled), step):
            rows = unsettled[start : start + step]
            ids_QK[rows], scores_QK[rows], lowest = best_of(index, queries_QD[rows], depth, count)
            settled = (count == total) | (scores_QK[rows, -1] > lowest + errors_Q[rows])
            remaining.append(rows[~settled])
        unsettled, count = np.concatenate(remaining), min(GROWTH * count, total)
    return ids_QK, scores_QK


def best_of(index, queries_QD, depth, count):
    """The best `depth` of `count` candidates: (ids, scores) [Q, depth], and the lowest score proposed [Q]."""
    proposed_QC, ids_QC = index.nearest(queries_QD, count)
    scores_QC = index.exact_scores(queries_QD, ids_QC)
    order_QK = np.lexsort((ids_QC, -scores_QC))[:, :depth]
    ids_QK, scores_QK = (np.take_along_axis(array, order_QK, axis=1) for array in (ids_QC, scores_QC))
    return ids_QK, scores_QK, proposed_QC.min(axis=1).astype(np.float64)
