"""Figures of a paper about single queries, steps or several systems at once, drawn by `teleport figures`."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from teleport.refusal import Refusal
from teleport.settings.section import Natural, Section

Names = Annotated[list[str], Field(min_length=1)]
Queries = Names | Natural


class Map(Section):
    """A query, its relevant passages and those that systems gave it, on a plane (ANCE, Figures 1, 6 and 7)."""

    kind: Literal["map"]
    split: str = Field(description="Split of the queries; train: the passages are the negatives of the last pool.")
    queries: Queries = Field(3, description="Query ids, or how many to draw at random.")
    vectors: Names = Field(description="Experiments whose last checkpoint places the texts: a map for each.")
    start: bool = Field(False, description="Also draw a map under the checkpoint that an experiment starts with.")
    systems: Names = Field(description="Experiments, or BM25, whose passages are shown.")
    passages: Natural = Field(50, description="At most this many of a system's first passages.")


class Scores(Section):
    """The scores of a query's first passages less the mean of all passages (ANCE, Figure 3)."""

    kind: Literal["scores"]
    split: str = Field(description="Split of the queries.")
    queries: Queries = Field(10, description="Query ids, or how many to draw at random.")
    systems: Names = Field(description="Experiments, after their last episode: a chart for each.")
    depth: Natural = Field(100, description="Passages per query.")


class Curves(Section):
    """A column of the trainings by step, or a measure after every episode, of several systems in one chart."""

    kind: Literal["curves"]
    systems: Names = Field(description="Experiments.")
    column: str | None = Field(
        None,
        description="Column of losses.tsv, found.tsv or dev.tsv, such as `loss`, `dev RR@10`; null: no chart by step.",
    )
    episode: Natural | None = Field(None, description="Draw `column` for this episode only; null: for all.")
    split: str | None = Field(None, description="With `measure`: split of the evaluations after every episode.")
    measure: str | None = Field(
        None, description="Measure whose mean is drawn by the number of steps until then; null: no such chart."
    )

    @model_validator(mode="after")
    def something_is_drawn(self):
        if not (self.column or self.measure):
            raise Refusal("give a column, a measure or both: without them nothing is drawn")
        return self


class Bars(Section):
    """A bar for each figure of ours in a published table, a diamond for each published one."""

    kind: Literal["bars"]
    table: str = Field(description="A name in config/published, or a path.")


class Histogram(Section):
    """Queries by the number of their pairwise errors (STAR and ADORE, Figure 3); needs evaluation.analyses.errors."""

    kind: Literal["histogram"]
    systems: Names = Field(description="Experiments, after their last episode: a chart for each.")


class Cases(Section):
    """A table of queries that a system wins and loses, and where its list parts from that of analyses.against."""

    kind: Literal["cases"]
    systems: Names = Field(description="Experiments, after their last episode: a table for each.")
    queries: Names | None = Field(None, description="Query ids; null: those with the largest differences.")
    won: Natural = Field(3, description="Without `queries`: how many that the system wins.")
    lost: Natural = Field(3, description="Without `queries`: how many that it loses.")


Figure = Annotated[Map | Scores | Curves | Bars | Histogram | Cases, Field(discriminator="kind")]
