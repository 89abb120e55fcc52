"""Maps of queries and passages: where their vectors lie on one plane."""

import numpy as np
from scipy.linalg import eigh


def places(scorers, row, chosen):
    """Return the points of a query and of the passages `chosen` under each checkpoint, on one plane from -1 to 1
    (nested lists, the query first); scorers: the `PairScorer` of each."""
    points = shared_map(np.array([np.vstack([each.queries[[row]], each.vectors[chosen]]) for each in scorers]))
    return np.round(points / max(1e-9, float(np.abs(points).max())), 3).tolist()


def map_rows(points, texts, positives):
    """[{x, y, what, passage, shape}] of texts at `points`: the query, `positives` of its positives, and other passages;
    texts: [(what a text is, its id)]."""
    shapes = ["query", *["positive"] * positives]
    shapes += ["passage"] * (len(texts) - len(shapes))
    lines = zip(points, texts, shapes, strict=True)
    return [{"x": x, "y": y, "what": what, "passage": name, "shape": shape} for (x, y), (what, name), shape in lines]


def shared_map(vectors_EBD):
    """float [E, B, 2]: where each of B texts is under each of E checkpoints, on one plane (ANCE-Tele Figure 6).

    The plane is that of the largest variance of all E x B vectors together, their first two principal components. Each
    axis points so that the first text under the first checkpoint has no negative coordinate. So a page is the same
    whenever it is made.
    """
    flat = vectors_EBD.reshape(-1, vectors_EBD.shape[-1]).astype(np.float64)
    centred = flat - flat.mean(axis=0)
    small = len(centred) <= centred.shape[1]  # the smaller of the two products has the same first components
    product = centred @ centred.T if small else centred.T @ centred
    size = len(product)
    values, axes = eigh(product, subset_by_index=[max(0, size - 2), size - 1])
    points = axes * np.sqrt(np.maximum(values, 0)) if small else centred @ axes
    points = points[:, ::-1] * np.where(points[0, ::-1] < 0, -1.0, 1.0)
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1]))).reshape(*vectors_EBD.shape[:2], 2)
