"""Draws equally many from every stratum of the scores, so that there are easy and hard negatives (arXiv 2604.04734
finds that this spread of a teacher's scores distils better than the highest scores or uniform draws)."""

from pydantic import Field

from teleport.settings.scoring import Scored
from teleport.settings.section import Natural, is_false


class Settings(Scored):
    """Candidates in the order of their scores are cut into strata."""

    strata: Natural = Field(10, description="Number of strata; all give equally many negatives, up to one.")
    by_range: bool = Field(
        False,
        exclude_if=is_false,
        description="Strata are equal ranges of the scores (TAS-B's bins of margins), so that rare scores are drawn "
        "more often; else they have equally many candidates.",
    )


def choose(candidates, count, strata, by_range=False):
    """`count` slots of each query. With n candidates in the order of their scores, number i is in stratum i·strata/n
    (rounded down); with `by_range`, a score s of those from a to b is in stratum (b - s)·strata/(b - a) (rounded down,
    a in the last one). Every stratum's share of `count` is drawn uniformly; if a stratum has too few candidates, the
    rest is drawn uniformly from the others."""
    import numpy as np

    from teleport.negatives.draw import slots_of_smallest

    available_QS, num_slots = candidates.available_QS, candidates.available_QS.shape[1]
    if by_range:
        scores_QS = candidates.scores_QS.astype(np.float64)
        highest_Q1 = np.max(scores_QS, axis=1, keepdims=True, initial=-np.inf, where=available_QS)
        lowest_Q1 = np.min(scores_QS, axis=1, keepdims=True, initial=np.inf, where=available_QS)
        below_QS = np.where(available_QS, highest_Q1 - scores_QS, 0.0) * strata
        ranges_Q1 = np.where(highest_Q1 > lowest_Q1, highest_Q1 - lowest_Q1, 1.0)
        strata_QS = np.minimum((below_QS / ranges_Q1).astype(np.int64), strata - 1)
    else:
        order_QS = np.argsort(np.where(available_QS, -candidates.scores_QS, np.inf), axis=1, kind="stable")
        places_QS = np.empty_like(order_QS)
        np.put_along_axis(places_QS, order_QS, np.arange(num_slots), axis=1)
        strata_QS = places_QS * strata // np.maximum(np.count_nonzero(available_QS, axis=1, keepdims=True), 1)
    strata_QS = np.where(available_QS, strata_QS, strata)
    random_QS = candidates.random_QS()
    # Each slot's position in the random order of its stratum, from 0 on.
    order_QS = np.lexsort((random_QS, strata_QS), axis=1)
    sorted_QS = np.take_along_axis(strata_QS, order_QS, axis=1)
    begins_QS = np.where(np.diff(sorted_QS, axis=1, prepend=-1) != 0, np.arange(num_slots), 0)
    within_QS = np.empty_like(order_QS)
    np.put_along_axis(within_QS, order_QS, np.arange(num_slots) - np.maximum.accumulate(begins_QS, axis=1), axis=1)
    share_S = np.diff(np.arange(strata + 2) * count // strata)  # of each stratum; the last: slots not available
    extra_QS = within_QS >= share_S[strata_QS]
    return slots_of_smallest(extra_QS + (random_QS >> np.uint64(11)) * 2.0**-53, available_QS, count)
