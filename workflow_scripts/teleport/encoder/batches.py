"""Batches of texts of similar length, so that little time goes into padding."""

import numpy as np


def length_buckets(lengths, token_budget):
    """Batches of texts sorted by length, each with rows x longest <= token_budget.

    lengths: integers [n], tokens per text as they will be padded (special tokens included, truncation applied)
    token_budget: tokens per batch, padding included; a text longer than that gets a batch of its own
    returns: list of int64 arrays of positions in `lengths`, shortest texts first, ties in their given order;
             together they hold every position once
    """
    lengths = np.asarray(lengths)
    order = np.argsort(lengths, kind="stable")
    batches, start = [], 0
    for end, longest in enumerate(lengths[order].tolist()):
        if end > start and (end - start + 1) * longest > token_budget:
            batches.append(order[start:end])
            start = end
    if start < len(order):
        batches.append(order[start:])
    return batches
