"""An ablation, and the whole configuration."""

from typing import Annotated, Literal

from pydantic import Field

from teleport.settings.collection import CollectionSource, Counts
from teleport.settings.evaluation import Evaluation, External
from teleport.settings.experiment import Encoder, EpisodeTraining, Override
from teleport.settings.negatives import Mining, Negatives
from teleport.settings.search import Bm25
from teleport.settings.section import NAME, Integer, Section


class Ablation(Section):
    """The rows of one table; each row is an experiment given as overrides of the configuration's settings."""

    title: str = Field(description="Caption of the table.")
    baseline: str | None = Field(None, description="Row label that the others are tested against; null: no test.")
    columns: list[Literal["negatives", "loss", "episodes", "seconds"]] = Field([], description="Columns on the system.")
    bm25: bool = Field(False, description="Whether BM25 has the first row.")
    experiments: dict[str, dict] = Field(min_length=1, description="Name → overrides, one row each.")


class Report(Section):
    """The report page."""

    queries: Annotated[Integer, Field(ge=1)] | Literal["all"] = Field(
        200, description="Queries of each split shown in full, with their negatives and top tens; or all."
    )


class Config(Section):
    """The whole configuration after all `--configfile`s are merged."""

    name: str | None = Field(None, pattern=NAME, description="Sub-folder of results/tables, /experiments and /report.")
    collection: CollectionSource = Field(description="Where passages, queries and judgments come from.")
    counts: Counts | None = Field(None, description="Expected sizes of the collection, for `make forecast` alone.")
    encoder: Encoder = Field(description="The dual encoder of every experiment.")
    mining: Mining = Field(Mining(), description="How candidates are retrieved.")
    negatives: Negatives = Field(Negatives(), description="How the pool of an episode is made.")
    training: EpisodeTraining = Field(description="How an episode trains.")
    episodes: list[Override] = Field(description="One entry per episode.")
    seeds: list[Integer] = Field([42], description="Root seeds of every experiment.")
    experiments: dict[str, dict] = Field({}, description="Name → overrides of the settings above.")
    ablations: dict[str, Ablation] = Field({}, description="One table per entry.")
    evaluation: Evaluation = Field(Evaluation(), description="Measures, splits, significance.")
    bm25: Bm25 | None = Field(Bm25(), description="The lexical baseline; null leaves it out.")
    external: dict[str, External] = Field({}, description="Name → a run or a checkpoint from elsewhere, one row each.")
    published: list[str] = Field([], description="Published tables beside ours: names in config/published, or paths.")
    report: Report = Field(Report(), description="The report page.")
