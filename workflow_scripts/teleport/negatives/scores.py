"""Scores of candidates under the checkpoint that mines for this episode, and the filters that look at them: inner
products with the query, whatever source has a passage, whose own score may be that of a positive with it (lookahead) or
of an older checkpoint (momentum). s+ is the score of the query's positive."""

import numpy as np

from teleport.collection.reader import positives_of_job
from teleport.negatives.filters import chosen_filters
from teleport.search.pairs import PairScorer

PERCENTILES = {"min": 0, "p25": 25, "median": 50, "p75": 75, "p90": 90, "max": 100}


class MinerScores:
    """Scores of the candidates of a merge job and s+ of every query; drops candidates by filters and counts them, but
    of no query without positives. score: function of (query rows, passage rows), the score of each pair;
    positive_scores_Q: float32, of the positives that are trained on, NaN without one"""

    def __init__(self, job):
        self.score, self.filters = PairScorer.of_job(job, "train").score, chosen_filters(job, "drops_scores")
        positives, rule = positives_of_job(job, "train"), job.settings.positive_score
        self.positive_scores_Q = positive_scores(self.score(positives.rows, positives.values), positives.offsets, rule)
        self.dropped = {name: dict.fromkeys(self.filters, 0) for name in job.settings.sources}
        self.left_short = dict.fromkeys(job.settings.sources, 0)
        self.dropped_Q = np.zeros(len(positives), np.int64)

    def of(self, first, passages_QS, candidates_QS):
        """float32 [Q, S]: scores of candidates of the queries from row `first` on, NaN where there is none."""
        rows, slots = np.nonzero(candidates_QS)
        scores_QS = np.full(candidates_QS.shape, np.nan, np.float32)
        scores_QS[rows, slots] = self.score(first + rows, passages_QS[rows, slots])
        return scores_QS

    def kept(self, name, first, scores_QS, candidates_QS, count):
        """bool [Q, S]: candidates of source `name` that no filter drops, from query row `first` on; `count`: wanted."""
        last, kept_QS = first + len(scores_QS), candidates_QS.copy()
        for rule, (drops, setting) in self.filters.items():
            dropped_QS = drops(scores_QS, self.positive_scores_Q[first:last, None], setting)
            self.dropped[name][rule] += int(np.count_nonzero(dropped_QS))
            kept_QS &= ~dropped_QS
        before_Q, after_Q = (np.count_nonzero(each_QS, axis=1) for each_QS in (candidates_QS, kept_QS))
        self.dropped_Q[first:last] += before_Q - after_Q
        self.left_short[name] += int(np.count_nonzero((before_Q >= count) & (after_Q < count)))
        return kept_QS

    def facts(self):
        """dropped {source: {filter: candidates}}; dropped_per_query: percentiles of how many candidates of a query any
        filter dropped; left_short {source: queries that had enough candidates before}."""
        percentiles = {name: float(np.percentile(self.dropped_Q, p)) for name, p in PERCENTILES.items()}
        return {"dropped": self.dropped, "dropped_per_query": percentiles, "left_short": self.left_short}


def positive_scores(scores, offsets, rule):
    """s+ of each query, float32 [Q], NaN without positives: by `rule` the lowest, mean or first of their scores."""
    scores_Q = np.full(len(offsets) - 1, np.nan, np.float32)
    has = np.flatnonzero(np.diff(offsets))
    starts = offsets[:-1][has]
    if rule == "first":
        scores_Q[has] = scores[starts]
    elif rule == "lowest":
        scores_Q[has] = np.minimum.reduceat(scores, starts)
    else:
        scores_Q[has] = np.add.reduceat(scores, starts) / np.diff(offsets)[has]
    return scores_Q
