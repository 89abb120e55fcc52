"""Search by what a product-quantising index keeps of the passages, and by nothing else (PQ; Jégou et al. 2011).

A score is the product of the query with the reconstructed passage, which faiss sums from a table per part. Passages of
the same code tie, and ties go to the smaller passage number.
"""

import faiss
import numpy as np

from teleport.search.exact import best
from teleport.search.flat import GROWTH, MARGIN, require_depth


class Compressed:
    """A trained and filled faiss.IndexPQ that is searched with `threads` threads."""

    overlaps = False

    def __init__(self, index, threads):
        self.index, self.threads, self.engine = index, threads, type(index).__name__

    def search(self, queries_QD, depth):
        """The passages of largest score: (ids int32, scores float32), both [Q, depth], ties by the smaller number.

        More are asked for than wanted, and still more where the last rank ties with what was not asked for. Raises
        ValueError when there are fewer passages than `depth`.
        """
        require_depth(depth, total := self.index.ntotal)
        faiss.omp_set_num_threads(self.threads)  # it holds for the thread that calls
        ids_QK = np.empty((len(queries_QD), depth), np.int32)
        scores_QK = np.empty((len(queries_QD), depth), np.float32)
        unsettled, count = np.arange(len(queries_QD)), min(depth + MARGIN, total)
        while len(unsettled):
            proposed_QC, ids_QC = self.index.search(np.ascontiguousarray(queries_QD[unsettled]), count)
            ids_QK[unsettled], scores_QK[unsettled] = best(proposed_QC, ids_QC, depth)
            settled = (count == total) | (scores_QK[unsettled, -1] > proposed_QC[:, -1])
            unsettled, count = unsettled[~settled], min(GROWTH * count, total)
        return ids_QK, scores_QK

    def vectors(self, ids):
        """The reconstructed vectors of passages, float32 [..., dim] for integers [...]."""
        flat = self.index.reconstruct_batch(np.ascontiguousarray(ids, np.int64).ravel())
        return flat.reshape(*ids.shape, -1)


def load(path, threads):
    """The saved index, as `Compressed`."""
    return Compressed(faiss.read_index(str(path)), threads)
