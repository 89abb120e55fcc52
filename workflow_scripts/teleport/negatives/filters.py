"""Candidates that are probably positives without a judgment, told by their scores.

Scores are inner products of query and passage under the checkpoint that mines for this episode, whatever source found a
passage: its own score is that of a positive with the passage (lookahead) or of an older checkpoint (momentum). s+ is
the score of the query's positive. `skip_ranks`, which needs no score, is part of sources/retrieval.py and not counted.
"""

from functools import partial

import numpy as np

from teleport.collection.reader import positives_of_job
from teleport.runtime.arrays import open_passages, places_of

PIECE_PAIRS = 2**10  # whose vectors are gathered at once: 6 MB of 768 numbers each, about what a cache holds
PERCENTILES = {"min": 0, "p25": 25, "median": 50, "p75": 75, "p90": 90, "max": 100}


def relative_margin(scores, positive_scores, margin):
    """bool: the score is at least s+ - |s+| * margin, which is below s+ for negative scores too."""
    return scores >= positive_scores - np.abs(positive_scores) * margin


def absolute_margin(scores, positive_scores, margin):
    """bool: the score is at least s+ - margin."""
    return scores >= positive_scores - margin


def above_positive(scores, positive_scores):
    """bool: the score is above s+."""
    return scores > positive_scores


def rules_of(settings):
    """{name: function of (scores, s+)} of the filters that are on in `settings` (settings.pool.Filters)."""
    rules = {}
    if settings.relative_margin is not None:
        rules["relative_margin"] = partial(relative_margin, margin=settings.relative_margin)
    if settings.absolute_margin is not None:
        rules["absolute_margin"] = partial(absolute_margin, margin=settings.absolute_margin)
    if settings.above_positive:
        rules["above_positive"] = above_positive
    return rules


def open_filters(job):
    """The `ScoreFilters` of a merge job; None when no filter looks at scores."""
    if not job.settings.filters.by_score:
        return None
    queries = np.load(job.input("queries", "queries.train.npy"), mmap_mode="r")
    score = partial(best_products, queries, *open_passages(job))
    return ScoreFilters(job.settings.filters, score, positives_of_job(job, "train"), job.settings.sources)


class ScoreFilters:
    """Drops candidates by their scores, and counts them.

    score: function of (query rows, passage rows), the score of each pair; positives: Ragged, those that are trained on;
    sources: names. Nothing is dropped for a query without positives.
    """

    def __init__(self, settings, score, positives, sources):
        self.score, self.rules = score, rules_of(settings)
        scores = score(positives.rows, positives.values)
        self.positive_scores_Q = positive_scores(scores, positives.offsets, settings.positive_score)
        self.dropped = {name: dict.fromkeys(self.rules, 0) for name in sources}
        self.left_short = dict.fromkeys(sources, 0)
        self.dropped_Q = np.zeros(len(positives), np.int64)

    def kept(self, name, first, passages_QS, candidates_QS, count):
        """bool [Q, S]: candidates of source `name` that no filter drops, from query row `first` on; `count`: wanted."""
        rows, slots = np.nonzero(candidates_QS)
        scores = self.score(first + rows, passages_QS[rows, slots])
        dropped = np.zeros(len(rows), bool)
        for rule, drops in self.rules.items():
            hit = drops(scores, self.positive_scores_Q[first + rows])
            self.dropped[name][rule] += int(np.count_nonzero(hit))
            dropped |= hit
        kept_QS = candidates_QS.copy()
        kept_QS[rows[dropped], slots[dropped]] = False
        before_Q, after_Q = (np.count_nonzero(part, axis=1) for part in (candidates_QS, kept_QS))
        self.dropped_Q[first : first + len(before_Q)] += before_Q - after_Q
        self.left_short[name] += int(np.count_nonzero((before_Q >= count) & (after_Q < count)))
        return kept_QS

    def facts(self):
        """dropped {source: {filter: candidates}}; dropped_per_query: percentiles of how many candidates of a query any
        filter dropped; left_short {source: queries that had enough candidates before}."""
        percentiles = {name: float(np.percentile(self.dropped_Q, p)) for name, p in PERCENTILES.items()}
        return {"dropped": self.dropped, "dropped_per_query": percentiles, "left_short": self.left_short}


def best_products(queries, passages, chunk_offsets, query_rows, passage_rows):
    """float32 [n]: the inner product of each pair, for a passage in chunks (`open_passages`) that of its best chunk."""
    if chunk_offsets is None or not len(passage_rows):
        return inner_products(queries, passages, query_rows, passage_rows)
    counts = np.diff(chunk_offsets)[passage_rows]
    pairs = np.repeat(query_rows, counts), places_of(chunk_offsets, passage_rows)
    return np.maximum.reduceat(inner_products(queries, passages, *pairs), np.cumsum(counts) - counts)


def inner_products(queries, passages, query_rows, passage_rows):
    """float32 [n]: the inner product of each pair of a query and a passage, whose vectors are gathered in pieces."""
    scores = np.empty(len(query_rows), np.float32)
    for start in range(0, len(scores), PIECE_PAIRS):
        piece = slice(start, start + PIECE_PAIRS)
        pairs = queries[query_rows[piece]], passages[passage_rows[piece]]
        scores[piece] = np.einsum("nd,nd->n", *(vectors_ND.astype(np.float32, copy=False) for vectors_ND in pairs))
    return scores


def positive_scores(scores, offsets, rule):
    """s+ of each query, float32 [Q], NaN without positives: by `rule` the lowest, mean or first of their scores."""
    found_Q = np.full(len(offsets) - 1, np.nan, np.float32)
    has = np.flatnonzero(np.diff(offsets))
    starts = offsets[:-1][has]
    if rule == "first":
        found_Q[has] = scores[starts]
    elif rule == "lowest":
        found_Q[has] = np.minimum.reduceat(scores, starts)
    else:
        found_Q[has] = np.add.reduceat(scores, starts) / np.diff(offsets)[has]
    return found_Q
