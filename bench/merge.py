"""The merge of negatives: the stage's arrays against loops over text ids, as released code of the papers does it.

    python bench/merge.py [--queries 2000] [--depth 200] [--pool 60]

Both filter the positive out of two retrievals and draw half of the pool from each, without replacement.
"""

import random
from types import SimpleNamespace

import numpy as np

from rounds import interleaved, parser, report
from teleport.negatives.draw import hash_ids
from teleport.negatives.merge import Merge
from teleport.negatives.pool import POSITIVE, QUERY
from teleport.negatives.sources import Retrieval

PASSAGES = 100_000


def retrievals(queries, depth):
    """Two lists of different random passages per query, int32 [queries, depth] each; passage q is q's positive."""
    rng = np.random.default_rng(0)
    starts, stride = rng.integers(PASSAGES, size=(2, queries, 1)), 7919
    ids = ((starts + stride * np.arange(depth)) % PASSAGES).astype(np.int32)
    ids[:, :, 0] = np.arange(queries)  # the positive is retrieved first, and has to be filtered out
    return ids


def make_merge(ids, pool):
    """The `Merge` of the stage in Episode 1, and the number of its queries."""
    queries, depth = ids.shape[1:]
    scores = np.zeros((queries, depth), np.float32)
    positives = np.arange(queries + 1), np.arange(queries, dtype=np.int32)
    sources = {
        name: Retrieval(ids[place], scores, np.arange(queries), positives, flag, 1)
        for place, (name, flag) in enumerate((("query", QUERY), ("positive", POSITIVE)))
    }
    settings = SimpleNamespace(
        mode="mixture", sources=["query", "positive"], pool=pool, beta=0.5, seed=0, episode=1, keep_duplicates=True
    )
    return Merge(settings, sources, hash_ids([f"q{i}" for i in range(queries)]))


def merge_arrays(merge, queries):
    """All blocks of a merge, as the stage goes through them; returns the number of negatives."""
    step = merge.block_queries
    return sum(int(merge.block(q, min(q + step, queries))[0].sum()) for q in range(0, queries, step))


def merge_text_ids(lists, positives, pool):
    """Loops over lists of text ids: filter, shuffle, keep the first half-pool of each, concatenate."""
    draw, merged = random.Random(0), {}
    for query, positive in positives.items():
        merged[query] = []
        for retrieved in lists:
            negatives = [passage for passage in retrieved[query] if passage not in positive]
            draw.shuffle(negatives)
            merged[query] += negatives[: pool // 2]
    return sum(map(len, merged.values()))


def main(arguments=None):
    sizes = {"queries": 2000, "depth": 200, "pool": 60}
    arguments = parser("Merging against loops.", **sizes).parse_args(arguments)
    ids = retrievals(arguments.queries, arguments.depth)
    lists = [{f"q{q}": [f"d{d}" for d in row] for q, row in enumerate(part.tolist())} for part in ids]
    positives = {f"q{q}": {f"d{q}"} for q in range(arguments.queries)}
    variants = {
        "loops over text ids": lambda: merge_text_ids(lists, positives, arguments.pool),
        "stage": lambda: merge_arrays(make_merge(ids, arguments.pool), arguments.queries),
    }
    negatives = {f"negatives, {name}": run() for name, run in variants.items()}
    seconds = interleaved(variants, arguments.rounds)
    report("merge", seconds, ("loops over text ids",), arguments.queries, "queries", arguments, **negatives)


if __name__ == "__main__":
    main()
