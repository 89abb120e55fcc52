"""Draws every candidate with the same chance, without replacement, as all papers do."""

NEVER = 2**64 - 1  # uint64


def choose(candidates, count):
    """The slots of the `count` smallest random numbers of each query."""
    import numpy as np

    num_slots = candidates.available_QS.shape[1]
    if count >= num_slots:  # all of them: nothing is random
        return np.where(candidates.available_QS, np.arange(num_slots), num_slots)
    # The slot replaces the low bits of each number, so that one partition of plain integers yields the slots.
    slot_mask = np.uint64(2 ** num_slots.bit_length() - 1)
    draws_QS = (candidates.random_QS() & ~slot_mask) | np.arange(num_slots, dtype=np.uint64)
    draws_QS[~candidates.available_QS] = NEVER  # no number has this value: its slot would be at least num_slots
    draws_QN = np.partition(draws_QS, max(0, count - 1), axis=1)[:, :count]
    return (draws_QN & slot_mask).astype(np.int64)
