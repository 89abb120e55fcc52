"""Exact scores of given (query, passage) pairs: float64 sums rounded to float32, as every exact search has them."""

import numpy as np

from teleport.runtime.arrays import open_passages, places_of
from teleport.search.exact import Scorer


class PairScorer:
    """Scores of passages under a checkpoint; of those in several chunks the best chunk's (ANCE, MaxP).

    vectors: float32 [rows, dim]; offsets: int64 [passages + 1], where the rows of each passage begin, or None: row i is
    passage i
    """

    def __init__(self, vectors, offsets):
        self.vectors, self.offsets, self.scorer = vectors, offsets, Scorer(vectors)

    @classmethod
    def of_job(cls, job):
        """Of the stage `encode` in the role `passages`."""
        return cls(*open_passages(job))

    def __len__(self):
        return len(self.vectors) if self.offsets is None else len(self.offsets) - 1

    def score(self, query_D, ids):
        """float32 scores of one query with the passages `ids` (int [n])."""
        rows, starts = ids, None
        if self.offsets is not None:
            rows, lengths = places_of(self.offsets, ids), np.diff(self.offsets)[ids]
            starts = np.cumsum(lengths) - lengths
        scores = np.empty(len(rows), np.float32)
        self.scorer.score(np.asarray(query_D, np.float64), rows, scores)
        return scores if starts is None or not len(rows) else np.maximum.reduceat(scores, starts)
