"""Is one system better than another, or was it the choice of queries? Paired tests, Holm's correction."""

import numpy as np
from scipy.stats import permutation_test, ttest_rel

BATCH_VALUES = 2**22  # values permuted at once: 32 MB
# Sums of differences that are this close are the same: 1/3 - 1/6 is not 1/6 in binary numbers, and the order of adding
# matters too, but a sum of 100,000 scores is off by less than this.
TIE = 1e-9


def paired_p_value(scores_Q, baseline_Q, resamples, seed):
    """Two-sided p of the mean difference of two systems on the same queries (float).

    Under the null hypothesis the two scores of a query can be swapped. `resamples` swaps are drawn with `seed`, and
    all of them are taken where there are no more than that (2^Q). The smallest p is 2 / (resamples + 1).
    """
    if len(scores_Q) < 2:
        return 1.0  # scipy refuses a single query; its two swaps are equally extreme
    differences_Q = np.asarray(scores_Q, np.float64) - np.asarray(baseline_Q, np.float64)
    observed = np.sum(differences_Q)

    def total(differences, axis):
        sums = np.sum(differences, axis=axis)
        return np.where(np.abs(sums - observed) < TIE, observed, sums)

    batch, rng = max(1, BATCH_VALUES // len(scores_Q)), np.random.default_rng(seed)
    # Of one sample scipy changes the signs: to swap two scores is to change the sign of their difference.
    options = {"permutation_type": "samples", "vectorized": True, "n_resamples": resamples, "batch": batch, "rng": rng}
    return float(permutation_test((differences_Q,), total, **options).pvalue)


def paired_t_p_value(scores_Q, baseline_Q):
    """Two-sided p of a paired t-test on the same queries (float): the test of STAR and ADORE (Table 2).

    1 for a single query and where the two systems do not differ on any: there is nothing to test.
    """
    if len(scores_Q) < 2 or np.array_equal(scores_Q, baseline_Q):
        return 1.0
    return float(ttest_rel(scores_Q, baseline_Q).pvalue)


def holm(p_values):
    """Holm's step-down correction of a family of p-values, in their order (list of float)."""
    order, adjusted, largest = np.argsort(p_values, kind="stable"), [0.0] * len(p_values), 0.0
    for step, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - step) * float(p_values[index])))
        adjusted[index] = largest
    return adjusted
