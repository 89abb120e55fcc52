"""TriSampler (arXiv 2402.11855): near the positive's score, then nearer to the positive than to the query."""

from pydantic import Field

from teleport.settings.section import Compared, Natural


class Settings(Compared):
    """Some candidates by exp(-(s - s+)^2 / 4), and of these the negatives by max(0, d+·d - q·d) (TriSampler)."""

    among: Natural = Field(100, description="How many candidates the first of the two draws keeps.")


def choose(candidates, count, among):
    """`count` slots of each query: `among` by the first weight, `count` of these by the second, without replacement.
    Candidates that are no nearer to the positive than to the query have weight 0 and are never drawn. A query without
    a positive has uniform draws, and no training reads it."""
    import numpy as np

    from teleport.negatives.draw import slots_by_weight, splitmix64

    num_slots = candidates.available_QS.shape[1]
    near_QN = slots_by_weight(candidates, -(candidates.gaps_QS() ** 2) / 4, min(among, num_slots))
    near_QS = np.zeros((len(near_QN), num_slots + 1), bool)
    np.put_along_axis(near_QS, np.minimum(near_QN, num_slots), True, axis=1)
    seed = int(splitmix64(np.array([candidates.seed], np.uint64))[0])  # separate random numbers
    second = candidates._replace(available_QS=near_QS[:, :num_slots], seed=seed)
    without = np.isnan(candidates.positive_scores_Q)[:, None]
    nearer_QS = np.where(without, 1.0, candidates.anchor_scores_QS.astype(np.float64) - candidates.scores_QS)
    with np.errstate(divide="ignore", invalid="ignore"):
        return slots_by_weight(second, np.log(np.maximum(nearer_QS, 0)), count)
