"""Search of passages by the best of their chunks (ANCE, MaxP), with any index of all chunks."""

import numpy as np

from teleport.runtime.arrays import are_first
from teleport.search.flat import require_depth

BLOCK = 4096  # queries whose chunks become passages at a time


def chunks_needed(offsets, depth):
    """How many of the best chunks always have the `depth` best passages among them."""
    most = int(np.diff(offsets).max(initial=1))
    return min((depth - 1) * most + 1, int(offsets[-1]))  # of the same passage there are at most `most`


class MaxP:
    """A passage's score is that of its best chunk; passages of equal scores are ranked by the smaller number.

    index: of all chunks, with `search`; offsets: int64 [passages + 1], where each passage's chunks are
    """

    def __init__(self, index, offsets):
        self.index, self.offsets = index, offsets
        self.passage_C = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
        self.engine, self.overlaps = f"{index.engine}, best of chunks", index.overlaps

    def search(self, queries_QD, depth):
        """The `depth` passages with the best chunks: (ids int32, scores float32), both [Q, depth], best first.

        Raises ValueError when there are fewer passages.
        """
        require_depth(depth, len(self.offsets) - 1)
        chunks_QC, scores_QC = self.index.search(queries_QD, chunks_needed(self.offsets, depth))
        found = [np.empty((len(queries_QD), depth), values.dtype) for values in (self.passage_C, scores_QC)]
        for start in range(0, len(queries_QD), BLOCK):
            block = slice(start, start + BLOCK)
            passages_QC = self.passage_C[chunks_QC[block]]
            # Chunks are ranked, equal ones by number: the first chunk of a passage that is met is its best one, and
            # passages are met in the order of their scores.
            firsts_QK = np.argsort(~are_first(passages_QC), axis=1, kind="stable")[:, :depth]
            for whole, values in zip(found, (passages_QC, scores_QC[block]), strict=True):
                whole[block] = np.take_along_axis(values, firsts_QK, axis=1)
        return tuple(found)
