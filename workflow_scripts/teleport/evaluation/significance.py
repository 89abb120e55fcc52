"""Tests whether one system is better than another beyond the chance of queries and seeds, and Holm's correction."""

from typing import NamedTuple

import numpy as np

LEAST_SEEDS = 3  # for a test to use the deviation over seeds: two seeds have one degree of freedom

BATCH_VALUES = 2**22  # values permuted at once: 32 MB
# Sums of differences that are this close count as equal: 1/3 - 1/6 is not 1/6 in binary numbers, and the order of
# adding matters too. A sum of 100,000 scores is off by less than this.
TIE = 1e-9


class Scores(NamedTuple):
    """The scores of a system, a column per run. Two systems that are compared have the same queries in the same order.
    values_QR: float64; seeds: the root seed of each run's training, () for the single run of a system that was not
    trained here (BM25, a released checkpoint): it varies only with the queries"""

    values_QR: np.ndarray
    seeds: tuple = ()


class Comparison(NamedTuple):
    """Two systems on the same queries. difference: of the means; p: two-sided; method: "crossed", "permutation" or
    "t-test"; checkpoints: whether p holds only for these checkpoints, because a trained system has too few seeds; won,
    lost: queries, by means"""

    difference: float
    p: float
    method: str
    checkpoints: bool
    won: int
    lost: int


def compare(ours, theirs, test="permutation", resamples=9999, seed=42, way=1):
    """The `Comparison` of two `Scores`. If every trained system has LEAST_SEEDS or more, queries and seeds are both
    random (`crossed_p_value`). With fewer, or no trained system, p comes from `test` over queries ("permutation" with
    `resamples` drawn with `seed`, or "t-test"), with scores averaged over the runs: the checkpoints are fixed. way: 1,
    or -1 if the smaller score of a query wins"""
    means = ours.values_QR.mean(axis=1), theirs.values_QR.mean(axis=1)
    trained = [scores for scores in (ours, theirs) if scores.seeds]
    few = any(len(scores.seeds) < LEAST_SEEDS for scores in trained)
    if trained and not few:
        method, p = "crossed", crossed_p_value(ours, theirs)
    else:
        method, p = test, paired_t_p_value(*means) if test == "t-test" else paired_p_value(*means, resamples, seed)
    differences_Q = means[0] - means[1]
    won, lost = (int(np.count_nonzero(sign * differences_Q > TIE)) for sign in (way, -way))
    return Comparison(float(differences_Q.mean()), p, method, few, won, lost)


def crossed_p_value(ours, theirs):
    """Two-sided p of the mean difference of two `Scores` with queries and seeds as crossed random effects (float).

    The variance is the one of Clark's quasi-F (1973) and of readers and cases in medical imaging (Hillis 2014): the
    variances of the means over seeds and over queries, less their interaction, which is in both. Where the
    queries are the same, equal seeds draw alike, so their differences are tested seed by seed; otherwise each system's
    seeds add a variance. Satterthwaite's degrees of freedom are too liberal with three seeds. So p is the mean of two,
    under the seeds' degrees of freedom (Welch's) and the queries', weighted by their variances, as Cochran and Cox
    (1957) weight critical values. docs/significance.md has its false positives.
    """
    from scipy.special import stdtr  # here: planning loads this module, too

    differences_Q = ours.values_QR.mean(axis=1) - theirs.values_QR.mean(axis=1)
    num_queries, difference = len(differences_Q), abs(differences_Q.mean())
    if num_queries < 2 or difference < TIE:
        return 1.0
    columns = np.argsort(ours.seeds), np.argsort(theirs.seeds)
    if sorted(ours.seeds) == sorted(theirs.seeds):
        parts = [ours.values_QR[:, columns[0]] - theirs.values_QR[:, columns[1]]]
    else:
        parts = [scores.values_QR for scores in (ours, theirs) if scores.seeds]
    over_seeds, interactions = np.array([variances(values_QR) for values_QR in parts]).T
    freedom = np.array([values_QR.shape[1] - 1 for values_QR in parts])
    seeds = over_seeds.sum()
    queries = max(0.0, differences_Q.var(ddof=1) / num_queries - interactions.sum())
    if seeds + queries < TIE**2:  # rounding leaves 1e-34 if the difference is the same everywhere
        return least_p(num_queries)
    statistic, share = difference / np.sqrt(seeds + queries), seeds / (seeds + queries)
    welch = seeds**2 / np.sum(over_seeds**2 / freedom) if seeds else num_queries - 1
    return float(2 * (share * stdtr(welch, -statistic) + (1 - share) * stdtr(num_queries - 1, -statistic)))


def least_p(num_queries):
    """The p if the difference is the same on all queries: two of 2^Q swaps are as extreme (float)."""
    return 2.0 ** (1 - num_queries)


def variances(values_QR):
    """(variance of the mean over seeds, the part of it that is the interaction of seeds with queries): two floats."""
    num_queries, num_seeds = values_QR.shape
    by_seed = values_QR.mean(axis=0)
    residuals = values_QR - by_seed - values_QR.mean(axis=1, keepdims=True) + values_QR.mean()
    interaction = np.sum(residuals**2) / ((num_queries - 1) * (num_seeds - 1))
    return by_seed.var(ddof=1) / num_seeds, interaction / (num_queries * num_seeds)


def paired_p_value(scores_Q, baseline_Q, resamples, seed):
    """Two-sided p of the mean difference of two systems on the same queries (float). Under the null hypothesis the two
    scores of a query can be swapped. `resamples` of the 2^Q swaps are drawn with `seed`, or all are taken if there are
    no more. The smallest p is 2 / (resamples + 1)."""
    from scipy.stats import permutation_test

    if len(scores_Q) < 2:
        return 1.0  # scipy refuses a single query; its two swaps are equally extreme
    differences_Q = np.asarray(scores_Q, np.float64) - np.asarray(baseline_Q, np.float64)
    observed = np.sum(differences_Q)

    def total(differences, axis):
        sums = np.sum(differences, axis=axis)
        return np.where(np.abs(sums - observed) < TIE, observed, sums)

    batch, rng = max(1, BATCH_VALUES // len(scores_Q)), np.random.default_rng(seed)
    # For one sample scipy changes the signs: to swap two scores is to change the sign of their difference.
    options = {"permutation_type": "samples", "vectorized": True, "n_resamples": resamples, "batch": batch, "rng": rng}
    return float(permutation_test((differences_Q,), total, **options).pvalue)


def paired_t_p_value(scores_Q, baseline_Q):
    """Two-sided p of a paired t-test on the same queries (float): the test of STAR and ADORE (Table 2). It is 1 for a
    single query, or if the systems differ on none."""
    from scipy.stats import ttest_rel

    differences_Q = np.subtract(scores_Q, baseline_Q)
    if len(scores_Q) < 2 or np.abs(differences_Q).max() < TIE:  # the mean of three equal scores may differ from them
        return 1.0
    if np.ptp(differences_Q) < TIE:
        return least_p(len(scores_Q))
    return float(ttest_rel(scores_Q, baseline_Q).pvalue)


def holm(p_values):
    """Holm's step-down correction of a family of p-values, in their order (list of float). NaN (no test) stays NaN."""
    tested = [p for p in p_values if not np.isnan(p)]
    if len(tested) < len(p_values):
        corrected = iter(holm(tested))
        return [p if np.isnan(p) else next(corrected) for p in p_values]
    order, adjusted = np.argsort(p_values, kind="stable"), np.zeros(len(p_values))
    steps = np.arange(len(p_values), 0, -1) * np.take(p_values, order)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted.tolist()
