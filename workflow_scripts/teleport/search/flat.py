"""Exact search by inner product, in which equal scores are ranked by the smaller passage number.

The last bits of a matrix product depend on the library, the device, the number format and the block, so its ties and
near-ties have no order of their own. Therefore the product only proposes candidates, more than asked for. Those that
can be in the list are scored again in float64, each pair by itself, rounded to float32, and sorted by (score, passage
number). Whether a passage that was not proposed could be in the list follows from the bound on the error of the
product; where it could, more are proposed. So the result depends on the vectors alone: the number format of the product
is a matter of speed, no setting, and decides no key.

A bound for all passages is only as good as that of the worst of them. Therefore an engine leaves out of it the few that
are far worse than the rest, its outliers: these are scored exactly for every query, proposed or not.

The passages are searched in parts, on devices side by side or one after another. Proposals of parts are joined before
any is scored again, so the pairs that are scored do not grow with the parts.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from teleport.refusal import Refusal
from teleport.search.exact import NO_KEY, ids_of, keys_of, rescore, scores_of, stable_topk

MARGIN = 32  # proposed beyond the depth: enough unless dozens of passages tie at the last rank
GROWTH = 8  # factor on the proposals for a query whose last rank is not settled
CANDIDATES = 2**25  # (query, candidate) pairs in memory at a time: 0.7 GB of numbers, scores and keys
BLOCK = 16384  # vectors read at a time
GPU_STEP = 8192  # queries that a GPU proposes for while the host scores the candidates of as many others
SLACK = 0.01  # of a bound on errors: against the rounding of what is computed with it
OUTLIERS, OUTLYING = 64, 1.1  # at most so many passages, with so many times the measure of those after them
OUTLIER_SHARE = 4096  # or one in so many, where that is more: with 768 dimensions a fiftieth of the work
ROUNDING = 2.0**-24  # largest relative error of a float32 operation that rounds to nearest
# Tensor cores cut instead. Products of fp16 numbers are exact in float32; k of them and the running sum are aligned to
# the largest, cut 23 or more bits below its leading bit, added, and cut again (Fasi, Higham, Mikaitis and Pranesh,
# Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 2021). That is at most k + 2 errors of 2^-23 for k
# products, with k >= 4 up to 1.5 for each; `product_errors` has 2.
TRUNCATION = 2.0**-23


def norms_of(vectors):
    """The Euclidean norms of the rows of an array [n, dim], read block by block: float32 [n]."""
    squares_P = np.empty(len(vectors), np.float32)
    for start in range(0, len(vectors), BLOCK):
        block_PD = np.asarray(vectors[start : start + BLOCK], np.float32)
        squares_P[start : start + BLOCK] = np.vecdot(block_PD, block_PD)
    return np.sqrt(squares_P)


def outliers_by(measures_P, most=OUTLIERS):
    """Numbers (int64, ascending) of at most `most` passages whose measure is far above that of all others."""
    rank = max(0, len(measures_P) - 1 - most)
    return np.flatnonzero(measures_P > OUTLYING * np.partition(measures_P, rank)[rank])


def outliers_allowed(passages):
    """How many of so many passages may be outliers."""
    return max(OUTLIERS, passages // OUTLIER_SHARE)


def product_errors(norms_Q, dim, max_norm, unit=ROUNDING):
    """Largest error of float32 inner products of queries `norms_Q` long with vectors up to `max_norm` long: [Q]. Each
    of `dim` products and sums is off by at most unit x |q| |p| (Higham, Accuracy and Stability of Numerical Algorithms,
    §3.1); twice that covers the rest of a step (see `TRUNCATION`) and the final rounding."""
    return 2 * dim * unit * max_norm * norms_Q


class Proposals(NamedTuple):
    """What products say of some passages for Q queries.

    keys_QM: `keys_of` the scores and passages that were proposed, sorted, `NO_KEY` at the end of shorter lists
    errors_Q: float64, by how much a score may be off; others_Q: float64, upper bound on the exact scores of all other
    passages; outliers: int64, passages of which neither says anything; total: how many passages were compared
    """

    keys_QM: np.ndarray
    others_Q: np.ndarray
    errors_Q: np.ndarray
    outliers: np.ndarray
    total: int

    def join(self, more, count):
        """These and `more`, of other passages: of all candidates the `count` with the highest scores."""
        keys_QM = np.hstack([self.keys_QM, more.keys_QM])
        keys_QM.sort(axis=1)
        errors_Q, outliers = np.maximum(self.errors_Q, more.errors_Q), np.union1d(self.outliers, more.outliers)
        dropped_Q = scores_of(keys_QM[:, count]) + errors_Q if count < keys_QM.shape[1] else -np.inf
        others_Q = np.maximum.reduce([self.others_Q, more.others_Q, np.broadcast_to(dropped_Q, len(keys_QM))])
        return Proposals(keys_QM[:, :count], others_Q, errors_Q, outliers, self.total + more.total)


class Exact:
    """Exact search of `vectors` in `count` contiguous parts, each with an engine of its own, opened when it is needed;
    the result is the same for any number of parts.

    open_part(number, vectors, most outliers): the engine of a part, FaissFlat, Int8Flat, TorchFlat or PqCodes;
    overlaps: whether devices propose for the next queries, all parts side by side, while the host scores
    """

    def __init__(self, vectors, count, open_part, threads=1):
        self.vectors, self.open_part, self.threads = vectors, open_part, threads
        bounds = np.linspace(0, len(vectors), min(count, len(vectors)) + 1).astype(np.int64).tolist()
        self.ranges = list(zip(bounds[:-1], bounds[1:], strict=True))
        self.engines = {}
        self.overlaps, self.kind = self.part(0).overlaps, type(self.part(0)).__name__
        self.engine = f"{self.kind} x {len(self.ranges) if self.overlaps else 1}"

    def part(self, number):
        """The engine of a part, opened when it is first asked for."""
        if number not in self.engines:
            part, most = self.vectors[slice(*self.ranges[number])], outliers_allowed(len(self.vectors))
            self.engines[number] = self.open_part(number, part, most // len(self.ranges))
        return self.engines[number]

    def search(self, queries_QD, depth, state=None):
        """The `depth` passages of largest inner product for each query, ties by the smaller number, highest first: (ids
        int32, scores float32), both [Q, depth]. queries_QD: float32, finite; depth: of no more passages than there are;
        state: as `propose` takes it"""
        ids_QK = np.empty((len(queries_QD), depth), np.int32)
        scores_QK = np.empty((len(queries_QD), depth), np.float32)
        last_Q = np.full(len(queries_QD), -np.inf)
        unsettled, count = np.arange(len(queries_QD)), self.part(0).first_count(depth)
        while len(unsettled):
            most = max(engine.step for engine in self.engines.values())  # an engine that reads all passages wants many
            step, remaining = max(1, min(most, CANDIDATES // count)), []
            steps = [unsettled[start : start + step] for start in range(0, len(unsettled), step)]
            proposed = (self.propose(queries_QD[rows], depth, count, last_Q[rows], state) for rows in steps)
            for rows, proposals in zip(steps, prefetch(proposed) if self.overlaps else proposed, strict=True):
                ids_QK[rows], scores_QK[rows], others_Q = self.rank(queries_QD[rows], depth, proposals)
                remaining.append(rows[scores_QK[rows, -1] <= others_Q])
                # So high is the last rank by the candidates so far; only what may reach it is asked for again.
                last_Q[rows] = scores_QK[rows, -1] - SLACK * proposals.errors_Q
            unsettled = np.concatenate(remaining)
            if len(unsettled) and count >= len(self.vectors):  # all were proposed
                raise Refusal(
                    "the scores of a query are beyond all numbers of 32 bits. The checkpoint that made its vector is "
                    "broken: train with a lower learning rate, or with precision fp32."
                )
            count *= GROWTH
        return ids_QK, scores_QK

    def propose(self, queries_QD, depth, count, known_Q, state=None):
        """The `Proposals` of all parts: side by side where they are devices.

        known_Q: what the exact score at the last rank is known to exceed (-inf: nothing is known)
        state: `load(queries, count)` gives (how many parts are done, their Proposals or None), `save(queries, count,
        parts done, of all, Proposals)` is told what was proposed; None where parts are proposed side by side
        """
        if self.overlaps:
            with ThreadPoolExecutor(len(self.ranges)) as pool:
                propose = partial(self.propose_part, queries_QD=queries_QD, depth=depth, count=count, last_Q=known_Q)
                return reduce(lambda one, two: one.join(two, count), pool.map(propose, range(len(self.ranges))))
        done, proposals = state.load(queries_QD, count) if state else (0, None)
        for number in range(done, len(self.ranges)):
            ranked = proposals is not None and proposals.keys_QM.shape[1] >= depth
            ranked_Q = scores_of(proposals.keys_QM[:, depth - 1]) - proposals.errors_Q if ranked else known_Q
            last_Q = np.maximum(known_Q, ranked_Q)
            part = self.propose_part(number, queries_QD, depth, count, last_Q)
            proposals = proposals.join(part, count) if proposals else part
            if state:
                state.save(queries_QD, count, number + 1, len(self.ranges), proposals)
        return proposals

    def propose_part(self, number, queries_QD, depth, count, last_Q):
        """The `Proposals` of one part, as `FaissFlat.propose` makes them."""
        engine, first = self.part(number), self.ranges[number][0]
        total = len(engine.vectors)
        errors_Q, count = engine.errors(queries_QD), min(count, total)
        scores_QM, ids_QM, others_Q = engine.propose(queries_QD, min(depth, total), count, errors_Q, last_Q)
        keys_QM = np.where(np.isneginf(scores_QM), NO_KEY, keys_of(scores_QM.astype(np.float32), ids_QM + first))
        keys_QM.sort(axis=1)
        others_Q = np.full(len(queries_QD), -np.inf) if count == total else others_Q + errors_Q
        return Proposals(keys_QM, others_Q, errors_Q, engine.outliers + first, total)

    def rank(self, queries_QD, depth, proposals):
        """The first `depth` of the candidates and all outliers: (ids int32 [Q, depth], exact scores float32 [Q, depth],
        upper bound on the exact scores of all other passages [Q])."""
        if proposals.total != len(self.vectors):
            raise RuntimeError(f"{proposals.total} passages were searched, but the index has {len(self.vectors)}")
        proposed_QM, ids_QM, outliers = scores_of(proposals.keys_QM), ids_of(proposals.keys_QM), proposals.outliers
        ids_QM[proposals.keys_QM == NO_KEY] = 0
        errors_Q = proposals.errors_Q
        scores_QM = rescore(self.vectors, queries_QD, proposed_QM, ids_QM, depth, errors_Q, self.threads)
        if count := len(outliers):
            scores_QM[np.isin(ids_QM, outliers)] = -np.inf  # each passage once
            outliers_QM = np.broadcast_to(outliers, (len(queries_QD), count))
            zeros_QM = np.zeros(outliers_QM.shape)
            exact_QM = rescore(self.vectors, queries_QD, zeros_QM, outliers_QM, count, errors_Q, self.threads)
            scores_QM, ids_QM = np.hstack([scores_QM, exact_QM]), np.hstack([ids_QM, outliers_QM])
        return *stable_topk(scores_QM, ids_QM, depth), proposals.others_Q


def prefetch(items):
    """The items of an iterator, each made by another thread while the caller works with the one before."""
    with ThreadPoolExecutor(1) as maker:
        making = maker.submit(next, items, None)
        while (item := making.result()) is not None:
            making = maker.submit(next, items, None)
            yield item
