"""Candidates for exact search on a CPU by products of int8 numbers (VNNI) or bfloat16 ones (AVX-512, AMX).

An int8 product is summed exactly in 32 bits. On an EPYC with AVX-512 it ran at 410 GFLOP/s a core, bfloat16 at 200,
float32 at 100; the selection then costs as much as the product, so it is one comparison with a floor per query. The
floor lies below the last rank so far by more than the error of the product, so no passage of the true best is dropped.
"""

import numpy as np
import torch

from teleport.runtime.torch_threads import threads_apart
from teleport.search.exact import ID_BITS, NO_KEY, NO_RANK, ids_of, keys_of, scores_of, scores_of_ranks
from teleport.search.flat import MARGIN
from teleport.search.reduced import Reduced

QUERIES = 512  # per block of products: 16 MB with blocks of 8,192 passages, within the last cache
BAND = 1.25  # times the error: kept below the last rank at first; twice is enough for any vectors
WIDTH = 8  # times the depth: candidates kept per query at most, before more are asked for
LOWEST = -(2**31)  # below every product
RAW = {torch.int32: torch.int32, torch.bfloat16: torch.int16}  # how numpy, which has no bfloat16, sees a product


class ReducedFlat(Reduced):
    """The same as `flat.FaissFlat` with products of few bits."""

    def __init__(self, vectors, threads, number_format="int8", room=2**62):
        super().__init__(vectors, number_format, threads, room)

    def first_count(self, depth):
        """How many candidates to propose at most, at first."""
        return WIDTH * depth + MARGIN

    def propose(self, queries_QD, depth, count, errors_Q):
        """(scores [Q, C] best first, passage numbers int64 [Q, C], what no other score exceeds [Q]).

        Lines with fewer candidates end with score -inf.
        """
        reduced, factors_Q = self.reduce_queries(queries_QD)
        units_Q = factors_Q.double().numpy()[:, 0] * self.factor
        asked_again = count == self.first_count(depth) < len(self.vectors)  # where something may have been dropped
        band_Q = (BAND if asked_again else 2) * errors_Q
        rows = np.arange(len(queries_QD))
        parts = np.array_split(rows, min(len(rows), self.threads * -(-len(rows) // (self.threads * QUERIES))))
        running = [Running(reduced[p], units_Q[p], band_Q[p], depth, count, self.block) for p in parts]
        with threads_apart(self.threads) as pool:
            for first, passages in self.blocks():
                places = self.outliers - first
                block = passages, first, places[(places >= 0) & (places < len(passages))]
                list(pool.map(lambda part, block=block: part.add(*block), running))
            list(pool.map(Running.merge, running))
        rows = np.concatenate([part.waiting[0][0] + np.int64(p[0]) for part, p in zip(running, parts, strict=True)])
        keys_QC = table(rows, np.concatenate([part.waiting[0][1] for part in running]), len(queries_QD), NO_KEY)
        keys_QC.sort(axis=1)
        shift_Q = self.shifts(queries_QD).numpy()
        others_Q = np.concatenate([part.floor_Q for part in running]) + shift_Q
        return scores_of(keys_QC) + shift_Q[:, None], np.where(keys_QC == NO_KEY, 0, ids_of(keys_QC)), others_Q


class Running:
    """The candidates of a part of the queries while the passages go by.

    waiting: [(query rows, `keys_of` scores and passage numbers)], what is kept first and what came since after it
    floor_Q: no score that was dropped exceeds it; band_Q: how far below the last rank so far a score is still kept
    """

    def __init__(self, queries, units_Q, band_Q, depth, count, block):
        self.queries, self.units_Q, self.band_Q, self.depth, self.count = queries, units_Q, band_Q, depth, count
        self.floor_Q, self.waiting, self.patience = np.full(len(queries), -np.inf), [], depth * len(queries)
        self.dtype = torch.int32 if queries.dtype == torch.int8 else queries.dtype
        self.buffer = torch.empty(len(queries) * block, dtype=self.dtype)

    def add(self, passages, first, outliers):
        """Compare the queries with reduced passages, of which the first has the number `first`.

        outliers: int64 places of those whose products say too little to raise the floor
        """
        shape = len(self.queries), len(passages)
        products_QP = self.buffer[: shape[0] * shape[1]].view(shape)
        multiply = torch._int_mm if self.dtype == torch.int32 else torch.mm
        multiply(self.queries, passages.T, out=products_QP)
        products_QP[:, outliers] = LOWEST
        if first == 0 and shape[1] >= self.depth:
            values_QP = products_QP.numpy() if self.dtype == torch.int32 else products_QP.float().numpy()
            last_Q = np.partition(values_QP, -self.depth, axis=1)[:, -self.depth]
            self.floor_Q = last_Q * self.units_Q - self.band_Q
        places = np.flatnonzero(self.passing(products_QP))
        rows, columns = np.divmod(places, shape[1])
        found = torch.from_numpy(products_QP.view(RAW[self.dtype]).numpy().ravel()[places]).view(self.dtype)
        scores = found.double().numpy() * self.units_Q[rows]
        self.waiting.append((rows.astype(np.uint16), keys_of(scores.astype(np.float32), columns + first)))
        if sum(len(rows) for rows, _ in self.waiting) > self.patience:
            self.merge()

    def passing(self, products_QP):
        """Which products reach the floor, bool [Q, P]."""
        least_Q = (self.floor_Q / self.units_Q)[:, None]
        if self.dtype == torch.int32:
            return products_QP.numpy() >= np.ceil(np.maximum(least_Q, LOWEST)).astype(np.int32)
        return (products_QP >= torch.from_numpy(least_Q).to(self.dtype)).numpy()

    def merge(self):
        """Raise the floor to the best so far, and drop what cannot be among the best any more."""
        rows, keys = (np.concatenate(parts) for parts in zip(*self.waiting, strict=True))
        order = np.argsort(rows, kind="stable")
        rows, keys = rows[order], keys[order]
        ranks_QC = table(rows, (keys >> ID_BITS).astype(np.int32), len(self.queries), NO_RANK)
        places = [place for place in (self.depth - 1, self.count) if place < ranks_QC.shape[1]]
        if places:  # the depth is not above the count
            ranks_QC.partition(places, axis=1)
            last_Q = scores_of_ranks(ranks_QC[:, places[0]]) - self.band_Q
            self.floor_Q = np.maximum(self.floor_Q, last_Q)
        if self.count in places:
            self.floor_Q = np.maximum(self.floor_Q, scores_of_ranks(ranks_QC[:, self.count]))
        lowest_Q = keys_of(self.floor_Q.astype(np.float32), np.int64(2**ID_BITS - 1))  # of a score that reaches it
        kept = keys <= lowest_Q[rows]
        self.waiting = [(rows[kept], keys[kept])]
        self.patience = max(int(kept.sum()), self.depth * len(self.queries))


def table(rows, values, num_rows, nothing):
    """Values of rows (ascending) as one line a row, filled up with `nothing`: [num_rows, C]."""
    counts_Q = np.bincount(rows, minlength=num_rows)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts_Q) - counts_Q, counts_Q)
    values_QC = np.full((num_rows, counts_Q.max()), nothing, values.dtype)
    values_QC[rows, places] = values
    return values_QC
