"""Vectors of another encoder that a training reads: those of a teacher, and of queries that are clustered."""

import numpy as np
import pyarrow.parquet as pq

from teleport.refusal import Refusal
from teleport.search.pairs import BLOCK

IDS = {"query": ("split.train", "queries.train.parquet", "query_id"), "passage": ("corpus", "corpus.parquet", "doc_id")}


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
            role, file, column = IDS[what]
            text_id = pq.read_table(job.input(role, file), columns=[column])[column][row].as_py()
            raise Refusal(
                f"{name}: the vector of the {what} {text_id!r} (row {row}) is not finite. The checkpoint that made it "
                "is broken: take another one, or train it with a lower learning rate or with precision fp32."
            )
        same = same and bool((block == vectors[0]).all())
    if same:
        raise Refusal(
            f"{name}: all {len(vectors):,} {what} vectors are the same, so they tell no {what} from another. The "
            "checkpoint that made them has collapsed: take another one, or train it with a lower learning rate."
        )
