"""Ambiguous negatives: those whose scores are near that of the positive (SimANS, arXiv 2210.11773, Eq. 5)."""

from pydantic import Field

from teleport.settings.section import NotNegative, Number, Scored


class Settings(Scored):
    """Weights exp(-a (s - s+ - b)^2) (SimANS)."""

    a: NotNegative = Field(0.5, description="Sharpness of the draw (SimANS, released: 0.5); 0 is uniform.")
    b: Number = Field(
        0.0,
        description="How far above s+ the likeliest score is (SimANS). Its released code adds b, so its 1.0 for NQ is "
        "-1 here.",
    )


def choose(candidates, count, a, b):
    """`count` slots of each query by weight, without replacement."""
    from teleport.negatives.draw import slots_by_weight

    return slots_by_weight(candidates, -a * (candidates.gaps_QS() - b) ** 2, count)
