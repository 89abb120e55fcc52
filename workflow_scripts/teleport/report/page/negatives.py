"""The section on negatives: those of each pool, all that were mined, and those that change between episodes.

The negatives of an episode are *pairs* of a query and a passage, each as one int64: the query's row times 2^32 plus the
passage's. A set of pairs is an array of them, sorted and without repetition.
"""

from collections import Counter

import numpy as np

from teleport.arrays import pair_keys, places_of, rows_and_values
from teleport.seed import derive_seed
from teleport.settings.section import Part, rows_of_part

MOMENTUM = "momentum"
MOST_QUERIES = 10_000  # whose negatives are counted; if there are more, this many are drawn
SCORED_QUERIES = 500  # whose negatives are scored by their vectors
SUSPECT = 0.95  # share of the positive's score from which a negative may be an unjudged positive
RANK_BIN = 10
GAP_BINS = np.linspace(-0.5, 1.5, 41)  # of gaps in shares of the positive's score
SEED = 42


def sample(number, at_most, name):
    """Return at most `at_most` of the rows 0 to number - 1, drawn without replacement, sorted (int64)."""
    if number <= at_most:
        return np.arange(number)
    return np.sort(np.random.default_rng(derive_seed(SEED, "report", name)).choice(number, at_most, replace=False))


def finished_pools(reader, trajectory):
    """{number: stages} of the episodes of an experiment and seed whose pool is finished."""
    return {n: each for n, each in enumerate(trajectory["episodes"], 1) if reader.finished(each["pool"])}


def negatives_of(reader, trajectory):
    """Return the page's content on the negatives of one experiment and seed; None without a finished pool.

    {seed, queries: number of those that are counted, pools: {episode: `pool_facts`}, trained: `comings_and_goings` of
    the pools, mined: those of all that was mined, if every episode has searched}
    """
    episodes = finished_pools(reader, trajectory)
    if not episodes:
        return None
    first = next(iter(episodes.values()))
    rows = sample(len(reader.pool(first["pool"]).offsets) - 1, MOST_QUERIES, "negatives")
    pools, trained, mined, near, spans = {}, [], [], [], []
    for number, stages in episodes.items():
        spans.append(mined_span(reader, stages["pool"]))
        positives = reader.positives(stages["positives"])
        pools[number] = pool_facts(reader, stages, rows, positives)
        trained.append(pairs_of(*flat(reader.pool(stages["pool"]), rows, "passages")))
        for role, pairs in (("query", mined), ("lookahead", near)):
            searched = reader.finished(stages[role])
            pairs.append(searched_pairs(reader.search(stages[role]), rows, positives) if searched else None)
    content = {"seed": trajectory["seed"], "queries": len(rows), "pools": pools}
    content["trained"] = comings_and_goings(list(pools), trained, near, spans)
    if all(pairs is not None for pairs in mined):
        content["mined"] = comings_and_goings(list(pools), mined, near, spans)
    return content


def mined_span(reader, name):
    """The first training query that a merge stage has mined for, and the one after the last (rows)."""
    part, total = reader.artefact(name).manifest["settings"].get("part"), len(reader.pool(name).offsets) - 1
    return rows_of_part(part and Part(**part), total)


def flat(pool, rows, *fields):
    """The queries of the negatives that a `Pool` has for the queries `rows`, and some fields of these: flat arrays."""
    slots = places_of(pool.offsets, rows)
    queries = np.repeat(rows, np.diff(pool.offsets)[rows])
    return queries, *(np.asarray(getattr(pool.items, name)[slots]) for name in fields)


def pairs_of(queries, passages):
    """The set of pairs of some queries and passages (int arrays of one length)."""
    pairs = np.sort(pair_keys(queries, passages))  # np.unique hashes, which is slower
    return pairs[np.diff(pairs, prepend=-1) > 0]


def searched_pairs(run, rows, positives):
    """The pairs of a `Run` for the queries `rows` (sorted), without their positives (`Ragged`)."""
    lines = np.flatnonzero(np.isin(run.rows, rows))
    ids, queries = run.ids[lines], run.rows[lines]
    filled = ids >= 0
    slots = places_of(positives.offsets, rows)
    known = pairs_of(np.repeat(rows, positives.lengths[rows]), np.asarray(positives.values[slots]))
    return np.setdiff1d(pairs_of(np.repeat(queries, filled.sum(axis=1)), ids[filled]), known, assume_unique=True)


def comings_and_goings(numbers, pairs, near, spans):
    """First encounters, overlaps, swings and new pairs of some episodes; numbers: of the episodes; spans: the
    `mined_span` of each."""
    shares = np.round(overlaps(pairs), 4)
    return {
        "pairs": dict(zip(numbers, map(len, pairs), strict=True)),
        "first": first_encounters(pairs).tolist(),
        "overlap": np.where(np.isnan(shares), None, shares).tolist(),
        "new": new_near_positive(pairs, near),
        "swings": {numbers[e - 1]: len(swung) for e, swung in swings(pairs, spans).items()},
    }


