"""Queries of a split that are trained on, too: what is measured with them says little of new queries."""

import numpy as np


def trained_too(splits):
    """Sentences (list of str) on the splits with queries whose text is a training query's, whatever their ids. splits:
    {name: the Artefact of its stage}; without train there are none"""
    digests = {name: np.load(split.path("digests.npy")) for name, split in splits.items()}
    trained = digests.pop("train", np.zeros(0, np.uint64))
    numbers = {name: int(np.isin(own, trained).sum()) for name, own in digests.items()}
    return [f"Of the {name} queries {count:,} are training queries, too." for name, count in numbers.items() if count]
