"""Finds queries of a split that are also training queries: scores on them say little about new queries."""

import numpy as np


def trained_too(splits):
    """A sentence (list of str) for each split with queries whose text is a training query's, whatever their ids.
    splits: {name: the Artefact of its stage}; without train the list is empty"""
    digests = {name: np.load(split.path("digests.npy")) for name, split in splits.items()}
    trained = digests.pop("train", np.zeros(0, np.uint64))
    numbers = {name: int(np.isin(own, trained).sum()) for name, own in digests.items()}
    return [f"Of the {name} queries {count:,} are training queries, too." for name, count in numbers.items() if count]
