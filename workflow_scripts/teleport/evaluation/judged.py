"""The usual measures from where a run has the judged passages, with trec_eval's conventions. A run of 7 million results
has a few thousand judged passages, so the results are read once, for the rank of every judged passage; all measures are
sums over these. Shapes: J judgments, Q judged queries."""

from typing import NamedTuple

import numpy as np

FAR = np.iinfo(np.int64).max  # the rank of a passage that was not retrieved
BLOCK = 4096  # judgments looked for at once


class Judgments(NamedTuple):
    """Judgments in any order, each (query, passage) once: rows of queries, of passages, and grades; all int [J]."""

    queries: np.ndarray
    passages: np.ndarray
    grades: np.ndarray


class RankedJudgments(NamedTuple):
    """The judged passages with the ranks that a run gives them, ordered by query, then by rank. queries: rows of the
    judged queries, ascending [Q]; lengths: results of each [Q]; depth: of the run; query_J: index of the query in
    `queries`; rank_J: from 1, or FAR; grade_J."""

    queries: np.ndarray
    lengths: np.ndarray
    depth: int
    query_J: np.ndarray
    rank_J: np.ndarray
    grade_J: np.ndarray

    def total(self, counted_J, weights_J=None):
        """The number, or sum of weights, of the judgments `counted_J` (bool [J]) of every query: float64 [Q]."""
        weights = np.ones(len(counted_J)) if weights_J is None else weights_J
        return np.bincount(self.query_J[counted_J], weights[counted_J], minlength=len(self.queries))

    def relevant(self, rel):
        """Number of passages of at least this grade of every query: float64 [Q]."""
        return self.total(self.grade_J >= rel)

    def hits(self, cutoff, rel=1):
        """Which judged passages have this grade and one of the first `cutoff` ranks: bool [J]."""
        return (self.rank_J <= min(cutoff, self.depth)) & (self.grade_J >= rel)


def rank_judged(ids_QK, rows, judgments):
    """`RankedJudgments` of a run: its passages in the order of ranks, -1 in empty slots; the query row of each line."""
    queries, query_J = np.unique(judgments.queries, return_inverse=True)
    line_Q = lines_of(rows, queries)
    line_J, rank_J = line_Q[query_J], np.full(len(query_J), FAR)
    retrieved = np.flatnonzero(line_J >= 0)  # of queries that have a line
    for first in range(0, len(retrieved), BLOCK):
        block = retrieved[first : first + BLOCK]
        same = ids_QK[line_J[block]] == judgments.passages[block, None]
        rank_J[block] = np.where(same.any(axis=1), same.argmax(axis=1) + 1, FAR)
    lengths = np.where(line_Q >= 0, np.append(np.count_nonzero(ids_QK >= 0, axis=1), 0)[line_Q], 0)
    order = np.lexsort((rank_J, query_J))
    return RankedJudgments(queries, lengths, ids_QK.shape[1], query_J[order], rank_J[order], judgments.grades[order])


def lines_of(rows, queries):
    """The line of each of `queries` in a `Run` with these `rows`, -1 where it has none (int64)."""
    line_of = np.full(max(queries.max(initial=-1), rows.max(initial=-1)) + 1, -1)
    line_of[rows] = np.arange(len(rows))
    return line_of[queries]


def order_within(query_J):
    """The number of each entry within its query, from 0: [4, 4, 4, 7] gives [0, 1, 2, 0]."""
    return np.arange(len(query_J)) - np.searchsorted(query_J, query_J)


def divided(sums, counts):
    """sums / counts, 0 where the count is 0."""
    return np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0)


def reciprocal_rank(judged, cutoff=FAR, rel=1):
    """1 / rank of the first relevant passage, 0 without one."""
    hits, values = judged.hits(cutoff, rel), np.zeros(len(judged.queries))
    np.maximum.at(values, judged.query_J[hits], 1 / judged.rank_J[hits])
    return values


