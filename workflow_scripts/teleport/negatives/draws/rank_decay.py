"""Draws higher ranks more often: between the top of a list only and a uniform draw from all of it."""

from pydantic import Field

from teleport.settings.section import NotNegative, Section


class Settings(Section):
    """Weights rank^-power, by ranks of lists and not by scores."""

    power: NotNegative = Field(1.0, description="How fast the chance falls with the rank; 0 is uniform.")


def choose(candidates, count, power):
    """`count` slots of each query by weight, without replacement."""
    import numpy as np

    from teleport.negatives.draw import slots_by_weight

    return slots_by_weight(candidates, -power * np.log(np.maximum(candidates.ranks_QS, 1)), count)
