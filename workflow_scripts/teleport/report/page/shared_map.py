"""One map of the vectors of several checkpoints: their first two principal components (ANCE-Tele Figure 6)."""

import numpy as np
from scipy.linalg import eigh


def shared_map(vectors_END):
    """float [E, N, 2]: where each of N texts lies under each of E checkpoints, on one plane for all of them.

    The plane is that of the largest variance of all E x N vectors together; each axis points to where the vector of the
    first text under the first checkpoint has no negative coordinate, so that a page is the same whenever it is made.
    """
    flat = vectors_END.reshape(-1, vectors_END.shape[-1]).astype(np.float64)
    centred = flat - flat.mean(axis=0)
    small = len(centred) <= centred.shape[1]  # the smaller of the two products has the same first components
    product = centred @ centred.T if small else centred.T @ centred
    size = len(product)
    values, axes = eigh(product, subset_by_index=[max(0, size - 2), size - 1])
    points = axes * np.sqrt(np.maximum(values, 0)) if small else centred @ axes
    points = points[:, ::-1] * np.where(points[0, ::-1] < 0, -1.0, 1.0)
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1]))).reshape(*vectors_END.shape[:2], 2)
