"""Negatives from the pool of the last episode, in the role `momentum` (ANCE-Tele, Eq. 5)."""

import numpy as np

from teleport.arrays import in_slots, slots_within
from teleport.negatives.known_positives import are_known
from teleport.negatives.pool import Items, read_pool


def open_source(job, name, known):
    """The `Momentum` in the role `name`: the last pool; known: positives of every query (Ragged)"""
    return Momentum(read_pool(lambda file: job.input(name, file)), known, job.settings.sources[name].flag)


class Momentum:
    """What is drawn from the last `Pool` keeps its origin and gets the bit `flag` besides. known: Ragged of this
    episode; the last one may not have known all of it (`positives: answers`)."""

    def __init__(self, pool, known, flag):
        self.pool, self.known, self.flag = pool, known, flag
        self.widths_Q = np.diff(pool.offsets)

    def candidates(self, first, last):
        """bool [Q, S]: the query's last pool has this slot, with a passage that is not known."""
        known_QS = are_known(self.passages(first, last), np.arange(first, last), self.known)
        return slots_within(self.widths_Q[first:last]) & ~known_QS

    def passages(self, first, last):
        passages = self.pool.items.passages[self.pool.offsets[first] : self.pool.offsets[last]]
        return in_slots(self.widths_Q[first:last], passages)

    def take(self, first, last, slots_QN):
        places_QN = np.minimum(self.pool.offsets[first:last, None] + slots_QN, self.pool.offsets[-1] - 1)
        items = Items(*(field[places_QN] for field in self.pool.items))
        return items._replace(sources=items.sources | np.uint8(self.flag))
