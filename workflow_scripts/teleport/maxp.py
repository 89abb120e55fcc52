"""MaxP: a passage of several chunks scores as its best chunk (ANCE; released: NLL_MultiChunk in model/models.py).

The chunks of passage p are the rows offsets[p] to offsets[p + 1] of an array of vectors, offsets int64 [P + 1]. With
offsets None, row p is passage p, and every function here returns what it is given, so only this file asks whether
passages have chunks. A document of several passages is handled the same way, as a passage of several chunks.
"""

from typing import Any, NamedTuple

import numpy as np

from teleport.arrays import are_first, offsets_of, places_of

BLOCK = 4096  # ranked lists of chunks turned into lists of passages at a time

# ---- The vectors of all passages


def num_passages(vectors, offsets):
    """How many passages the rows of `vectors` are."""
    return len(vectors if offsets is None else offsets[1:])


def most_chunks(offsets):
    """The largest number of chunks of a passage."""
    return 1 if offsets is None else int(np.diff(offsets).max(initial=1))


def chunk_rows(passages, offsets):
    """The rows of the vectors of some passages (int64): of all chunks of the first one, then of the next."""
    return passages if offsets is None else places_of(offsets, passages)


def chunk_counts(passages, offsets):
    """How many chunks some passages have: int64 [P]."""
    return np.ones(len(passages), np.int64) if offsets is None else offsets[passages + 1] - offsets[passages]


def for_each_chunk(values, passages, offsets):
    """The values [P] of some passages, each once for every chunk of its passage."""
    return values if offsets is None else np.repeat(values, chunk_counts(passages, offsets))


def offsets_among(passages, offsets):
    """The offsets of some passages in their `chunk_rows`."""
    return None if offsets is None else offsets_of(chunk_counts(passages, offsets))


def consecutive(first, last, offsets):
    """(slice of the rows of passages `first` to `last` - 1, their offsets in it)."""
    if offsets is None:
        return slice(first, last), None
    return slice(offsets[first], offsets[last]), offsets[first : last + 1] - offsets[first]


def max_over_chunks(scores, offsets):
    """The highest score among each passage's chunks: numpy [..., P] of [..., C]. Every passage has a chunk."""
    return scores if offsets is None else np.maximum.reduceat(scores, offsets[:-1], axis=-1)


# ---- Search


def by_passage(index, offsets):
    """An index that finds passages, from one of all chunks with `search`."""
    return index if offsets is None else MaxP(index, offsets)


def chunks_needed(offsets, depth):
    """How many of the best chunks are sure to include the `depth` best passages."""
    return depth if offsets is None else min((depth - 1) * most_chunks(offsets) + 1, int(offsets[-1]))


class MaxP:
    """Scores a passage by its best chunk; passages with equal scores are ranked by the smaller number. chunks: the
    index of all chunks"""

    def __init__(self, chunks, offsets):
        self.chunks, self.offsets = chunks, offsets
        self.passage_C = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
        self.engine, self.device, self.exact = f"{chunks.engine}, best of chunks", chunks.device, chunks.exact

    def search(self, queries_QD, depth):
        """Return, like `Exact.search`, the `depth` passages with the best chunks."""
        chunks_QC, scores_QC = self.chunks.search(queries_QD, chunks_needed(self.offsets, depth))
        return first_of_passages(self.passage_C[chunks_QC], scores_QC, depth)


def first_of_passages(passages_QC, scores_QC, depth):
    """Turn ranked chunks into ranked passages, each once, at the rank of its best chunk: (ids, scores), both [Q,
    depth]. passages_QC: int32, the passage of each chunk, -1 for no chunk. Shorter lists end with id -1 and score 0."""
    shape = (len(passages_QC), depth)
    ids_QK, scores_QK = np.full(shape, -1, passages_QC.dtype), np.zeros(shape, scores_QC.dtype)
    for start in range(0, len(passages_QC), BLOCK):
        block = slice(start, start + BLOCK)
        first_QC = are_first(passages_QC[block])
        order_QK = np.argsort(~first_QC, axis=1, kind="stable")[:, :depth]
        real_QK = np.take_along_axis(first_QC, order_QK, axis=1)
        for target_QK, values_QC, empty in ((ids_QK, passages_QC, -1), (scores_QK, scores_QC, 0)):
            target_QK[block] = np.where(real_QK, np.take_along_axis(values_QC[block], order_QK, axis=1), empty)
    return ids_QK, scores_QK


# ---- A training step


class Padding(NamedTuple):
    """Passages of a training step that all take `most` rows. real_C: bool [P * most], which rows have a chunk, and
    rows_C: their numbers; tensors on the device, None if most is 1. A row without a chunk scores -inf (released:
    -9999), so it is never the best and gets no gradient. No function waits for the device, as an index by real_C
    would."""

    most: int = 1
    real_C: Any = None
    rows_C: Any = None

    @classmethod
    def of(cls, passages_P, offsets, most, on_device):
        """The `Padding` of some passages to the largest number of chunks; on_device: function of a numpy array →
        tensor"""
        if most == 1:
            return cls()
        real_C = (np.arange(most) < chunk_counts(passages_P, offsets)[:, None]).ravel()
        return cls(most, on_device(real_C), on_device(np.flatnonzero(real_C)))

    def pad(self, vectors_CD):
        """Tensor [P * most, D] of the vectors of all chunks, with zeros in rows without a chunk."""
        if self.most == 1:
            return vectors_CD
        return vectors_CD.new_zeros(len(self.real_C), vectors_CD.shape[1]).index_copy(0, self.rows_C, vectors_CD)

    def real(self, vectors_CD):
        """The rows of padded vectors that have a chunk."""
        return vectors_CD if self.most == 1 else vectors_CD[self.rows_C]

    def shares(self, vectors_CD):
        """For each of the `real` rows of padded vectors, 1 / the number of chunks of its passage."""
        if self.most == 1:
            return vectors_CD.new_ones(len(vectors_CD))
        counts_P = self.real_C.unflatten(0, (-1, self.most)).sum(1)
        return counts_P.repeat_interleave(self.most)[self.rows_C].to(vectors_CD.dtype).reciprocal()

    def rows_of(self, columns_Q):
        """The rows of some passages (int64)."""
        if self.most == 1:
            return columns_Q
        return (columns_Q.unsqueeze(1) * self.most + columns_Q.new_ones(self.most).cumsum(0) - 1).flatten()

    def best(self, scores_QC, columns=None):
        """`max_over_chunks` of padded chunks, as a tensor [Q, P]. Only the best chunk gets a gradient. columns: the
        passages that C is the rows of; None: all"""
        if self.most == 1:
            return scores_QC
        real_C = self.real_C if columns is None else self.real_C[self.rows_of(columns)]
        return scores_QC.masked_fill(~real_C, float("-inf")).unflatten(1, (-1, self.most)).max(dim=2).values
