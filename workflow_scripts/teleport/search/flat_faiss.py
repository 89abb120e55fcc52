"""Candidates for exact search by faiss: float32 products with BLAS on a CPU, or a flat index of faiss on a GPU."""

import numpy as np

from teleport.search.flat import BLOCK, CANDIDATES, GPU_STEP, MARGIN, OUTLIERS, norms_of, outliers_by, product_errors

GPU_MOST = 2048  # neighbours that faiss returns on a GPU, and lists that it probes there, at most
FAISS_SHARE = 0.8  # of the free memory of a device that its part of the vectors may take with faiss


class FaissFlat:
    """An engine of `flat.Exact`: products block by block. vectors: float32 [n, dim], an array or a memory map, which is
    read once per 4,096 queries; or float16"""

    overlaps, step, margin = False, CANDIDATES, MARGIN

    def __init__(self, vectors, threads, most_outliers=OUTLIERS):
        import faiss

        self.faiss, self.vectors, self.threads = faiss, vectors, threads
        norms_P = norms_of(vectors)
        self.outliers = outliers_by(norms_P, most_outliers)
        self.max_norm = float(np.delete(norms_P, self.outliers).max())

    def errors(self, queries_QD):
        """The largest error of a score proposed for a passage that is no outlier, float64 [Q]."""
        norms_Q = np.linalg.norm(queries_QD.astype(np.float64), axis=1)
        return product_errors(norms_Q, queries_QD.shape[1], self.max_norm)

    def first_count(self, depth):
        """How many candidates to propose at first."""
        return depth + self.margin

    def propose(self, queries_QD, depth, count, errors_Q, last_Q):
        """(scores [Q, count] highest first, passages int64 [Q, count], upper bound on all other scores [Q]). last_Q:
        what the exact score at the last rank reaches by other passages (-inf: nothing is known)"""
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


class FaissOnGpu(FaissFlat):
    """As `FaissFlat`, by an `index` of faiss (empty; float32, inner product) that keeps the vectors, on a GPU (or, in
    tests, the CPU). More than `GPU_MOST` candidates of a query, which a GPU does not return, come from the CPU."""

    overlaps, step = True, GPU_STEP

    def __init__(self, vectors, threads, index, most_outliers=OUTLIERS):
        super().__init__(vectors, threads, most_outliers)
        self.index = index
        for start in range(0, len(vectors), BLOCK):
            index.add(np.ascontiguousarray(vectors[start : start + BLOCK], np.float32))

    def propose(self, queries_QD, depth, count, errors_Q, last_Q):
        if count > GPU_MOST:
            return super().propose(queries_QD, depth, count, errors_Q, last_Q)
        scores_QM, ids_QM = self.index.search(np.ascontiguousarray(queries_QD), count)
        return scores_QM, ids_QM, scores_QM[:, -1].astype(np.float64)
