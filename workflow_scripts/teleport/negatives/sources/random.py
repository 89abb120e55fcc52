"""Negatives that are drawn uniformly from the corpus, without replacement: no list is stored. The stream (SplitMix64)
of a query starts from the hash of its id, so its passages depend neither on its row nor on other queries."""

import numpy as np

from teleport.arrays import are_first
from teleport.negatives.candidates import CandidateBlock
from teleport.negatives.draw import GOLDEN, hashes_of_job, splitmix64
from teleport.negatives.known_positives import are_known, have_answers
from teleport.seed import derive_seed
from teleport.settings.section import rows_of_part

SPARE = 2  # slots per wanted negative: a reserve for those that filters or answers remove
SMALL = 8  # a corpus of at most this many passages per slot is offered whole: draws would often repeat
EXTRA_DRAWS = 8  # drawn beyond the slots at first: known and repeated passages are few in a large corpus


def open_source(job, name, known):
    """The `Random` source `name` of a job; with `remove: answers`, without passages that have an answer."""
    settings, draw = job.settings, job.settings.sources[name]
    streams_Q = splitmix64(hashes_of_job(job) ^ np.uint64(derive_seed(settings.seed, "random", name, settings.episode)))
    source = Random(streams_Q, job.facts("corpus")["num_passages"], known, draw.count)
    if settings.remove == "answers":
        first, last = rows_of_part(settings.part, len(streams_Q))
        source.refused = np.zeros((len(streams_Q), source.num_slots), bool)
        source.refused[first:last] = have_answers(job, source.passages(first, last), np.arange(first, last))
    return source


class Random:
    """`SPARE` x `count` different passages, none of them known; or all passages of a small corpus.
    streams_Q: uint64, where the stream of each query starts; known: Ragged; count: of wanted negatives"""

    def __init__(self, streams_Q, num_passages, known, count):
        self.streams_Q, self.num_passages, self.known = streams_Q, num_passages, known
        self.refused = None
        self.whole = num_passages <= SMALL * SPARE * count
        self.num_slots = num_passages if self.whole else SPARE * count
        self.widths_Q = np.full(len(streams_Q), self.num_slots)

    def block(self, first, last):
        passages_QS = self.passages(first, last)
        there_QS = passages_QS >= 0
        if self.whole:
            there_QS &= ~are_known(passages_QS, np.arange(first, last), self.known)
        return CandidateBlock(passages_QS, there_QS if self.refused is None else there_QS & ~self.refused[first:last])

    def passages(self, first, last):
        """int32 [Q, S], -1 if the corpus has too few passages that are not known."""
        if self.whole:
            return np.broadcast_to(np.arange(self.num_passages, dtype=np.int32), (last - first, self.num_passages))
        return self.drawn(np.arange(first, last), self.num_slots + EXTRA_DRAWS)

    def drawn(self, rows_Q, num_draws):
        """int32 [Q, S]: the first S different passages in the stream of each query that are not known, then -1."""
        numbers_X = np.arange(1, num_draws + 1, dtype=np.uint64)
        values_QX = splitmix64(self.streams_Q[rows_Q, None] + GOLDEN * numbers_X)
        passages_QX = (values_QX % np.uint64(self.num_passages)).astype(np.int32)
        # Values from the last multiple of the corpus size on would make its first passages likelier.
        usable_QX = values_QX <= np.uint64(2**64 - 1 - 2**64 % self.num_passages)
        usable_QX &= are_first(passages_QX) & ~are_known(passages_QX, rows_Q, self.known)
        order_QS = np.argsort(~usable_QX, axis=1, kind="stable")[:, : self.num_slots]
        passages_QS = np.take_along_axis(np.where(usable_QX, passages_QX, np.int32(-1)), order_QS, axis=1)
        possible_Q = np.minimum(self.num_slots, self.num_passages - self.known.lengths[rows_Q])
        short = np.flatnonzero(np.count_nonzero(passages_QS >= 0, axis=1) < possible_Q)
        if len(short):  # a longer part of the same streams begins with these passages
            passages_QS[short] = self.drawn(rows_Q[short], 2 * num_draws)
        return passages_QS
