"""Draws candidates without replacement, the same on every machine; a module in `draws` decides how."""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from teleport.refusal import Refusal

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's increment


def hash_bytes(pieces):
    """A 64-bit hash of each bytes-like object, uint64."""
    return np.frombuffer(b"".join(hashlib.blake2b(piece, digest_size=8).digest() for piece in pieces), dtype="<u8")


def hash_ids(query_ids):
    """A 64-bit hash of each text id, uint64 [Q]: a query's draws depend neither on its row nor on its neighbours."""
    return hash_bytes(text.encode("utf-8") for text in query_ids)


def hashes_of_job(job):
    """The hashes of the ids of all training queries, uint64 [Q]."""
    table = pq.read_table(job.input("split.train", "queries.train.parquet"), columns=["query_id"])
    return hash_ids(table["query_id"].to_pylist())


def splitmix64(state):
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): uint64 array in, well mixed uint64 array out."""
    mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


class Candidates(NamedTuple):
    """The part of a source that a draw sees for a block of queries: S slots a query, some of which may be drawn.

    available_QS: bool; hashes_Q: uint64, see `hash_ids`; seed: int, of the source and the episode
    ranks_QS: int32, of the slots in their list, from 1 on, as negatives.ranks_after counts them; None without lists
    scores_QS, positive_scores_Q: float32, of the candidates and of the query's positive, by the scorer of the draw;
    anchor_scores_QS: of the candidates with the query's first positive in place of the query. Each is None if the
    draw's line in settings/registry.py does not need it, and NaN in a slot that is not available.
    named: function of a row and a slot, the query and the passage there, for messages
    """

    available_QS: np.ndarray
    hashes_Q: np.ndarray
    seed: int
    ranks_QS: np.ndarray | None = None
    scores_QS: np.ndarray | None = None
    positive_scores_Q: np.ndarray | None = None
    anchor_scores_QS: np.ndarray | None = None
    named: Callable = "row {} with slot {}".format

    def random_QS(self):
        """uint64 [Q, S]: slot s of query q has number s of a SplitMix64 stream that starts from (hash of q, seed)."""
        streams_Q = splitmix64(self.hashes_Q ^ np.uint64(self.seed))
        return splitmix64(streams_Q[:, None] + GOLDEN * np.arange(1, self.available_QS.shape[1] + 1, dtype=np.uint64))

    def gaps_QS(self):
        """float64 [Q, S]: the score of each candidate minus the positive's; 0 for a query without a scored
        positive, whose candidates weigh alike then."""
        gaps_QS = self.scores_QS.astype(np.float64) - self.positive_scores_Q[:, None]
        return np.where(np.isnan(self.positive_scores_Q)[:, None], 0.0, gaps_QS)


def draw_slots(choose, candidates, count):
    """Draw `count` of each query's slots without replacement, or all if fewer: slots_QN (int64, ascending, 0 if not
    filled) and filled_QN (bool), N = min(count, S). choose: function of a module in `draws`, with its settings. Raises
    ValueError if it does anything else."""
    num_queries, num_slots = candidates.available_QS.shape
    count = min(count, num_slots)
    slots_QN = np.sort(choose(candidates, count), axis=1) if num_slots else np.empty((num_queries, 0), np.int64)
    filled_QN = slots_QN < num_slots
    drawn_QN = np.where(filled_QN, slots_QN, 0)
    wrong = None
    if slots_QN.shape != (num_queries, count):
        wrong = f"an array of {slots_QN.shape}, not {(num_queries, count)}"
    elif (slots_QN[:, 1:] == slots_QN[:, :-1])[filled_QN[:, 1:]].any():
        wrong = "a slot twice for one query"
    elif (slots_QN < 0).any() or not np.take_along_axis(candidates.available_QS, drawn_QN, axis=1)[filled_QN].all():
        wrong = "a slot that is not available"
    if wrong:
        raise ValueError(f"{getattr(choose, 'func', choose).__module__}.choose drew {wrong}")
    return drawn_QN, filled_QN


def slots_of_smallest(keys_QS, available_QS, count):
    """int64 [Q, count]: the available slots with the smallest keys (float; of equal ones the first slot), then numbers
    from S on. A key of infinity is never taken."""
    keys_QS = np.where(available_QS, keys_QS, np.inf)
    slots_QN = np.argsort(keys_QS, axis=1, kind="stable")[:, :count]
    taken_QN = np.take_along_axis(keys_QS, slots_QN, axis=1) < np.inf
    return np.where(taken_QN, slots_QN, available_QS.shape[1])


def slots_by_weight(candidates, log_weights_QS, count):
    """int64 [Q, count]: slots drawn one after another without replacement, each with a chance proportional to its
    weight among those left; then numbers from S on. A slot of weight 0 (log -inf) is never drawn.

    The smallest exponential keys -log(u) / w are taken (Efraimidis and Spirakis 2006, Algorithm A). Their logarithms
    are compared, so that no weight is too small or too large for a float.
    """
    wrong = candidates.available_QS & (np.isnan(log_weights_QS) | (log_weights_QS == np.inf))
    if wrong.any():
        raise Refusal(
            f"negatives.draw: the weight of {candidates.named(*np.argwhere(wrong)[0])} is not finite. Look at their "
            "score and at the settings of the draw, or take another draw."
        )
    uniform_QS = ((candidates.random_QS() >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53  # in (0, 1)
    with np.errstate(invalid="ignore"):  # of slots that are not available
        keys_QS = np.log(-np.log(uniform_QS)) - log_weights_QS
    return slots_of_smallest(keys_QS, candidates.available_QS, count)
