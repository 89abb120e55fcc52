"""The section on negatives: what each pool holds, what was mined, and what comes and goes between episodes."""

import numpy as np

from teleport.report.page.composition import (
    count_sources,
    first_encounters,
    flat_slots,
    new_near_positive,
    overlaps,
    pairs_of,
    searched_pairs,
    source_names,
    swings,
)
from teleport.runtime.seed import derive_seed

MOST_QUERIES = 20_000  # whose negatives are counted; of more, as many are drawn
SCORED_QUERIES = 500  # whose negatives are scored by their vectors
SUSPECT = 0.95  # share of the positive's score from which a negative may be an unjudged positive
RANK_BIN = 10
GAP_BINS = np.linspace(-0.5, 1.5, 41)  # of gaps in shares of the positive's score
SEED = 42


def sample(number, at_most, name):
    """At most `at_most` of the rows 0 to number - 1, drawn without replacement, sorted (int64)."""
    if number <= at_most:
        return np.arange(number)
    return np.sort(np.random.default_rng(derive_seed(SEED, "report", name)).choice(number, at_most, replace=False))


def negatives_of(reader, trajectory, flags):
    """What the page says of the negatives of one experiment and seed (plain JSON); None without a finished pool."""
    episodes = [(n, each) for n, each in enumerate(trajectory["episodes"], 1) if reader.finished(each["pool"])]
    if not episodes:
        return None
    numbers, stages = [number for number, _ in episodes], [each for _, each in episodes]
    rows = sample(len(reader.pool(stages[0]["pool"]).offsets) - 1, MOST_QUERIES, "negatives")
    positives = [reader.positives(each["positives"]) for each in stages]
    trained = [pool_pairs(reader.pool(each["pool"]), rows) for each in stages]
    said = {"queries": len(rows), "episodes": numbers, "seed": trajectory["seed"]}
    known = zip(stages, positives, strict=True)
    said["pools"] = [pool_facts(reader, each, rows, those, flags) for each, those in known]
    said["trained"] = comings_and_goings(numbers, trained)
    if all(reader.finished(each["query"]) for each in stages):
        found = zip(stages, positives, strict=True)
        mined = [searched_pairs(reader.search(each["query"]), rows, known) for each, known in found]
        said["mined"] = comings_and_goings(numbers, mined) | {"new": new_pairs(reader, stages, positives, rows, mined)}
    return said


def pool_pairs(pool, rows):
    """The set of pairs of a `Pool`, of the queries `rows`."""
    slots, queries = flat_slots(pool.offsets, rows)
    return pairs_of(queries, np.asarray(pool.items.passages[slots]))


def comings_and_goings(numbers, pairs):
    """First encounters, overlaps and swings of the pairs of some episodes (plain JSON)."""
    shares = np.round(overlaps(pairs), 4)
    return {
        "pairs": [len(each) for each in pairs],
        "first": first_encounters(pairs).tolist(),
        "overlap": [[None if np.isnan(share) else share for share in line] for line in shares.tolist()],
        "swings": {numbers[e - 1]: len(found) for e, found in swings(pairs).items()},
    }


def new_pairs(reader, stages, positives, rows, mined):
    """`new_near_positive` with the neighbours of positives that each episode has retrieved."""
    near = [
        searched_pairs(reader.search(each["lookahead"]), rows, known) if reader.finished(each["lookahead"]) else None
        for each, known in zip(stages, positives, strict=True)
    ]
    return new_near_positive(mined, near)


def pool_facts(reader, stages, rows, positives, flags):
    """What one pool holds: counts by source, ranks, score gaps, and what the merge recorded."""
    pool, facts = reader.pool(stages["pool"]), reader.facts(stages["pool"])
    slots, _ = flat_slots(pool.offsets, rows)
    sources, ranks = (np.asarray(getattr(pool.items, name)[slots]) for name in ("sources", "ranks"))
    said = {"stage": stages["pool"], "negatives": len(slots), "sources": count_sources(sources, flags)}
    kept = ("wanted", "drawn", "short_queries", "empty_queries", "overlap", "filters")
    said["facts"] = {name: facts[name] for name in kept if name in facts}
    said["ranks"] = rank_bins(sources, ranks, flags)
    return said | score_gaps(reader, stages, rows, pool, positives)


def rank_bins(sources, ranks, flags):
    """{source: [negatives at ranks 1-10, 11-20, ...]} of what a retrieval found in this episode."""
    found = {}
    for value in np.unique(sources[ranks > 0]).tolist():
        if not value & flags["momentum"]:
            name = source_names(np.array([value]), flags)[0]
            found[name] = np.bincount((ranks[(sources == value) & (ranks > 0)] - 1) // RANK_BIN).tolist()
    return found


def score_gaps(reader, stages, rows, pool, positives):
    """Gaps between the score of the first positive and those of the negatives under the model that mined them.

    {"gaps": [numbers in GAP_BINS], "suspects": share of negatives with SUSPECT of the positive's score or more,
    "scored": number of negatives}, for some of the queries; a gap is a share of the size of the positive's score. {}
    where there are no vectors.
    """
    query_vectors, passage_vectors = vectors_of(reader, stages)
    if passage_vectors is None:
        return {}
    first = positives.offsets[:-1]
    rows = rows[positives.lengths[rows] > 0]
    rows = rows[sample(len(rows), SCORED_QUERIES, "scores")]
    slots, queries = flat_slots(pool.offsets, rows)
    if not len(slots):
        return {}
    targets = np.asarray(positives.values[first[queries]])
    negative = products(query_vectors, queries, passage_vectors, np.asarray(pool.items.passages[slots]))
    positive = products(query_vectors, queries, passage_vectors, targets)
    gaps = (positive - negative) / np.maximum(np.abs(positive), 1e-12)
    counts = np.histogram(np.clip(gaps, GAP_BINS[0], GAP_BINS[-1]), GAP_BINS)[0]
    suspects = float(np.mean(gaps <= 1 - SUSPECT))
    return {"gaps": counts.tolist(), "suspects": suspects, "scored": len(slots), "scored_queries": len(rows)}


def vectors_of(reader, stages):
    """(vectors of the training queries, of the passages) under the model that mined an episode; None, None without."""
    if not (reader.finished(stages["queries"]) and reader.finished(stages["passages"])):
        return None, None
    queries = reader.vectors(stages["queries"], "queries.train.npy")
    passages = reader.vectors(stages["passages"], "passages.npy")
    whole = passages is not None and len(passages) == reader.facts(reader.collection)["num_passages"]
    return (queries, passages) if whole and queries is not None else (None, None)


def products(queries_QD, rows, passages_PD, passages, block=2**14):
    """float32 [n]: the inner product of each pair of a query row and a passage row, block by block."""
    found = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), block):
        part = slice(start, start + block)
        sides = (np.asarray(queries_QD[rows[part]], np.float32), np.asarray(passages_PD[passages[part]], np.float32))
        found[part] = np.einsum("nd,nd->n", *sides)
    return found
