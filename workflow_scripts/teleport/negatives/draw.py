"""Drawing candidates without replacement, the same on every machine; how is decided by a module in `draws`."""

import hashlib
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's increment


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


class Candidates(NamedTuple):
    """What a draw sees of a source and a block of queries: S slots of each query, of which some may be drawn.
    available_QS: bool; hashes_Q: uint64, see `hash_ids`; seed: int, of the source and the episode; scores_QS: float32,
    of the passages under the checkpoint that mines, NaN where not available; positive_scores_Q: those of the positives;
    both None where no draw or filter needs scores (settings/registry.py)"""

    available_QS: np.ndarray
    hashes_Q: np.ndarray
    seed: int
    scores_QS: np.ndarray | None = None
    positive_scores_Q: np.ndarray | None = None

    def random_QS(self):
        """uint64 [Q, S]: slot s of query q has number s of a SplitMix64 stream that starts from (hash of q, seed)."""
        streams_Q = splitmix64(self.hashes_Q ^ np.uint64(self.seed))
        return splitmix64(streams_Q[:, None] + GOLDEN * np.arange(1, self.available_QS.shape[1] + 1, dtype=np.uint64))


def draw_slots(choose, candidates, count):
    """Draw `count` of each query's slots without replacement, or all where fewer: slots_QN (int64, ascending, 0 where
    not filled) and filled_QN (bool), N = min(count, S). choose: function of a module in `draws`, with its settings"""
    num_slots = candidates.available_QS.shape[1]
    if count < num_slots:
        slots_QN = choose(candidates, count)
    else:  # all of them: no draw decides anything
        slots_QN = np.where(candidates.available_QS, np.arange(num_slots), num_slots)
    slots_QN.sort(axis=1)
    filled_QN = slots_QN < num_slots
    return np.where(filled_QN, slots_QN, 0), filled_QN
