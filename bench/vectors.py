"""Vectors to search: random ones, as many as MS MARCO's passages if wanted, or those of a finished search."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from teleport.running.artefact import Artefact

CLUSTERS = 500
BLOCK = 8192  # made at a time
SEEDS = 2**20  # more than there are blocks; torch's generator on a CPU uses 32 bits


def make_vectors(path, count, dim, seed, threads):
    """Vectors of length 1 around common centres, as texts lie around topics: a float32 [count, dim] memory map.

    Made in the map itself, block by block. Each block has its own generator, so the numbers do not depend on threads.
    """
    centres = torch.nn.functional.normalize(torch.randn(CLUSTERS, dim, generator=torch.Generator().manual_seed(0)))
    vectors = np.lib.format.open_memmap(path, "w+", np.float32, (count, dim))

    def make(first):
        generator = torch.Generator().manual_seed(seed * SEEDS + first // BLOCK)
        block = torch.from_numpy(vectors[first : first + BLOCK])
        block.normal_(generator=generator).mul_(dim**-0.5)
        block += centres[torch.randint(CLUSTERS, (len(block),), generator=generator)]
        block /= block.norm(dim=1, keepdim=True)

    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        list(pool.map(make, range(0, count, BLOCK)))
    return np.load(path, mmap_mode="r")


def read_vectors(retrieve, queries):
    """(passages, at most `queries` queries; float32) that a finished `retrieve` stage has searched. retrieve: its
    folder"""
    search = Artefact(retrieve)
    files = {"passages": "passages.npy", "queries": f"queries.{search.manifest['settings']['split']}.npy"}
    read = {role: Artefact(search.folder.parents[1] / search.manifest["inputs"][role]) for role in files}
    passages, lines = (np.load(read[role].path(file), mmap_mode="r") for role, file in files.items())
    return passages.astype(np.float32, copy=False), lines[:queries].astype(np.float32)


def nearest(passages, queries, depth, threads):
    """Passage numbers [Q, depth] by products in float64 and a full sort, ties by the smaller number."""

    def product(first):
        return queries.astype(np.float64) @ passages[first : first + BLOCK].astype(np.float64).T

    with ThreadPoolExecutor(threads) as pool:
        scores_QP = np.hstack(list(pool.map(product, range(0, len(passages), BLOCK)))).astype(np.float32)
    return np.argsort(-scores_QP, axis=1, kind="stable")[:, :depth]
