"""What a `merge` stage is told: how many negatives of which sources a pool has, and which passages are none."""

from typing import Literal

from pydantic import Field, field_validator

from teleport.settings.section import Integer, NumberOrNull, Part, Section


class Filters(Section):
    """Passages that are probably positives without a judgment. All are off in the papers' configurations.

    Scores are inner products under the checkpoint that mines, whatever the source; s+ is that of the positive.
    """

    skip_ranks: Integer = Field(0, ge=0, le=32_767, description="Leave out so many ranks, known positives not counted.")
    relative_margin: NumberOrNull = Field(None, ge=0, description="Leave out a score of at least s+ - |s+| x margin.")
    absolute_margin: NumberOrNull = Field(None, ge=0, description="Leave out one with at least s+ - margin.")
    above_positive: bool = Field(False, description="Leave out one with a higher score than s+.")
    positive_score: Literal["lowest", "mean", "first"] = Field(
        "lowest", description="s+ with several positives; first: as judged, the one that `positive: first` trains on."
    )

    @property
    def by_score(self):
        """Whether a filter looks at scores."""
        return self.relative_margin is not None or self.absolute_margin is not None or self.above_positive


class Draw(Section):
    """What a pool takes from one source."""

    count: Integer = Field(ge=0, description="Negatives per query.")
    flag: Integer = Field(ge=1, le=128, description="The bit of the source in the pool's `sources`.")
    ranks: list[tuple[Integer, Integer]] | None = Field(
        None, description="Ranks drawn from: first and last, from 1 on."
    )


class Pool(Section):
    """The settings of a `merge` stage. part: of the training queries, the only ones that get negatives."""

    episode: Integer = Field(ge=1, le=255)
    seed: Integer
    sources: dict[str, Draw] = Field(min_length=1)
    keep_duplicates: bool = True
    remove: Literal["judged", "answers"] = "judged"
    relevant_grade: Integer = 1
    filters: Filters = Filters()
    part: Part | None = None

    @field_validator("sources")
    @classmethod
    def in_the_order_of_the_pool(cls, sources):
        """By flag: a job gets its settings as JSON with sorted keys."""
        return dict(sorted(sources.items(), key=lambda item: item[1].flag))
