"""Where negatives are drawn from: a retrieval of this episode, or the pool of the last one.

Both number the candidates of a query by slots 0, 1, ...: `candidates` says which slots may be drawn, `take` returns
what is in the slots that were. `first` and `last` bound a block of query rows. Shapes: Q queries of the block, S slots,
N drawn slots, L lines of a retrieval, D its depth.
"""

import numpy as np

from teleport.negatives.pool import MOMENTUM, Items


class Retrieval:
    """Neighbours of the queries, or of their positives (then a query may have several lists, joined end to end).

    ids int32 [L, D] (-1: empty), scores float32 [L, D], rows int [L]: the query row of each list.
    `positives` is (offsets int64 [Q + 1], passages): the known positives of all queries, which are no candidates.
    widths_Q int64 [Q] counts the slots of each query.
    """

    def __init__(self, ids, scores, rows, positives, flag, episode):
        num_queries = len(positives[0]) - 1
        self.ids, self.scores, self.rows, self.positives = ids, scores, rows, positives
        self.flag, self.episode = flag, episode
        self.lists = np.argsort(rows, kind="stable")
        self.starts = np.searchsorted(rows[self.lists], np.arange(num_queries + 1))
        self.widths_Q = self.ids.shape[1] * np.diff(self.starts)

    def candidates(self, first, last):
        """bool [Q, S]: the slot holds a passage, and the passage is no known positive of the query."""
        starts = self.starts[first : last + 1]
        lists_L = self.lists[starts[0] : starts[-1]]
        ids_LD = self.ids[lists_L]
        usable_LD = (ids_LD >= 0) & ~are_positives(ids_LD, self.rows[lists_L], self.positives)
        candidates_QS = slots_within(np.diff(starts) * self.ids.shape[1])
        candidates_QS[candidates_QS] = usable_LD.ravel()
        return candidates_QS

    def take(self, first, last, slots_QN):
        """The `Items` [Q, N] in the given slots."""
        lists_QN, columns_QN = np.divmod(slots_QN, self.ids.shape[1])
        lists_QN += self.starts[first:last, None]
        lines_QN = self.lists[np.minimum(lists_QN, len(self.lists) - 1)]  # a query without a list fills no slot
        return Items(
            self.ids[lines_QN, columns_QN],
            np.full(slots_QN.shape, self.flag, np.uint8),
            np.full(slots_QN.shape, self.episode, np.uint8),
            (columns_QN + 1).astype(np.int16),
            self.scores[lines_QN, columns_QN],
        )


class Momentum:
    """The pool of the last episode; what is drawn from it keeps its origin and gets the flag MOMENTUM.

    `positives` as for `Retrieval`: those of this episode, which the last one may not have known (`positives: answers`).
    """

    def __init__(self, pool, positives):
        self.pool, self.positives = pool, positives
        self.widths_Q = np.diff(pool.offsets)

    def candidates(self, first, last):
        """bool [Q, S]: the query's last pool has this slot, and its passage is no known positive of the query."""
        offsets = self.pool.offsets[first : last + 1]
        candidates_QS = slots_within(np.diff(offsets))
        passages_QS = np.zeros(candidates_QS.shape, np.int32)
        passages_QS[candidates_QS] = self.pool.items.passages[offsets[0] : offsets[-1]]
        return candidates_QS & ~are_positives(passages_QS, np.arange(first, last), self.positives)

    def take(self, first, last, slots_QN):
        """The `Items` [Q, N] in the given slots."""
        places_QN = np.minimum(self.pool.offsets[first:last, None] + slots_QN, self.pool.offsets[-1] - 1)
        items = Items(*(field[places_QN] for field in self.pool.items))
        return items._replace(sources=items.sources | np.uint8(MOMENTUM))


def are_positives(passages_LD, rows_L, positives):
    """bool [L, D]: the passage is among the `positives` (offsets, passages) of the query row of its line."""
    offsets, passages = positives
    start_L, stop_L = offsets[rows_L], offsets[rows_L + 1]
    found_LD = np.zeros(passages_LD.shape, bool)
    for number in range((stop_L - start_L).max(initial=0)):
        some = np.flatnonzero(stop_L - start_L > number)
        found_LD[some] |= passages_LD[some] == passages[start_L[some] + number][:, None]
    return found_LD


def slots_within(lengths_Q):
    """bool [Q, S], S the longest length: True in the first lengths_Q[q] slots of row q."""
    return np.arange(lengths_Q.max(initial=0)) < lengths_Q[:, None]