def first_encounters(episodes):
    """int [E, E]: line e, column f: pairs of episode e that were first met in episode f (ANCE-Tele Figures 5, 9, 10).

    episodes: the set of pairs of each
    """
    pairs, where = np.unique(np.concatenate(episodes), return_index=True)
    ends = np.cumsum([len(each) for each in episodes])
    firsts = np.searchsorted(ends, where, side="right")
    return np.array([np.bincount(firsts[np.searchsorted(pairs, e)], minlength=len(episodes)) for e in episodes])


def overlaps(episodes):
    """float [E, E]: line e, column f: the share of the pairs of episode e that f has too; NaN for an empty e."""
    shares = [[np.isin(e, f, assume_unique=True).mean() if len(e) else np.nan for f in episodes] for e in episodes]
    return np.array(shares)


def swings(episodes, spans):
    """{e: pairs in episode e (from 1), out of the next, in again} (Table 10: class A is e = 2, class B is e = 3).

    spans: (first, end) of the query rows that each episode has mined for; only queries of all three count, and without
    one e is left out
    """
    pairs = {}
    for e in range(1, len(episodes) - 1):
        firsts, ends = zip(*spans[e - 1 : e + 2], strict=True)
        if max(firsts) < min(ends):
            back = np.intersect1d(episodes[e - 1], episodes[e + 1], assume_unique=True)
            out = np.setdiff1d(back, episodes[e], assume_unique=True)
            rows = rows_and_values(out)[0]
            pairs[e] = out[(rows >= max(firsts)) & (rows < min(ends))]
    return pairs


def new_near_positive(episodes, near):
    """[(new, near)] per episode from 2: how many pairs no earlier one had, and how many of these were near (Figure 7).

    near: per episode the pairs of a query and a neighbour of its positive, or None. Those of the episode before count:
    a search with the positives (lookahead) would have mined them.
    """
    counts, earlier = [], episodes[0]
    for pairs, before in zip(episodes[1:], near, strict=False):
        new = np.setdiff1d(pairs, earlier, assume_unique=True)
        counts.append((len(new), None if before is None else int(np.isin(new, before, assume_unique=True).sum())))
        earlier = np.union1d(earlier, new)
    return counts


def source_name(sources, bits):
    """The name of a negative's source from its `sources` (int); bits: those of its `Pool`.

    A negative that came through momentum is "momentum", whatever its first source; united duplicates are "lookahead +
    query".
    """
    if sources & bits.get(MOMENTUM, 0):
        return MOMENTUM
    return " + ".join(sorted(name for name, bit in bits.items() if sources & bit))


def count_sources(sources, bits):
    """{name of a source: number of negatives}, from the `sources` of negatives."""
    counts = Counter()
    for value in np.unique(sources).tolist():
        counts[source_name(value, bits)] += int((sources == value).sum())
    return dict(counts)


def pool_facts(reader, stages, rows, positives):
    """Return the content of one pool: counts by source, by source and rank (1-10, 11-20, ...), score gaps, facts of the
    merge."""
    pool = reader.pool(stages["pool"])
    _, sources, ranks = flat(pool, rows, "sources", "ranks")
    content = {"stage": stages["pool"], "facts": reader.facts(stages["pool"]), "ranks": {}}
    for value in np.unique(sources[ranks > 0]).tolist():
        if (name := source_name(value, pool.bits)) != MOMENTUM:
            tens = (ranks[(sources == value) & (ranks > 0)] - 1) // RANK_BIN
            content["ranks"][name] = np.bincount(tens).tolist()
    content["sources"] = count_sources(sources, pool.bits)
    if reader.finished(relabelled := stages.get("relabelled")):
        content["relabelled"] = reader.facts(relabelled)
    return content | score_gaps(reader, stages, rows, pool, positives)


def score_gaps(reader, stages, rows, pool, positives):
    """Gaps between the score of the first positive and those of the negatives under the model that mined them.

    {"gaps": [numbers in GAP_BINS], "suspects": share of negatives with SUSPECT of the positive's score or more,
    "scored": number of negatives}, for some of the queries; a gap is a share of the size of the positive's score. {}
    where there are no vectors.
    """
    scorer = reader.scorer(stages["queries"], stages["passages"])
    if scorer is None:
        return {}
    rows = rows[positives.lengths[rows] > 0]
    rows = rows[sample(len(rows), SCORED_QUERIES, "scores")]
    queries, negatives = flat(pool, rows, "passages")
    if not len(negatives):
        return {}
    targets = np.asarray(positives.values[positives.offsets[queries]])
    negative, positive = (scorer.score(queries, passages) for passages in (negatives, targets))
    gaps = (positive - negative) / np.maximum(np.abs(positive), 1e-12)
    counts = np.histogram(np.clip(gaps, GAP_BINS[0], GAP_BINS[-1]), GAP_BINS)[0]
    suspects = float(np.mean(gaps <= 1 - SUSPECT))
    return {"gaps": counts.tolist(), "suspects": suspects, "scored": len(negatives), "scored_queries": len(rows)}
