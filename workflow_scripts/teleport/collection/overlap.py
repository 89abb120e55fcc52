"""Queries of a split that are trained on, too: what is measured with them says little of new queries."""

import numpy as np
import pyarrow.parquet as pq

from teleport.collection.equal import digest_of


def trained_too(files):
    """Sentences (list of str) on the splits with queries whose text is a training query's, whatever their ids.

    files: {split: its queries.SPLIT.parquet}; without train there are none
    """
    if "train" not in files:
        return []
    digests = {
        split: np.array([digest_of(text) for text in pq.read_table(path, columns=["text"])["text"].to_pylist()])
        for split, path in files.items()
    }
    trained = digests.pop("train")
    numbers = {split: int(np.isin(queries, trained).sum()) for split, queries in digests.items()}
    return [
        f"Of the {split} queries {number:,} are training queries, too." for split, number in numbers.items() if number
    ]
