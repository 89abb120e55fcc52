"""Draws equally many from every stratum of the scores, so that there are easy and hard negatives (arXiv 2604.04734
finds that this spread of a teacher's scores distils better than the highest scores or uniform draws)."""

from pydantic import Field

from teleport.settings.section import Natural, Scored, equals


class Settings(Scored):
    """Candidates in the order of their scores are cut into strata."""

    strata: Natural = Field(
        10, description="Number of strata. Each gives equally many negatives, to within one, if it has as many."
    )
    by_range: bool = Field(
        False,
        exclude_if=equals(False),
        description="Strata are equal ranges of the scores (TAS-B's bins of margins), so that rare scores are drawn "
        "more often; else they have equally many candidates.",
    )


def choose(candidates, count, strata, by_range=False):
    """`count` slots of each query. With n candidates in the order of their scores, number i is in stratum i·strata/n
    (rounded down); with `by_range`, a score s of those from a to b is in stratum (b - s)·strata/(b - a) (rounded down,
    a in the last one). Every stratum's share of `count` is drawn uniformly; if a stratum has too few candidates, the
    rest is drawn uniformly from the others. Where `count` is no multiple of the strata, each query draws which of them
    give one more."""
    import numpy as np

    from teleport.negatives.draw import slots_of_smallest, splitmix64

    available_QS, random_QS = candidates.available_QS, candidates.random_QS()
    strata_QS = (strata_by_range if by_range else strata_by_rank)(candidates, strata)
    strata_QS = np.where(available_QS, strata_QS, strata)  # one more, for slots that are not available
    shift_Q1 = (splitmix64(random_QS[:, :1]) % np.uint64(strata)).astype(np.int64)
    shares_QS = np.diff((np.arange(strata + 2) * count + shift_Q1) // strata, axis=1)
    extra_QS = places_within(strata_QS, random_QS) >= np.take_along_axis(shares_QS, strata_QS, axis=1)
    return slots_of_smallest(extra_QS + (random_QS >> np.uint64(11)) * 2.0**-53, available_QS, count)


def strata_by_rank(candidates, strata):
    """The stratum of every slot, int64 [Q, S], if all strata have equally many candidates."""
    import numpy as np

    order_QS = np.argsort(np.where(candidates.available_QS, -candidates.scores_QS, np.inf), axis=1, kind="stable")
    numbers_Q1 = np.count_nonzero(candidates.available_QS, axis=1, keepdims=True)
    return np.argsort(order_QS, axis=1) * strata // np.maximum(numbers_Q1, 1)


def strata_by_range(candidates, strata):
    """The stratum of every slot, int64 [Q, S], if all strata are equally wide ranges of the scores."""
    import numpy as np

    available_QS, scores_QS = candidates.available_QS, candidates.scores_QS.astype(np.float64)
    highest_Q1 = np.max(scores_QS, axis=1, keepdims=True, initial=-np.inf, where=available_QS)
    lowest_Q1 = np.min(scores_QS, axis=1, keepdims=True, initial=np.inf, where=available_QS)
    below_QS = np.where(available_QS, highest_Q1 - scores_QS, 0.0) * strata
    ranges_Q1 = np.where(highest_Q1 > lowest_Q1, highest_Q1 - lowest_Q1, 1.0)
    return np.minimum((below_QS / ranges_Q1).astype(np.int64), strata - 1)


def places_within(strata_QS, random_QS):
    """The position of every slot in the random order of its stratum, from 0 on: int64 [Q, S]."""
    import numpy as np

    order_QS, slots = np.lexsort((random_QS, strata_QS), axis=1), np.arange(strata_QS.shape[1])
    begins_QS = np.diff(np.take_along_axis(strata_QS, order_QS, axis=1), axis=1, prepend=-1) != 0
    within_QS = slots - np.maximum.accumulate(np.where(begins_QS, slots, 0), axis=1)
    return np.take_along_axis(within_QS, np.argsort(order_QS, axis=1), axis=1)  # in the order of the slots
