"""Batches of texts by their number of tokens, texts of similar length together."""

from contextlib import contextmanager

import numpy as np
import torch

from teleport.encoder.precision import pick_device, to_device
from teleport.runtime.torch_threads import threads_apart


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


@contextmanager
def batches_at_once(threads):
    """Yields the function `each` of `Encoded.vectors` that computes as many batches at once as there are threads.

    On a CPU a thread computes a batch alone, so that their number changes no bit. Threads that share every operator
    wait for one another thousands of times a batch: with oneDNN's products two of them on an EPYC took 1.24 times as
    long, with MKL's as long. A GPU takes the batches one by one.
    """
    if threads == 1 or pick_device().type != "cpu":
        yield map
        return
    with threads_apart(threads) as pool:
        yield lambda function, batches: pool.map(torch.inference_mode()(function), batches)
