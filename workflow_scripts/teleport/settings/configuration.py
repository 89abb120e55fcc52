"""An experiment, an ablation, and the whole configuration."""

from typing import Annotated

from pydantic import AfterValidator, Field

from teleport.settings.collection import CollectionSource, Counts
from teleport.settings.encoder import Encoder
from teleport.settings.evaluation import Bm25, Evaluation, External
from teleport.settings.negatives import Mining, Negatives
from teleport.settings.section import NAME, Integer, Section, distinct
from teleport.settings.training import EpisodeOverride, Training

Episodes = Annotated[list[EpisodeOverride], Field(max_length=255)]  # a pool keeps first episodes as uint8
Seeds = Annotated[list[Integer], Field(min_length=1), AfterValidator(distinct)]


class Experiment(Section):
    """One system: everything that may differ between the rows of a table."""

    label: str | None = Field(None, description="Name of the row in tables; the experiment's name when absent.")
    encoder: Encoder
    mining: Mining = Mining()
    negatives: Negatives = Negatives()
    training: Training
    episodes: Episodes = Field(description="One entry per episode; an empty list is the zero-shot system.")
    seeds: Seeds = Field([42], description="Root seeds; tables give mean and standard deviation.")

    def training_of(self, episode):
        """The training settings of episode 1, 2, …: the experiment's, with the episode's overrides on top."""
        return Training(**(self.training.model_dump() | self.episodes[episode - 1].training))


class Ablation(Section):
    """The rows of one table; each row is an experiment given as overrides of the configuration's settings."""

    title: str = Field(description="Caption of the table.")
    baseline: str | None = Field(None, description="Row label that the others are tested against; null: no test.")
    experiments: dict[str, dict] = Field(min_length=1, description="Name → overrides, one row each.")


class Config(Section):
    """The whole configuration after all `--configfile`s are merged."""

    name: str | None = Field(None, pattern=NAME, description="Sub-folder of results/tables and results/experiments.")
    collection: CollectionSource = Field(description="Where passages, queries and judgments come from.")
    counts: Counts | None = Field(None, description="Expected sizes of the collection, for `make forecast` alone.")
    encoder: Encoder = Field(description="The dual encoder of every experiment.")
    mining: Mining = Field(Mining(), description="How candidates are retrieved.")
    negatives: Negatives = Field(Negatives(), description="How the pool of an episode is made.")
    training: Training = Field(description="How an episode trains.")
    episodes: Episodes = Field(description="One entry per episode.")
    seeds: Seeds = Field([42], description="Root seeds of every experiment.")
    experiments: dict[str, dict] = Field({}, description="Name → overrides of the settings above.")
    ablations: dict[str, Ablation] = Field({}, description="One table per entry.")
    evaluation: Evaluation = Field(Evaluation(), description="Measures, splits, significance.")
    bm25: Bm25 | None = Field(Bm25(), description="The lexical baseline; null leaves it out.")
    external: dict[str, External] = Field({}, description="Name → a run or a checkpoint from elsewhere, one row each.")
    published: list[str] = Field(
        [], description="Tables of published figures to set beside ours: names in config/published, or paths."
    )
