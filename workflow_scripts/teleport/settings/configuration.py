"""An ablation, and the whole configuration."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from teleport.settings.collection import Counts
from teleport.settings.encoder import Encoder
from teleport.settings.evaluation import Baselines, Evaluation, External, Level, Test
from teleport.settings.experiment import Defaults, Override
from teleport.settings.figures import Figure
from teleport.settings.forms import CollectionSource
from teleport.settings.search import Bm25
from teleport.settings.section import NAME, TABLE_NAME, Line, LocalPath, Natural, Section, Unique


class Ablation(Section):
    """The rows of one table; each row is an experiment given as overrides of the configuration's settings."""

    title: Line = Field(description="Caption of the table.")
    baseline: Baselines | None = Field(
        None, description="Row label that the others are tested against, or mark → label or labels; null: no test."
    )
    test: Test | dict[str, Test] | None = Field(None, description="Instead of evaluation.significance's.")
    level: Level | dict[str, Level] | None = Field(None, description="Instead of evaluation.significance's.")
    columns: list[Literal["negatives", "loss", "episodes", "refreshes", "gap", "index", "seconds"]] = Field(
        [],
        description="Columns on the system. refreshes: how often a checkpoint mined; gap: steps between a checkpoint "
        "and the use of what it mined, in the last mined episode; index: what evaluation searches, and its size.",
    )
    bm25: bool = Field(False, description="Whether BM25 has the first row.")
    also: list[str] = Field([], description="Experiments of the configuration's other tables with a row here, too.")
    every_episode: bool = Field(
        False, description="A row for every episode, compared with the baseline's of the same one; false: for the last."
    )
    experiments: dict[str, dict] = Field(min_length=1, description="Name → overrides, one row each.")


class Report(Section):
    """The report page."""

    queries: Natural | Literal["all"] = Field(
        200, description="Queries of each split shown in full, with their negatives and top tens; or all."
    )


class Config(Defaults):
    """The whole configuration after all `--configfile`s are merged."""

    name: str | None = Field(None, pattern=NAME, description="Sub-folder of results/tables, /experiments and /report.")
    collection: CollectionSource = Field(description="Where passages, queries and judgments come from.")
    counts: Counts | None = Field(None, description="Expected sizes of the collection, for `teleport forecast` alone.")
    encoder: Encoder | None = Field(None, description="The dual encoder of every experiment; needed if there is one.")
    episodes: list[Override] | None = Field(None, description="One entry per episode; as for `encoder`.")
    experiments: dict[str, dict] = Field({}, description="Name → overrides of the settings above.")
    ablations: dict[str, Ablation] = Field({}, description="One table per entry.")
    evaluation: Evaluation = Field(Evaluation(), description="Measures, splits, significance.")
    bm25: Bm25 | None = Field(Bm25(), description="The lexical baseline; null leaves it out.")
    external: Annotated[  # with null a file leaves out the entries of the files before it, instead of merging them
        dict[str, External] | None, AfterValidator(lambda entries: entries or {})
    ] = Field({}, description="Name → a run or a checkpoint from elsewhere, one row each; null: none of those before.")
    published: list[str] = Field([], description="Published tables beside ours: names in config/published, or paths.")
    figures: dict[Annotated[str, Field(pattern=TABLE_NAME)], Figure] = Field(
        {}, description="Figures of a paper besides those of the report page, by name; `teleport figures` draws both."
    )
    keep_vectors: Literal["all", "last", "none"] = Field(
        "all",
        description="Which vectors stay when every planned stage has read them: all, those of each experiment's last "
        "checkpoint, or none. The others are removed; `--forcerun` of their `encode` makes them again.",
    )
    artefacts: Unique[LocalPath] = Field(
        [],
        description="Folders and archives of `teleport share`, or other folders `results`: each stage is taken from "
        "there, where one of them has it, and else made. They decide no result.",
    )
    report: Report | None = Field(Report(), description="The report page; null: made only when it is asked for.")

    @field_validator("collection", mode="before")
    @classmethod
    def null_removes_a_key(cls, collection):
        """So that a file can take another source than the file before it, whose keys are merged with its own."""
        if isinstance(collection, dict):
            return {key: value for key, value in collection.items() if value is not None}
        return collection
