"""A negative whose text has an answer of the query becomes a positive (Tevatron, scripts/hn_mine.py: `has_answers`)."""

from teleport.negatives.relabelling import KEPT, POSITIVE


def labels(judged):
    """Label negatives by the answers in the collection, matched as for answer coverage."""
    import numpy as np

    return np.where(judged.have_answers(), POSITIVE, KEPT)
