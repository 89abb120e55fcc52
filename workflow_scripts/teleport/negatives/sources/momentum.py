"""Negatives from the pool of the last episode, in the role `momentum` (ANCE-Tele, Eq. 5)."""

import numpy as np

from teleport.arrays import in_slots, slots_within
from teleport.negatives.candidates import CandidateBlock
from teleport.negatives.known_positives import are_known, pool_has_answers
from teleport.negatives.pool import read_pool


def open_source(job, name, known):
    """The `Momentum` in the role `name`: the last pool; known: positives of every query (Ragged). With `remove:
    answers` its passages that have an answer are left out; if the last episode removed them, it has none."""
    source = Momentum(read_pool(lambda file: job.input(name, file)), known, name)
    before = job.inputs[name].manifest["settings"]["remove"]
    if job.settings.remove == "answers" and before != "answers":
        source.refused = pool_has_answers(job, source.pool)
    return source


class Momentum:
    """The last `Pool`; its negatives keep their origin, and this source, `name`, is added to it. known: Ragged of this
    episode; the last episode may have known less (`positives: answers`)"""

    def __init__(self, pool, known, name):
        self.pool, self.known = pool, known
        self.names = list(dict.fromkeys([*pool.names, name]))
        self.own_bit = 1 << self.names.index(name)
        self.widths_Q, self.refused = np.diff(pool.offsets), None

    def block(self, first, last):
        widths_Q, (start, stop) = self.widths_Q[first:last], self.pool.offsets[[first, last]]
        passages_QS, sources_QS, first_episodes_QS, positions_QS = (
            in_slots(widths_Q, getattr(self.pool.items, name)[start:stop])
            for name in ("passages", "sources", "first_episodes", "ranks")
        )
        there_QS = slots_within(widths_Q) & ~are_known(passages_QS, np.arange(first, last), self.known)
        if self.refused is not None:
            there_QS &= ~in_slots(widths_Q, self.refused[start:stop])
        # The old scores belong to another checkpoint, so they are left out.
        origin = {"first_episodes_QS": first_episodes_QS, "ranks_QS": positions_QS}
        return CandidateBlock(passages_QS, there_QS, sources_QS=sources_QS | np.uint16(self.own_bit), **origin)
