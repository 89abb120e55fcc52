"""The score of a query and a passage: the same to the last bit in every search, filter and analysis.

A score is the inner product of two vectors, summed in float64 in one fixed order and rounded to float32. Products of
float32 numbers are exact in float64, and additions of single numbers give equal bits on every processor and device. A
matrix product does not: its order of summation depends on the library, the device and the shape.
"""

import numpy as np

from teleport.arrays import open_passages
from teleport.maxp import chunk_rows, for_each_chunk, max_over_chunks, num_passages, offsets_among
from teleport.refusal import Refusal

BLOCK = 65536  # vectors read at a time
PAIRS = 256  # (query, passage) pairs scored at a time: their products stay in a processor's cache
ROUNDING = 2.0**-24  # largest relative error of a float32 operation


def inner_products(queries, passages):
    """Inner products along the last axis, each summed by halves, of numpy arrays or torch tensors, float64 [..., D],
    broadcast against each other (one of the two may be float32)."""
    terms = queries * passages
    width = terms.shape[-1]
    while width > 1:
        half = width // 2
        terms[..., :half] += terms[..., width - half : width]
        width -= half
    return terms[..., 0]


def ranked(scores_QM, ids_QM, depth):
    """The `depth` highest scores, equal ones by the smaller id: (ids int32, scores float32), [Q, depth]. Raises Refusal
    like `stored`."""
    order_QK = np.lexsort((ids_QM, -scores_QM))[:, :depth]
    ids_QK, scores_QK = (np.take_along_axis(array, order_QK, axis=1) for array in (ids_QM, scores_QM))
    return ids_QK.astype(np.int32), stored(scores_QK)


def stored(scores_QK):
    """The scores (float32) of ranked lists as a stage stores them: -0 becomes 0, which it equals. Raises Refusal for
    scores beyond float32."""
    if not np.isfinite(scores_QK).all():
        raise Refusal(
            "the scores of a query overflow float32. The checkpoint that made its vector is broken: train with a lower "
            "learning rate, or with precision fp32."
        )
    return scores_QK + np.float32(0)


def require_finite(path, vectors, what, progress=lambda *_: None):
    """Refuse the first row of vectors [n, dim], read block by block, that has a number which is not finite. progress:
    called with how many were read, of how many, and their name"""
    for start in range(0, len(vectors), BLOCK):
        finite = np.isfinite(vectors[start : start + BLOCK]).all(axis=1)
        if not finite.all():
            raise Refusal(
                f"{path}: the vector of {what} row {start + int(np.argmin(finite))} is not finite. The checkpoint that "
                "made it is broken: train with a lower learning rate, or with precision fp32."
            )
        progress(start + len(finite), len(vectors), "vectors")


class PairScorer:
    """Scores under a checkpoint; a passage in several chunks scores by its best chunk (ANCE, MaxP). queries: float32
    [num_queries, dim]; vectors, offsets: from `open_passages`"""

    def __init__(self, queries, vectors, offsets):
        # numpy's class for memory maps is slower.
        self.vectors = vectors.view(np.ndarray) if isinstance(vectors, np.memmap) else vectors
        self.queries, self.offsets = queries, offsets

    @classmethod
    def of_job(cls, job, split):
        """Open the pairs of the queries of `split` and the passages of a job. Raises Refusal for a query vector that is
        not finite."""
        path = job.input("queries", f"queries.{split}.npy")
        queries = np.load(path, mmap_mode="r")
        require_finite(path, queries, "query")
        return cls(queries, *open_passages(job))

    def __len__(self):
        return num_passages(self.vectors, self.offsets)

    def score(self, rows, passages):
        """float32 [n]: scores of passages (int [n]) with the queries of `rows` (int [n], or one int for all)."""
        rows = for_each_chunk(np.broadcast_to(rows, np.shape(passages)), passages, self.offsets)
        chunks = chunk_rows(passages, self.offsets)
        scores = np.empty(len(chunks), np.float32)
        for start in range(0, len(chunks), PAIRS):
            part = slice(start, start + PAIRS)
            queries_ND = np.asarray(self.queries[rows[part]], np.float64)
            scores[part] = inner_products(queries_ND, self.vectors.take(chunks[part], axis=0))
        return max_over_chunks(scores, offsets_among(passages, self.offsets))
