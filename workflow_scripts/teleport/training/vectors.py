"""Vectors of another encoder that a training reads: those of a teacher, and of queries that are clustered."""

from functools import lru_cache

import numpy as np

from teleport.arrays import open_passages
from teleport.negatives.scores import named_row
from teleport.refusal import Refusal
from teleport.running.run import IS_HELPER
from teleport.search.pairs import BLOCK

ROLES = {"query": "split.train", "passage": "corpus"}  # of the stages that name a row


@lru_cache(maxsize=8)  # a loss and its masks may read one teacher
def require_teacher(job, whose):
    """`require_vectors` of the teacher `whose`, in the first of the processes of a training."""
    if not IS_HELPER:
        queries = np.load(job.input(f"vectors.{whose}.queries", "queries.train.npy"), mmap_mode="r")
        require_vectors(job, f"the teacher {whose}", "query", queries)
        require_vectors(job, f"the teacher {whose}", "passage", *open_passages(job, f"vectors.{whose}.passages"))


def require_vectors(job, name, what, vectors, offsets=None):
    """Raise Refusal if one of the vectors [n, dim], read block by block, is not finite, or if all are the same.

    name: whose they are, for messages; what: "query" for those of the training queries, or "passage"; offsets: of the
    chunks of passages, as from `open_passages`
    """
    same = len(vectors) > 1
    for start in range(0, len(vectors), BLOCK):
        block = vectors[start : start + BLOCK]
        finite = np.isfinite(block).all(axis=1)
        if not finite.all():
            row = start + int(np.argmin(finite))
            row = row if offsets is None else int(np.searchsorted(offsets, row, side="right")) - 1
            raise Refusal(
                f"{name}: the vector of the {what} {named_row(job.inputs[ROLES[what]], what, row)} is not finite. The "
                "checkpoint that made it is broken: take another one, or train it with a lower learning rate or with "
                "precision fp32."
            )
        same = same and bool((block == vectors[0]).all())
    if same:
        raise Refusal(
            f"{name}: all {len(vectors):,} {what} vectors are the same, so they tell no {what} from another. The "
            "checkpoint that made them has collapsed: take another one, or train it with a lower learning rate."
        )
