"""How many negatives each source gives, and which ones: sampling without replacement, the same on every machine."""

import hashlib

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's increment
NEVER = np.uint64(2**64 - 1)


def mixture_counts(pool, sources, alpha=None, beta=None):
    """{source: negatives per query} of mode `mixture`; the counts sum to `pool` (ANCE-Tele, Appendix C).

    Shares: momentum alpha, lookahead ("positive") (1 - alpha) * beta, query (1 - alpha) * (1 - beta); a source that is
    not in `sources` leaves its share to the others. Rounding by largest remainder, ties to the earlier of query,
    positive, momentum. `alpha` is read with momentum alone, `beta` only with both query and positive.
    """
    new = 1 - alpha if "momentum" in sources else 1
    lookahead = beta if {"query", "positive"} <= set(sources) else float("positive" in sources)
    shares = {"query": new * (1 - lookahead), "positive": new * lookahead, "momentum": 1 - new}
    exact = {source: round(pool * shares[source], 9) for source in shares if source in sources}
    counts = {source: int(share) for source, share in exact.items()}
    by_remainder = sorted(counts, key=lambda source: counts[source] - exact[source])
    for source in by_remainder[: pool - sum(counts.values())]:
        counts[source] += 1
    return counts


def hash_ids(query_ids):
    """A 64-bit hash of each text id, uint64 [Q]: the draws of a query do not depend on its row or its neighbours."""
    digests = b"".join(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest() for text in query_ids)
    return np.frombuffer(digests, dtype="<u8")


def splitmix64(state):
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): uint64 array in, well mixed uint64 array out."""
    mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def draw_slots(available_QS, hashes_Q, seed, count):
    """Draw `count` of each query's available slots, uniformly and without replacement; all of them where fewer.

    `available_QS` bool, `hashes_Q` uint64 (see `hash_ids`), `seed` int. Slot s of query q has the draw s of a
    SplitMix64 stream that starts from (hash of q, seed), and the `count` smallest draws win.
    Returns slots_QN (int64, ascending, 0 where not filled) and filled_QN (bool), N = min(count, S).
    """
    num_slots = available_QS.shape[1]
    if count < num_slots:
        slots_QN = smallest_draws(available_QS, hashes_Q, seed, count)
    else:  # all of them: no draw decides anything
        slots_QN = np.where(available_QS, np.arange(num_slots), num_slots)
    slots_QN.sort(axis=1)
    filled_QN = slots_QN < num_slots
    return np.where(filled_QN, slots_QN, 0), filled_QN


def smallest_draws(available_QS, hashes_Q, seed, count):
    """The slots of the `count` smallest draws of each query, int64 in any order; numbers from S on are no slots."""
    num_slots = available_QS.shape[1]
    streams_Q = splitmix64(hashes_Q ^ np.uint64(seed))
    draws_QS = splitmix64(streams_Q[:, None] + GOLDEN * np.arange(1, num_slots + 1, dtype=np.uint64))
    # The low bits of a draw make way for its slot number, so that one partition of plain integers yields the slots.
    bits = np.uint64(num_slots.bit_length())
    slot_mask = (np.uint64(1) << bits) - np.uint64(1)
    draws_QS = (draws_QS & ~slot_mask) | np.arange(num_slots, dtype=np.uint64)
    draws_QS[~available_QS] = NEVER  # no draw has this value: its slot part would be at least num_slots
    draws_QN = np.partition(draws_QS, max(0, count - 1), axis=1)[:, :count]
    return (draws_QN & slot_mask).astype(np.int64)
