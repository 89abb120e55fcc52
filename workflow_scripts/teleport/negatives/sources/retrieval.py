"""Negatives from a retrieval: of the queries, of their positives (lookahead), by BM25, or from a file."""

import numpy as np

from teleport.negatives.draw import in_slots
from teleport.negatives.known import are_known, have_answers
from teleport.negatives.pool import found_items
from teleport.runtime.arrays import Run


def open_source(job, name, known):
    """The `Retrieval` in the role `name`, without passages that have an answer where the settings say so."""
    run, settings = Run.read(job, name), job.settings
    if settings.remove == "answers":
        run = run._replace(ids=np.where(have_answers(job, run.ids, run.rows), np.int32(-1), run.ids))
    return Retrieval(run, known, settings.sources[name], settings.episode, settings.filters.skip_ranks)


class Retrieval:
    """A `Run` whose lines may be several per query: they are joined end to end. L lines, D their depth.

    known: Ragged, what is removed; draw: settings.pool.Draw, of which `flag` and `ranks` are read. Ranks, those of
    `skip_ranks` too, count from 1 among what is left of a line.
    """

    def __init__(self, run, known, draw, episode, skip_ranks=0):
        self.ids, self.scores, self.rows = run
        self.known, self.draw, self.episode, self.skip_ranks = known, draw, episode, skip_ranks
        self.lines = np.argsort(self.rows, kind="stable")
        self.starts = np.searchsorted(self.rows[self.lines], np.arange(len(known) + 1))
        self.widths_Q = self.ids.shape[1] * np.diff(self.starts)

    def candidates(self, first, last):
        """bool [Q, S]: the slot holds a passage that is not known and has one of the wanted ranks."""
        lines_L = self.lines[self.starts[first] : self.starts[last]]
        ids_LD = self.ids[lines_L]
        wanted_LD = (ids_LD >= 0) & ~are_known(ids_LD, self.rows[lines_L], self.known)
        if self.draw.ranks or self.skip_ranks:
            ranks_LD = np.cumsum(wanted_LD, axis=1)
            wanted_LD &= ranks_LD > self.skip_ranks
        if self.draw.ranks:
            wanted_LD &= np.logical_or.reduce([(ranks_LD >= low) & (ranks_LD <= high) for low, high in self.draw.ranks])
        return in_slots(self.widths_Q[first:last], wanted_LD)

    def passages(self, first, last):
        ids_LD = self.ids[self.lines[self.starts[first] : self.starts[last]]]
        return in_slots(self.widths_Q[first:last], ids_LD)

    def take(self, first, last, slots_QN):
        lists_QN, columns_QN = np.divmod(slots_QN, self.ids.shape[1])
        lists_QN += self.starts[first:last, None]
        lines_QN = self.lines[np.minimum(lists_QN, len(self.lines) - 1)]  # a query without a line fills no slot
        passages_QN, scores_QN = (values[lines_QN, columns_QN] for values in (self.ids, self.scores))
        return found_items(passages_QN, self.draw.flag, self.episode, columns_QN + 1, scores_QN)
