"""A retrieval as candidates: its lists without known positives; with `remove: answers`, without answers either."""

import numpy as np

from teleport.arrays import Run, in_slots
from teleport.negatives.candidates import CandidateBlock
from teleport.negatives.known_positives import are_known, have_answers


def read_run(job, role):
    """The `Run` in a role; with `remove: answers`, without passages that have an answer."""
    run = Run.read(job, role)
    if job.settings.remove == "answers":
        run = run._replace(ids=np.where(have_answers(job, run.ids, run.rows), np.int32(-1), run.ids))
    return run


class Retrieval:
    """A `Run` with maybe several lines per query, which are joined end to end. L lines, K their depth. known: Ragged;
    scored: whether the run's scores are those of the query under the checkpoint that mines"""

    def __init__(self, run, known, scored=False):
        self.ids, self.scores, self.rows = run
        self.known, self.scored = known, scored
        self.lines = np.argsort(self.rows, kind="stable")
        self.starts = np.searchsorted(self.rows[self.lines], np.arange(len(known) + 1))
        self.widths_Q = self.ids.shape[1] * np.diff(self.starts)

    def lines_of(self, first, last):
        """The lines of the query rows `first` to `last` - 1, query by query."""
        return self.lines[self.starts[first] : self.starts[last]]

    def block(self, first, last):
        lines_L = self.lines_of(first, last)
        ids_LK = self.ids[lines_L]
        there_LK = (ids_LK >= 0) & ~are_known(ids_LK, self.rows[lines_L], self.known)
        widths_Q, scores_QS = self.widths_Q[first:last], None
        if self.scored:
            scores_QS = in_slots(widths_Q, self.scores[lines_L], empty=np.nan)
        return CandidateBlock(in_slots(widths_Q, ids_LK), in_slots(widths_Q, there_LK), self.ids.shape[1], scores_QS)
