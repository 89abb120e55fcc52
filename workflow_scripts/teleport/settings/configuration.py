"""An ablation, and the whole configuration."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from teleport.settings.collection import Counts
from teleport.settings.encoder import Encoder
from teleport.settings.evaluation import Baselines, Evaluation, External, Level, Test
from teleport.settings.experiment import Defaults, Override
from teleport.settings.figures import Figure
from teleport.settings.registry import CollectionSource
from teleport.settings.search import Bm25
from teleport.settings.section import NAME, TABLE_NAME, Line, LocalPath, Natural, Section, Unique, entries


class Ablation(Section):
    """The rows of one table; each row is an experiment given as overrides of the configuration's settings."""

    title: Line = Field(description="Caption of the table.")
    baseline: Baselines | None = Field(
        None, description="Row label that the others are tested against, or mark → label or labels; null: no test."
    )
    test: Test | dict[str, Test] | None = Field(None, description="Replaces that of evaluation.significance.")
    level: Level | dict[str, Level] | None = Field(None, description="Replaces that of evaluation.significance.")
    columns: list[Literal["negatives", "loss", "episodes", "refreshes", "gap", "index", "seconds"]] = Field(
        [],
        description="Columns about the system. refreshes: how often a checkpoint mined; gap: steps from a "
        "checkpoint to the use of its negatives, in the last mined episode; index: the index that "
        "evaluation searches, and its size.",
    )
    bm25: bool = Field(False, description="Whether BM25 has the first row.")
    also: list[str] = Field([], description="Experiments of other tables that also get a row here.")
    every_episode: bool = Field(
        False,
        description="A row for every episode, compared with the baseline's same episode; false: for the last only.",
    )
    experiments: entries(dict) = Field(min_length=1, description="Name → overrides, one row each.")


class Report(Section):
    """The report page."""

    queries: Natural | Literal["all"] = Field(
        200, description="How many queries of each split are shown in full, with negatives and top tens; or all."
    )


class Config(Defaults):
    """The whole configuration after all `--configfile`s are merged."""

    name: str | None = Field(None, pattern=NAME, description="Sub-folder of results/tables, /experiments and /report.")
    collection: CollectionSource = Field(description="Where passages, queries and judgments come from.")
    counts: Counts | None = Field(None, description="Expected sizes of the collection, for `teleport forecast` alone.")
    encoder: Encoder | None = Field(None, description="The dual encoder; needed for experiments.")
    episodes: list[Override] | None = Field(None, description="One entry per episode; needed for experiments.")
    experiments: entries(dict) = Field({}, description="Name → overrides of the settings above.")
    ablations: entries(Ablation) = Field({}, description="One table per entry.")
    evaluation: Evaluation = Field(Evaluation(), description="Measures, splits, significance.")
    bm25: Bm25 | None = Field(Bm25(), description="The lexical baseline; null leaves it out.")
    external: Annotated[  # null drops the entries of earlier files instead of merging them
        entries(External) | None, AfterValidator(lambda given: given or {})
    ] = Field(
        {},
        description="Name → a run or a checkpoint from elsewhere, one row each; null removes the entries of earlier "
        "files.",
    )
    published: list[str] = Field([], description="Published tables beside ours: names in config/published, or paths.")
    figures: entries(Figure, TABLE_NAME) = Field(
        {}, description="Name → a paper's figure, which `teleport figures` draws beside those of the report page."
    )
    keep_vectors: Literal["all", "last", "none"] = Field(
        "all",
        description="Which vectors stay after every planned stage has read them: all, those of each experiment's "
        "last checkpoint, or none. `--forcerun` of their `encode` restores them.",
    )
    artefacts: Unique[LocalPath] = Field(
        [],
        description="Folders and archives of `teleport share`, hub:OWNER/NAME@COMMIT, or other folders `results`. A "
        "stage that one of them has is copied from there, not computed. They decide no result.",
    )
    report: Report | None = Field(Report(), description="The report page; null: made only on request.")

    @field_validator("collection", mode="before")
    @classmethod
    def null_removes_a_key(cls, collection):
        """Lets a file replace the source of an earlier file, although the keys of both are merged."""
        if isinstance(collection, dict):
            return {key: value for key, value in collection.items() if value is not None}
        return collection
