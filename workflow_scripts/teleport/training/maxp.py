"""MaxP: a passage of several chunks scores as its best chunk (ANCE; released: NLL_MultiChunk in model/models.py).

For one product with all queries, every passage takes the place of as many chunks as one can have. The places that it
has no chunk for score -inf (released: -9999), so they are never the best, and they get no gradient.
"""

import numpy as np
import torch

from teleport.encoder.precision import to_device


def in_places(vectors_CD, counts_P, most):
    """The chunks' vectors with every passage's first one in row p * most, zeros between: [P * most, D].

    vectors_CD: those of all chunks, passage by passage; counts_P: int64 numpy, how many each passage has
    """
    places_C = torch.from_numpy(np.flatnonzero(places_of_chunks(counts_P, most)))
    padded = vectors_CD.new_zeros(len(counts_P) * most, vectors_CD.shape[1])
    return padded.index_copy(0, to_device(places_C, vectors_CD.device), vectors_CD)


def best_of_chunks(scores_QC, counts_P, most):
    """The highest score among each passage's chunks: [Q, P]. Only that chunk gets a gradient.

    scores_QC: [Q, P * most], of the places that `in_places` made
    """
    real_C = to_device(torch.from_numpy(places_of_chunks(counts_P, most)), scores_QC.device)
    scores_QPK = scores_QC.masked_fill(~real_C, float("-inf")).unflatten(1, (len(counts_P), most))
    return scores_QPK.max(dim=2).values


def places_of_chunks(counts_P, most):
    """Which of the places there is a chunk for: bool [P * most]."""
    return (np.arange(most) < counts_P[:, None]).ravel()
