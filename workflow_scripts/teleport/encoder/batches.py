"""Batches of texts by their number of tokens, texts of similar length together."""

import numpy as np
import torch

from teleport.encoder.precision import to_device


def length_buckets(lengths, token_budget):
    """Batches of texts sorted by length, each of at most token_budget tokens.

    lengths: integers [n], tokens per text as the encoder sees them (special tokens included, truncation applied)
    token_budget: tokens per batch; a text longer than that gets a batch of its own
    returns: list of int64 arrays of positions in `lengths`, shortest texts first, ties in their given order;
             together they hold every position once
    """
    order = np.argsort(lengths, kind="stable")
    ends = np.cumsum(np.asarray(lengths)[order])
    batches, start, done = [], 0, 0
    while start < len(order):
        stop = max(start + 1, int(np.searchsorted(ends, done + token_budget, side="right")))
        batches.append(order[start:stop])
        start, done = stop, ends[stop - 1]
    return batches


def in_order(vectors, batches):
    """One tensor [n, dim] of the vectors of all batches, each row in the position that its batch names."""
    positions = torch.from_numpy(np.argsort(np.concatenate(batches)))
    return torch.cat(vectors)[to_device(positions, vectors[0].device)]
