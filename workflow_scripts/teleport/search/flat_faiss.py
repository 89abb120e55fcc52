"""Candidates for exact search by faiss's flat index on a CUDA device (or, in tests, the CPU)."""

import faiss
import numpy as np

from teleport.search.approximate import GPU_MOST
from teleport.search.flat import BLOCK, OUTLIERS, FaissFlat

STEP = 8192  # queries that are proposed for while the host scores the candidates of as many others


def index_on(number, vectors):
    """An empty flat index for `vectors` [n, dim] on the CUDA device of a number, in float32."""
    config = faiss.GpuIndexFlatConfig()
    config.device = number
    return faiss.GpuIndexFlatIP(faiss.StandardGpuResources(), vectors.shape[1], config)


class FaissOnGpu(FaissFlat):
    """As `FaissFlat`, by an `index` of faiss (empty; float32, inner product) that keeps the vectors. More than
    `GPU_MOST` candidates of a query, which a GPU does not return, come from the CPU."""

    overlaps, step = True, STEP

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