def first_hit_reciprocals(hit_QK):
    """`reciprocal_rank` of ranked lists of which it is known what is relevant, bool [Q, K]: float64 [Q]."""
    return np.where(hit_QK.any(axis=1), 1 / (hit_QK.argmax(axis=1) + 1), 0.0)


def ndcg(judged, cutoff=FAR):
    """Sum of grade / log2(rank + 1), relative to that of the ideal order of all judged passages."""
    gain_J = np.maximum(judged.grade_J, 0).astype(np.float64)
    hits = judged.hits(cutoff)
    gained = judged.total(hits, gain_J / np.log2(np.where(hits, judged.rank_J, 1) + 1))
    ideal = np.lexsort((-gain_J, judged.query_J))  # leaves the queries where they are
    rank_J = order_within(judged.query_J) + 1
    return divided(gained, judged.total(rank_J <= cutoff, gain_J[ideal] / np.log2(rank_J + 1)))


def recall(judged, cutoff, rel=1):
    """Share of the relevant passages that were retrieved."""
    return divided(judged.total(judged.hits(cutoff, rel)), judged.relevant(rel))


def precision(judged, cutoff, rel=1):
    """Share of relevant passages among the first `cutoff` results; a shorter list counts as filled up."""
    return judged.total(judged.hits(cutoff, rel)) / cutoff


def average_precision(judged, cutoff=FAR, rel=1):
    """Mean, over the relevant passages, of the precision at their ranks."""
    hits = judged.hits(cutoff, rel)
    precision_J = np.zeros(len(hits))
    precision_J[hits] = (order_within(judged.query_J[hits]) + 1) / judged.rank_J[hits]
    return divided(judged.total(hits, precision_J), judged.relevant(rel))


def r_precision(judged, rel=1):
    """Precision at the rank that is the number of relevant passages."""
    relevant_Q = judged.relevant(rel)
    hits = judged.hits(judged.depth, rel) & (judged.rank_J <= relevant_Q[judged.query_J])
    return divided(judged.total(hits), relevant_Q)


def success(judged, cutoff, rel=1):
    """1 when a relevant passage was retrieved, else 0."""
    return (judged.total(judged.hits(cutoff, rel)) > 0).astype(np.float64)


def judged_rate(judged, cutoff=FAR):
    """Share of judged passages, of whatever grade, among the first results; 0 without results."""
    return divided(judged.total(judged.rank_J <= min(cutoff, judged.depth)), np.minimum(judged.lengths, cutoff))


def hole_rate(judged, cutoff):
    """Results among the first that have no judgment, by the mean number of first results (ANCE, Table 6: Hole@10). So
    the mean over queries is the share of unjudged results, pooled over queries, as ANCE's notebook has it."""
    results = np.minimum(judged.lengths, cutoff).astype(np.float64)
    holes = results - judged.total(judged.rank_J <= min(cutoff, judged.depth))
    return holes / results.mean() if results.any() else holes


def top_errors(judged, cutoff):
    """Top-K pairwise errors (STAR and ADORE, Table 1): the irrelevant passages above each positive (grade 1 or more),
    counted up to K; K for one not retrieved, which is right when the run is as long as K and the other positives, or
    the corpus."""
    positives = np.flatnonzero(judged.grade_J >= 1)
    queries, ranks = judged.query_J[positives], judged.rank_J[positives]
    errors = np.minimum(ranks - 1 - order_within(queries), cutoff)  # in the order of ranks: those before are relevant
    return np.bincount(queries, errors, minlength=len(judged.queries))


# By their names, those of ir-measures and what it lacks; arguments: the cut-off, and the lowest grade that is relevant.
MEASURES = {
    "RR": reciprocal_rank,
    "nDCG": ndcg,
    "R": recall,
    "P": precision,
    "AP": average_precision,
    "Rprec": r_precision,
    "Success": success,
    "Judged": judged_rate,
    "Hole": hole_rate,
    "Errors": top_errors,
}
