"""Random vectors to search, as many as MS MARCO's passages if wanted."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import torch

CLUSTERS = 500
BLOCK = 8192  # made at a time
LENGTHS = {"unit": 0.0, "lognormal": 0.5}  # spreads: with .5 the longest of a thousand has five times the median
SEEDS = 2**20  # more than there are blocks; torch's generator on a CPU uses 32 bits


def make_vectors(path, count, dim, seed, threads, spread=0.0):
    """Vectors around common centres, as texts lie around topics: a float32 [count, dim] memory map. spread: of their
    lognormal lengths, as those of an encoder that does not normalise; 0: length 1.

    Made in the map itself, block by block. Each block has its own generator, so the numbers do not depend on threads.
    """
    vectors = np.lib.format.open_memmap(path, "w+", np.float32, (count, dim))
    make = lambda first: fill_block(torch.from_numpy(vectors[first : first + BLOCK]), first, seed, spread)  # noqa: E731
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        list(pool.map(make, range(0, count, BLOCK)))
    return np.load(path, mmap_mode="r")


def fill_block(block_PD, first, seed, spread=0.0):
    """Write the vectors of `make_vectors` from number `first` on, a multiple of BLOCK, into a tensor."""
    dim, generator = block_PD.shape[1], torch.Generator().manual_seed(seed * SEEDS + first // BLOCK)
    block_PD.normal_(generator=generator).mul_(dim**-0.5)
    block_PD += centres(dim)[torch.randint(CLUSTERS, (len(block_PD),), generator=generator)]
    block_PD /= block_PD.norm(dim=1, keepdim=True)
    if spread:
        block_PD *= torch.empty(len(block_PD), 1).log_normal_(0, spread, generator=generator)


@cache
def centres(dim):
    return torch.nn.functional.normalize(torch.randn(CLUSTERS, dim, generator=torch.Generator().manual_seed(0)))


def nearest(passages, queries, depth, threads):
    """Passage numbers [Q, depth] by products in float64 and a full sort, ties by the smaller number."""

    def product(first):
        return queries.astype(np.float64) @ passages[first : first + BLOCK].astype(np.float64).T

    with ThreadPoolExecutor(threads) as pool:
        scores_QP = np.hstack(list(pool.map(product, range(0, len(passages), BLOCK)))).astype(np.float32)
    return np.argsort(-scores_QP, axis=1, kind="stable")[:, :depth]
