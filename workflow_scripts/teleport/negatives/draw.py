"""Which candidates are drawn: sampling without replacement, the same on every machine."""

import hashlib

import numpy as np
import pyarrow.parquet as pq

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's increment
NEVER = np.uint64(2**64 - 1)


def hash_bytes(pieces):
    """A 64-bit hash of each bytes-like object, uint64."""
    return np.frombuffer(b"".join(hashlib.blake2b(piece, digest_size=8).digest() for piece in pieces), dtype="<u8")


def hash_ids(query_ids):
    """A 64-bit hash of each text id, uint64 [Q]: a query's draws depend neither on its row nor on its neighbours."""
    return hash_bytes(text.encode("utf-8") for text in query_ids)


def hashes_of_job(job):
    """The hashes of the ids of all training queries, uint64 [Q]."""
    table = pq.read_table(job.input("collection", "queries.train.parquet"), columns=["query_id"])
    return hash_ids(table["query_id"].to_pylist())


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
    slot_mask = np.uint64(2 ** num_slots.bit_length() - 1)
    draws_QS = (draws_QS & ~slot_mask) | np.arange(num_slots, dtype=np.uint64)
    draws_QS[~available_QS] = NEVER  # no draw has this value: its slot part would be at least num_slots
    draws_QN = np.partition(draws_QS, max(0, count - 1), axis=1)[:, :count]
    return (draws_QN & slot_mask).astype(np.int64)


def slots_within(lengths_Q):
    """bool [Q, S], S the longest length: True in the first lengths_Q[q] slots of row q."""
    return np.arange(lengths_Q.max(initial=0)) < lengths_Q[:, None]


def in_slots(lengths_Q, values, empty=0):
    """[Q, S]: the first lengths_Q[q] slots of row q have the next of all `values`, the others are `empty`."""
    within_QS = slots_within(lengths_Q)
    values_QS = np.full(within_QS.shape, empty, values.dtype)
    values_QS[within_QS] = values.ravel()
    return values_QS
