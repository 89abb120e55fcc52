"""Negatives from a retrieval: of the queries, of their positives (lookahead), by BM25, or from a file."""

import numpy as np

from teleport.arrays import Run, in_slots
from teleport.negatives.filters import chosen_filters
from teleport.negatives.known_positives import are_known, have_answers
from teleport.negatives.pool import found_items


def open_source(job, name, known):
    """The `Retrieval` in the role `name`, without passages that have an answer where the settings say so."""
    run, settings = Run.read(job, name), job.settings
    if settings.remove == "answers":
        run = run._replace(ids=np.where(have_answers(job, run.ids, run.rows), np.int32(-1), run.ids))
    return Retrieval(run, known, settings.sources[name], settings.episode, chosen_filters(job, "drops_ranks").values())


class Retrieval:
    """A `Run` whose lines may be several per query: they are joined end to end. L lines, K their depth. known: Ragged;
    draw: settings.pool.Draw; rank_filters: pairs (function of (ranks, setting), setting). Ranks count from 1 among what
    is left."""

    def __init__(self, run, known, draw, episode, rank_filters=()):
        self.ids, self.scores, self.rows = run
        self.known, self.draw, self.episode, self.rank_filters = known, draw, episode, list(rank_filters)
        self.lines = np.argsort(self.rows, kind="stable")
        self.starts = np.searchsorted(self.rows[self.lines], np.arange(len(known) + 1))
        self.widths_Q = self.ids.shape[1] * np.diff(self.starts)

    def candidates(self, first, last):
        """bool [Q, S]: the slot holds a passage that is not known and has one of the wanted ranks."""
        lines_L = self.lines[self.starts[first] : self.starts[last]]
        ids_LK = self.ids[lines_L]
        wanted_LK = (ids_LK >= 0) & ~are_known(ids_LK, self.rows[lines_L], self.known)
        if self.draw.ranks or self.rank_filters:
            ranks_LK = np.cumsum(wanted_LK, axis=1)
        for drops, setting in self.rank_filters:
            wanted_LK &= ~drops(ranks_LK, setting)
        if self.draw.ranks:
            wanted_LK &= np.logical_or.reduce([(ranks_LK >= low) & (ranks_LK <= high) for low, high in self.draw.ranks])
        return in_slots(self.widths_Q[first:last], wanted_LK)

    def passages(self, first, last):
        ids_LK = self.ids[self.lines[self.starts[first] : self.starts[last]]]
        return in_slots(self.widths_Q[first:last], ids_LK)

    def take(self, first, last, slots_QN):
        lists_QN, columns_QN = np.divmod(slots_QN, self.ids.shape[1])
        lists_QN += self.starts[first:last, None]
        lines_QN = self.lines[np.minimum(lists_QN, len(self.lines) - 1)]  # a query without a line fills no slot
        passages_QN, scores_QN = (values[lines_QN, columns_QN] for values in (self.ids, self.scores))
        return found_items(passages_QN, self.draw.flag, self.episode, columns_QN + 1, scores_QN)
