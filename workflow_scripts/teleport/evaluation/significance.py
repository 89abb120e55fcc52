"""Is one system better than another, or was it the choice of queries? Paired tests, Holm's correction."""

import numpy as np
from scipy.stats import permutation_test, ttest_rel

BATCH_VALUES = 2**22  # values permuted at once: 32 MB
# Scores are rounded to multiples of 2^-36 (1.5e-11). Sums of 100,000 of them are then exact, so that equally extreme
# swaps compare as equal, in whatever order a machine adds.
GRID = 2.0**36


def paired_p_value(scores_Q, baseline_Q, resamples, seed):
    """Two-sided p of the mean difference of two systems on the same queries (float).

    Under the null hypothesis the two scores of a query can be swapped. `resamples` swaps are drawn with `seed`, and
    all of them are taken where there are no more than that (2^Q). The smallest p is 2 / (resamples + 1).
    """
    if len(scores_Q) < 2:
        return 1.0  # scipy refuses a single query; its two swaps are equally extreme

    def summed_difference(scores, baseline, axis):
        return np.sum(scores - baseline, axis=axis)

    result = permutation_test(
        [np.round(np.asarray(scores, np.float64) * GRID) / GRID for scores in (scores_Q, baseline_Q)],
        summed_difference,
        permutation_type="samples",
        vectorized=True,
        n_resamples=resamples,
        batch=max(1, BATCH_VALUES // len(scores_Q)),
        alternative="two-sided",
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


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
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * float(p_values[index])))
        adjusted[index] = largest
    return adjusted
