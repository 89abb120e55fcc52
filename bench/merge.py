"""The merge of negatives: the stage's arrays against loops over text ids, as in the papers' released code.

    python bench/merge.py [--queries 2000] [--depth 200] [--pool 60] [--whole 500000]

It merges an Episode 2. The positive is filtered out of two retrievals. Half of the pool is drawn from them and half
from the last pool, which is as long as a retrieval, without replacement. --whole also merges that many queries with the
stage alone, between files as in the workflow, and prints its seconds and the peak memory of the process, which includes
the pages of memory-mapped files that were read.
"""

import random
import resource
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np

from rounds import interleaved, parser, report
from teleport.arrays import Ragged, Run
from teleport.negatives.budget import FIELDS
from teleport.negatives.candidates import blocks
from teleport.negatives.draw import hash_ids
from teleport.negatives.draws.uniform import choose
from teleport.negatives.merge import BLOCK_SLOTS, Filters, Merge, Scores, never_negative
from teleport.negatives.pool import Items, Pool, PoolWriter, read_pool
from teleport.negatives.retrieved import Retrieval
from teleport.negatives.sources.momentum import Momentum
from teleport.settings.negatives import mixture_counts
from teleport.settings.pool import Draw
from teleport.settings.pool import Pool as Settings

PASSAGES, BLOCK = 1_000_000, 10_000


def retrievals(queries, depth, lists=2, seed=0):
    """Lists of different random passages per query, int32 [lists, queries, depth]; passage q is q's positive."""
    starts, stride = np.random.default_rng(seed).integers(PASSAGES, size=(lists, queries, 1)), 7919
    ids = ((starts + stride * np.arange(depth)) % PASSAGES).astype(np.int32)
    ids[:2, :, 0] = np.arange(queries)  # the positive is retrieved first, and has to be filtered out
    return ids


def make_merge(ids, pool, scores=None, last_pool=None):
    """The `Merge` of the stage from two retrievals [2, queries, depth] and, in Episode 2, the `Pool` of Episode 1."""
    queries, episode, names = ids.shape[1], 2 if last_pool else 1, ["query", "lookahead"]
    scores = np.zeros(ids[0].shape, np.float32) if scores is None else scores
    counts = mixture_counts(pool, [*names, "momentum"] if last_pool else names, alpha=0.5, beta=0.5)
    draws = {name: Draw(count=count, place=place) for place, (name, count) in enumerate(counts.items())}
    positives = Ragged(np.arange(queries + 1), np.arange(queries, dtype=np.int32))
    sources = {
        name: Retrieval(Run(lists, scores, np.arange(queries)), positives, scored=name == "query")
        for name, lists in zip(names, ids, strict=False)
    }
    sources |= {"momentum": Momentum(last_pool, positives, "momentum")} if last_pool else {}
    job = SimpleNamespace(settings=Settings(episode=episode, seed=0, sources=draws), inputs={})
    scores = Scores(job, queries)
    hashes_Q = hash_ids([f"q{i}" for i in range(queries)])
    uniform = dict.fromkeys(sources, (None, choose))
    filters, named = Filters(job, scores, queries), "row {} with passage {}".format
    refused = partial(never_negative, positives, PASSAGES)
    return Merge(job.settings, sources, hashes_Q, uniform, scores, filters, named, refused)


def blocks_of(merge):
    """(first, last) of the blocks of queries that a merge takes at a time."""
    return blocks([source.widths_Q for source in merge.sources.values()], 0, len(merge.hashes_Q), BLOCK_SLOTS)


def merge_arrays(merge):
    """Merge all blocks; returns the number of negatives."""
    return sum(int(merge.block(first, last)[0].sum()) for first, last in blocks_of(merge))


def as_items(ids):
    """The flat `Items` of Episode 1 of lists of passages [queries, depth]."""
    ranks = np.tile(np.arange(1, ids.shape[1] + 1), len(ids))
    values = {"passages": ids.ravel(), "sources": ranks * 0 + 1, "first_episodes": ranks * 0 + 1}
    values |= {"ranks": ranks, "scores": -ranks}
    return Items(*(values[name].astype(dtype) for name, dtype in FIELDS.items()))


def merge_text_ids(lists, positives, counts):
    """Loops over lists of text ids: filter, shuffle, keep the first of each, concatenate."""
    draw, merged = random.Random(0), {}
    for query, positive in positives.items():
        merged[query] = []
        for retrieved, count in zip(lists, counts, strict=True):
            negatives = [passage for passage in retrieved[query] if passage not in positive]
            draw.shuffle(negatives)
            merged[query] += negatives[:count]
    return sum(map(len, merged.values()))


def write_inputs(folder, queries, depth):
    """Write ids.npy (two retrievals), scores.npy and last/ (the last pool), block by block."""
    ids = np.lib.format.open_memmap(folder / "ids.npy", "w+", np.int32, (2, queries, depth))
    scores = np.lib.format.open_memmap(folder / "scores.npy", "w+", np.float32, (queries, depth))
    (folder / "last").mkdir()
    writer = PoolWriter(lambda name: folder / "last" / name, ["query"])
    for first in range(0, queries, BLOCK):
        block = retrievals(min(BLOCK, queries - first), depth, 3, first)
        block[:2, :, 0] += first
        ids[:, first : first + BLOCK], scores[first : first + BLOCK] = block[:2], -np.arange(depth)
        writer.append(np.full(block.shape[1], depth), as_items(block[2]))
    writer.close()


def merge_whole(queries, depth, pool):
    """{figure: value} of one merge of many queries from and to files."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, queries, depth)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ids, scores = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("ids", "scores"))
        started = time.perf_counter(), time.process_time()
        merge = make_merge(ids, pool, scores, read_pool(lambda name: folder / "last" / name))
        (folder / "merged").mkdir()
        writer = PoolWriter(lambda name: folder / "merged" / name, merge.names)
        for first, last in blocks_of(merge):
            writer.append(*merge.block(first, last))
        negatives = int(writer.close()[-1])
        seconds = time.perf_counter() - started[0], time.process_time() - started[1]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "whole, seconds": seconds[0],
        "whole, processor seconds": seconds[1],
        "whole, negatives": negatives,
        "whole, peak memory in GB": memory * 1024 / 1e9,
        "peak memory before it in GB": before * 1024 / 1e9,
    }


def main(arguments=None):
    sizes = {"queries": 2000, "depth": 200, "pool": 60, "whole": 0}
    arguments = parser("Merging against loops.", **sizes).parse_args(arguments)
    figures = merge_whole(arguments.whole, arguments.depth, arguments.pool) if arguments.whole else {}
    ids = retrievals(arguments.queries, arguments.depth, 3)
    lists = [{f"q{q}": [f"d{d}" for d in row] for q, row in enumerate(part.tolist())} for part in ids]
    positives = {f"q{q}": {f"d{q}"} for q in range(arguments.queries)}
    last_pool = Pool(["query"], np.arange(arguments.queries + 1) * arguments.depth, as_items(ids[2]))
    counts = make_merge(ids, arguments.pool, None, last_pool).wanted
    variants = {
        "loops over text ids": lambda: merge_text_ids(lists, positives, counts.values()),
        "stage": lambda: merge_arrays(make_merge(ids, arguments.pool, None, last_pool)),
    }
    figures |= {f"negatives, {name}": run() for name, run in variants.items()}
    seconds = interleaved(variants, arguments.rounds)
    report("merge", seconds, ("loops over text ids",), arguments.queries, "queries", arguments, **figures)


if __name__ == "__main__":
    main()
