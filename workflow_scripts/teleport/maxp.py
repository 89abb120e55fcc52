"""MaxP: a passage of several chunks scores as its best chunk (ANCE; released: NLL_MultiChunk in model/models.py).

The chunks of passage p are rows offsets[p] to offsets[p + 1] of an array of all chunks (int64 [P + 1]). A training step
pads instead: every passage takes as many rows as the largest number of chunks. Rows without a chunk score -inf
(released: -9999), so they are never the best and get no gradient. A document of several passages is handled the same
way, as a passage of several chunks.
"""

import numpy as np

from teleport.arrays import are_first

BLOCK = 4096  # ranked lists of chunks turned into lists of passages at a time


def max_over_chunks(scores, offsets):
    """The highest score among each passage's chunks: numpy [..., P] of [..., C]. Every passage has a chunk."""
    return np.maximum.reduceat(scores, offsets[:-1], axis=-1)


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


def chunk_mask(counts_P, most):
    """Return which rows have a chunk if every passage takes `most` rows: numpy bool [P * most]. counts_P: chunks of
    each passage"""
    return (np.arange(most) < counts_P[:, None]).ravel()


def pad_chunks(vectors_CD, rows_C, num_rows):
    """Tensor [num_rows, D] with the vectors of all chunks in the rows `rows_C` (int64 tensor on the same device, from
    `chunk_mask`), and zeros elsewhere."""
    return vectors_CD.new_zeros(num_rows, vectors_CD.shape[1]).index_copy(0, rows_C, vectors_CD)


def max_over_padded_chunks(scores_QC, mask_C, most):
    """`max_over_chunks` of padded chunks, as a tensor [Q, P]. Only the best chunk gets a gradient. scores_QC: tensor
    [Q, P * most]; mask_C: tensor of `chunk_mask`, on the same device"""
    return scores_QC.masked_fill(~mask_C, float("-inf")).unflatten(1, (-1, most)).max(dim=2).values
