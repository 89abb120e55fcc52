"""Queries that are ranked during a training, of a dual encoder or of a cross-encoder."""

from pydantic import Field

from teleport.refusal import Refusal
from teleport.settings.section import Natural, Section


def require_order(measure, ranked, key):
    """Raise Refusal for a measure that is the same for every order of the `ranked` passages that `key` sets (a number
    at most): with R@400 of 400 passages no step would be better than the start."""
    name, cutoff = measure.split("@")
    if int(cutoff) >= ranked and not name.startswith(("RR", "nDCG", "AP")):
        raise Refusal(
            f"measure {measure} is the same for every order of the {ranked} passages that are ranked: lower its "
            f"cut-off, or raise {key}"
        )


class RankedQueries(Section):
    """Some queries of a split that are ranked during a training."""

    split: str = Field("dev", description="Split of the ranked queries; never one that a table reports.")
    queries: Natural = Field(100, description="At most this many of its judged queries.")
    measure: str = Field(
        "RR@10",
        pattern=r"^(RR|nDCG|R|P|AP|Success)(\(rel=[1-9][0-9]*\))?@[1-9][0-9]*$",
        description="Measure by which steps are compared: RR@10, nDCG@10, R(rel=2)@100, …",
    )

    @property
    def name(self):
        """The name of the measure beside those of tables, such as "dev RR@10"."""
        return f"{self.split} {self.measure}"
