"""What a `merge` stage is told: how many negatives of which sources a pool has, and which passages are none."""

from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator

from teleport.settings.section import Chosen, Integer, Natural, Part, Section

PositiveScore = Literal["lowest", "mean", "first"]


class Removal(Section):
    """Which passages are never negatives, and whether a pool has one twice."""

    keep_duplicates: bool = Field(True, description="Keep a passage as often as drawn (Table 8: dropping costs 0.9).")
    remove: Literal["judged", "answers"] = Field(
        "judged", description="Never negatives: known positives; or, instead, passages with an answer (released QA)."
    )
    relevant_grade: Integer = Field(
        1, ge=-(2**31), lt=2**31, description="From this grade on no negative; see collection.positive_grade."
    )


class Draw(Section):
    """What a pool takes from one source: how much, from which ranks, and the source's own settings.

    flag: the bit of the source in the pool's `sources`; ranks: first and last, from 1 on
    """

    model_config = ConfigDict(extra="allow")

    count: Integer = Field(ge=0)
    flag: Natural = Field(le=128)
    ranks: list[tuple[Integer, Integer]] | None = None


class Pool(Removal):
    """The settings of a `merge` stage. part: of the training queries, the only ones that get negatives.

    filters: {name: setting} of those that are on; positive_score: where the draw or a filter looks at scores
    """

    episode: Integer = Field(ge=1, le=255)
    seed: Integer
    sources: dict[str, Draw] = Field(min_length=1)
    draw: Chosen
    filters: dict[str, Any] = {}
    positive_score: PositiveScore | None = None
    part: Part | None = None

    @field_validator("sources")
    @classmethod
    def in_the_order_of_the_pool(cls, sources):
        """By flag: a job gets its settings as JSON with sorted keys."""
        return dict(sorted(sources.items(), key=lambda item: item[1].flag))


class NegativesFileSettings(Section):
    """Of the stage `negatives_file`. sha256: of the file"""

    path: str
    sha256: str
    form: Literal["tevatron", "dpr", "token-ids"]

    def identity(self):
        """The file is what its content is, wherever it lies."""
        return self.model_dump(mode="json", exclude={"path"})
