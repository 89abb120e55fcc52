"""The higher a score, the likelier the draw: weights exp(s / temperature)."""

from pydantic import Field

from teleport.settings.section import Number, Scored


class Settings(Scored):
    """Weights exp(s / temperature)."""

    temperature: Number = Field(1.0, gt=0, description="Towards 0 it is the highest scores alone.")


def choose(candidates, count, temperature):
    """`count` slots of each query by weight, without replacement."""
    from teleport.negatives.draw import slots_by_weight

    return slots_by_weight(candidates, candidates.scores_QS / temperature, count)
