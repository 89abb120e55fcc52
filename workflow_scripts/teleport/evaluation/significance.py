"""Is one system better than another, or was it the choice of queries? Paired permutation test, Holm's correction."""

import numpy as np
from scipy.stats import permutation_test

BATCH_VALUES = 2**22  # values permuted at once: 32 MB


def paired_p_value(scores_Q, baseline_Q, resamples, seed):
    """Two-sided p of the mean difference of two systems on the same queries (float).

    Under the null hypothesis the two scores of a query can be swapped. `resamples` swaps are drawn with `seed`, and
    all of them are taken where there are no more than that (2^Q). The smallest p is 2 / (resamples + 1).
    """
    if len(scores_Q) < 2:
        return 1.0  # scipy refuses a single query; its two swaps are equally extreme

    def mean_difference(scores, baseline, axis):
        return np.mean(scores - baseline, axis=axis)

    result = permutation_test(
        (np.asarray(scores_Q, np.float64), np.asarray(baseline_Q, np.float64)),
        mean_difference,
        permutation_type="samples",
        vectorized=True,
        n_resamples=resamples,
        batch=max(1, BATCH_VALUES // len(scores_Q)),
        alternative="two-sided",
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def holm(p_values):
    """Holm's step-down correction of a family of p-values, in their order (list of float)."""
    order, adjusted, largest = np.argsort(p_values, kind="stable"), [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * float(p_values[index])))
        adjusted[index] = largest
    return adjusted
