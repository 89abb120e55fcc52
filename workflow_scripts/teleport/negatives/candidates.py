"""The candidates of a pool: the passages of its sources for each training query, numbered by slots.

Shapes: Q queries of a block, S slots, N drawn slots.
"""

from typing import NamedTuple

import numpy as np


class CandidateBlock(NamedTuple):
    """The candidates of a source for a block of queries, one value per slot. Only `passages_QS` and `there_QS` are
    always given.

    there_QS: bool, the slot holds a passage that may be a negative; the others hold any number
    depth: the slots of a query are lists of this length laid end to end, best first; None: they are no ranked lists
    scores_QS: float32, under the checkpoint that mines, if the source has them; None: not scored yet
    first_episodes_QS, sources_QS, ranks_QS: the origin of candidates that come from an earlier pool, as in its
    `pool.Items`, with the bits of the source's `names`; given_QS: float32, the scores that it gave them, NaN if none
    """

    passages_QS: np.ndarray
    there_QS: np.ndarray
    depth: int | None = None
    scores_QS: np.ndarray | None = None
    first_episodes_QS: np.ndarray | None = None
    sources_QS: np.ndarray | None = None
    ranks_QS: np.ndarray | None = None
    given_QS: np.ndarray | None = None

    def positions(self, slots):
        """int32: the position of slots in their list, from 1 on; 0 without a list."""
        return np.zeros_like(slots, np.int32) if self.depth is None else (slots % self.depth + 1).astype(np.int32)

    def counted(self, kept_QS):
        """int32 [Q, S]: the rank of each slot among the `kept_QS` (bool) of its list, from 1 on. Only for lists."""
        lists = kept_QS.reshape(len(kept_QS), -1, self.depth)
        return np.cumsum(lists, axis=2, dtype=np.int32).reshape(kept_QS.shape)


def open_sources(job, known):
    """{name: source} of a job, in the order in which a pool lists them; see `sources` for what each one has."""
    return {name: job.load(name).open_source(job, name, known) for name in job.settings.sources}


def blocks(widths, first, end, most_slots):
    """Yield (first, last) of the query rows of each block of rows `first` to `end` - 1, of at most `most_slots` slots.

    widths: list of int64 [all queries], the number of slots of each query from each source. All rows of a block take as
    many slots as its longest, so a query with very many anchors makes only its own block small.
    """
    widths_Q = np.maximum.reduce(widths)
    while first < end:
        at_most = most_slots // max(1, int(widths_Q[first]))
        widest = np.maximum.accumulate(widths_Q[first : min(end, first + at_most)])
        fit = np.count_nonzero(widest * np.arange(1, len(widest) + 1) <= most_slots)
        last = first + max(1, int(fit))
        yield first, last
        first = last
