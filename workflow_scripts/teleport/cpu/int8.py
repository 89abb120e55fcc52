"""Candidates for exact search on a CPU by products of int8 numbers (VNNI, AMX), summed exactly in 32 bits.

The selection then costs as much as the product, so it is one comparison with a floor per query. The floor lies below
the last rank so far by more than the error of the product, so no passage of the exact list is dropped.
"""

import numpy as np
import torch

from teleport.arrays import in_slots
from teleport.cpu.threads import threads_apart
from teleport.search.exact import ID_BITS, NO_KEY, NO_RANK, ids_of, keys_of, scores_of, scores_of_ranks
from teleport.search.flat import MARGIN, OUTLIERS
from teleport.search.reduced import Reduced

QUERIES = 512  # of a thread at a time, per block of products: 16 MB with blocks of 8,192 passages, in the last cache
BAND = 1.25  # times the error: kept below the last rank at first; twice is enough for any vectors
MERGED = 2  # times what the last merge has left: candidates from which they are merged again
# Candidates kept per query at most, before more are asked for: so many times the depth, and so many within the error of
# the product, which a shallow search in a large collection has too. Among 9 million passages of 32 dimensions it is
# 3,000 at depth 200.
WIDTH, NEAR = 8, 2560
LOWEST = -(2**31)  # below every product


class Int8Flat(Reduced):
    """The same as `FaissFlat` with products of int8 numbers; lists of fewer candidates end with score -inf."""

    margin = MARGIN

    def __init__(self, vectors, threads, room=2**62, most_outliers=OUTLIERS):
        super().__init__(vectors, "int8", threads, room, most_outliers=most_outliers)
        if self.kept is not None:  # else each step reduces all passages, and should have many queries
            self.step, self.margin = threads * QUERIES, NEAR

    def first_count(self, depth):
        return WIDTH * depth + self.margin

    def propose(self, queries_QD, depth, count, errors_Q, last_Q):
        reduced, factors_Q = self.reduce_queries(queries_QD)
        units_Q = factors_Q.double().numpy()[:, 0] * self.factor
        asked_again = count == self.first_count(depth) < len(self.vectors)  # where something may have been dropped
        band_Q = (BAND if asked_again else 2) * errors_Q
        shift_Q = self.shifts(queries_QD).numpy()
        floor_Q = last_Q + errors_Q - band_Q - shift_Q
        rows = np.arange(len(queries_QD))
        groups = np.array_split(rows, min(len(rows), self.threads * -(-len(rows) // (self.threads * QUERIES))))
        candidates = [
            Candidates(reduced[g], units_Q[g], band_Q[g], floor_Q[g], depth, count, self.block) for g in groups
        ]
        blocks = ((passages, first, self.outliers_in(first, len(passages))) for first, passages in self.blocks())
        # Where no block has to be made first, no group waits for another.
        together = [list(blocks)] if self.kept is not None else ([block] for block in blocks)
        with threads_apart(self.threads) as pool:
            for some in together:
                list(pool.map(lambda group, some=some: [group.add(*block) for block in some], candidates))
            list(pool.map(Candidates.merge, candidates))
        rows = np.concatenate([c.kept[0][0] + np.int64(g[0]) for c, g in zip(candidates, groups, strict=True)])
        counts_Q = np.bincount(rows, minlength=len(queries_QD))
        keys_QM = in_slots(counts_Q, np.concatenate([c.kept[0][1] for c in candidates]), NO_KEY)
        keys_QM.sort(axis=1)
        others_Q = np.concatenate([c.floor_Q for c in candidates]) + shift_Q
        return scores_of(keys_QM) + shift_Q[:, None], np.where(keys_QM == NO_KEY, 0, ids_of(keys_QM)), others_Q

    def outliers_in(self, first, count):
        """The outliers in a block of `count` passages from the number `first` on, as its columns (int64)."""
        columns = self.outliers - first
        return columns[(columns >= 0) & (columns < count)]


class Candidates:
    """The candidates of a group of queries while the passages go by.

    kept: [(query rows, `keys_of` scores and passages)], those of the last merge first and then what came since
    floor_Q: upper bound on all dropped scores; band_Q: how far below the last rank so far a score is still kept
    merge_threshold: candidates from which they are merged
    """

    def __init__(self, queries_QD, units_Q, band_Q, floor_Q, depth, count, block):
        self.queries_QD, self.units_Q, self.band_Q, self.depth, self.count = queries_QD, units_Q, band_Q, depth, count
        self.floor_Q, self.kept = floor_Q, []
        self.merge_threshold = depth * len(queries_QD)
        self.buffer = torch.empty(len(queries_QD) * block, dtype=torch.int32)

    def add(self, passages_PD, first, outliers):
        """Compare the queries with reduced passages, of which the first has the number `first`. outliers: int64 columns
        of those whose products say too little to raise the floor"""
        shape = len(self.queries_QD), len(passages_PD)
        products_QP = self.buffer[: shape[0] * shape[1]].view(shape)
        torch._int_mm(self.queries_QD, passages_PD.T, out=products_QP)
        products_QP = products_QP.numpy()
        products_QP[:, outliers] = LOWEST
        if first == 0 and shape[1] >= self.depth:
            last_Q = np.partition(products_QP, -self.depth, axis=1)[:, -self.depth]
            self.floor_Q = np.maximum(self.floor_Q, last_Q * self.units_Q - self.band_Q)
        least_Q = np.ceil(np.maximum(self.floor_Q / self.units_Q, LOWEST)).astype(np.int32)
        positions = np.flatnonzero(products_QP >= least_Q[:, None])
        rows, columns = np.divmod(positions, shape[1])
        scores = products_QP.ravel()[positions] * self.units_Q[rows]
        self.kept.append((rows.astype(np.uint16), keys_of(scores.astype(np.float32), columns + first)))
        if sum(len(rows) for rows, _ in self.kept) > self.merge_threshold:
            self.merge()

    def merge(self):
        """Raise the floor to the last rank so far, and drop what cannot be in the list any more."""
        rows, keys = (np.concatenate(arrays) for arrays in zip(*self.kept, strict=True))
        order = np.argsort(rows, kind="stable")
        rows, keys = rows[order], keys[order]
        counts_Q = np.bincount(rows, minlength=len(self.queries_QD))
        ranks_QM = in_slots(counts_Q, (keys >> ID_BITS).astype(np.int32), NO_RANK)
        ends = [end for end in (self.depth - 1, self.count) if end < ranks_QM.shape[1]]  # the depth comes first
        if ends:
            ranks_QM.partition(ends, axis=1)
            last_Q = scores_of_ranks(ranks_QM[:, ends[0]]) - self.band_Q
            self.floor_Q = np.maximum(self.floor_Q, last_Q)
        if self.count in ends:
            self.floor_Q = np.maximum(self.floor_Q, scores_of_ranks(ranks_QM[:, self.count]))
        lowest_Q = keys_of(self.floor_Q.astype(np.float32), np.int64(2**ID_BITS - 1))  # of a score that reaches it
        reaches = keys <= lowest_Q[rows]
        self.kept = [(rows[reaches], keys[reaches])]
        self.merge_threshold = max(MERGED * len(self.kept[0][0]), self.depth * len(self.queries_QD))
