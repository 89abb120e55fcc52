"""What negatives consist of: sources, episodes of first encounter, overlap, and those that swing back.

The negatives of an episode are *pairs* of a query and a passage, each as one int64: the query's row times 2^32 plus the
passage's. A set of pairs is an array of them, sorted and without repetition.
"""

import numpy as np

MOMENTUM = "momentum"
SWINGS = {2: "A", 3: "B"}  # the paper's classes, by the episode in which a negative was in before it was out


def flat_slots(offsets, rows):
    """Where the values of some lists of a `Ragged` lie, end to end, and the list of each: two int64 arrays."""
    starts, lengths = offsets[rows], offsets[rows + 1] - offsets[rows]
    lists = np.repeat(rows, lengths)
    before = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(starts, lengths) + np.arange(len(lists)) - before, lists


def pairs_of(queries, passages):
    """The set of pairs of some queries and passages (int arrays of one length)."""
    pairs = np.sort((queries.astype(np.int64) << 32) | passages.astype(np.int64))  # np.unique hashes, which is slower
    return pairs[np.diff(pairs, prepend=-1) > 0]


def searched_pairs(run, rows, positives):
    """The pairs that a `Run` found for the queries `rows` (sorted), without their positives (`Ragged`)."""
    lines = np.flatnonzero(np.isin(run.rows, rows))
    ids, queries = run.ids[lines], run.rows[lines]
    filled = ids >= 0
    slots, lists = flat_slots(positives.offsets, rows)
    known = pairs_of(lists, np.asarray(positives.values[slots]))
    return np.setdiff1d(pairs_of(np.repeat(queries, filled.sum(axis=1)), ids[filled]), known, assume_unique=True)


def first_encounters(episodes):
    """int [E, E]: line e, column f: pairs of episode e that were first met in episode f (ANCE-Tele Figures 5, 9, 10).

    episodes: the set of pairs of each
    """
    pairs, where = np.unique(np.concatenate(episodes), return_index=True)
    ends = np.cumsum([len(each) for each in episodes])
    firsts = np.searchsorted(ends, where, side="right")
    found = [firsts[np.searchsorted(pairs, each)] for each in episodes]
    return np.array([np.bincount(each, minlength=len(episodes)) for each in found])


def overlaps(episodes):
    """float [E, E]: line e, column f: the share of the pairs of episode e that f has too; NaN for an empty e."""
    shares = np.full((len(episodes), len(episodes)), np.nan)
    for e, mine in enumerate(episodes):
        for f, other in enumerate(episodes):
            if len(mine):
                shares[e, f] = np.isin(mine, other, assume_unique=True).mean()
    return shares


def swings(episodes):
    """{e: pairs that are in episode e (from 1), out of the next one and in again in the one after} (Table 10).

    The paper's class A is e = 2, its class B is e = 3.
    """
    found = {}
    for e in range(len(episodes) - 2):
        back = np.intersect1d(episodes[e], episodes[e + 2], assume_unique=True)
        found[e + 1] = np.setdiff1d(back, episodes[e + 1], assume_unique=True)
    return found


def new_near_positive(episodes, near):
    """[(new, near)] per episode from 2: how many pairs no earlier one had, and how many of these were near (Figure 7).

    near: per episode the pairs of a query and a neighbour of its positive, or None; those of the episode before count,
    since they are what looking ahead would have shown it.
    """
    counts, met = [], episodes[0]
    for e in range(1, len(episodes)):
        new = np.setdiff1d(episodes[e], met, assume_unique=True)
        before = near[e - 1]
        counts.append((len(new), None if before is None else int(np.isin(new, before, assume_unique=True).sum())))
        met = np.union1d(met, new)
    return counts


def source_names(sources, flags):
    """The name of the source of each negative (list of str) from their bit flags, uint8.

    What came through momentum is "momentum", whatever found it at first; united duplicates are "lookahead + query".
    """
    names = {}
    for value in np.unique(sources).tolist():
        if value & flags[MOMENTUM]:
            names[value] = MOMENTUM
        else:
            names[value] = " + ".join(sorted(name for name, flag in flags.items() if value & flag))
    return [names[value] for value in sources.tolist()]


def count_sources(sources, flags):
    """{name of a source: number of negatives}, as `source_names` names them."""
    values, counts = np.unique(sources, return_counts=True)
    found = {}
    for name, count in zip(source_names(values, flags), counts.tolist(), strict=True):
        found[name] = found.get(name, 0) + count
    return found
