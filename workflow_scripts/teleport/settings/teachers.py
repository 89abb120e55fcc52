"""Teachers: sources of scores, besides the checkpoint that mines, for a draw, a filter, a mask or a loss; and the
settings of the stages `scores_file`, `ranker`, `cross_train` and `cross_score`."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from teleport.refusal import Refusal
from teleport.settings.dev import RankedQueries, require_order
from teleport.settings.encoder import CheckpointSource, Encoder, Identified, Precision
from teleport.settings.measures import known_measures
from teleport.settings.pool import ScoreSettings
from teleport.settings.section import (
    Integer,
    IntegerOrNull,
    LocalPath,
    Natural,
    Number,
    Section,
    Share,
    Tokens,
    equals,
    exactly_one,
)


class Reads(Section):
    """How a cross-encoder reads and scores a pair."""

    max_tokens: Tokens = Field(512, description="Longest pair of query and passage, special tokens included.")
    title: Literal["space", "none"] = Field(
        "space", description="What stands between title and text; none: the title is left out."
    )
    sigmoid: bool = Field(False, description="Map scores to between 0 and 1; false: the model's output as it is.")
    precision: Precision = Field("auto", description="auto: bf16 if the hardware is faster with it.")


class RankerSchedule(Section):
    """How a cross-encoder is trained. Defaults are from RocketQA's released code, on MS MARCO."""

    loss: Literal["binary", "softmax"] = Field(
        "binary",
        description="binary: cross-entropy of each pair (RocketQA); softmax: of the positive among its query's "
        "passages (sentence-transformers, Tevatron).",
    )
    negatives_per_query: Natural = Field(4, le=10_000, description="Negatives beside a query's positive in a step.")
    batch_queries: Natural = Field(51, le=65_536, description="Queries per step (released: 256 pairs).")
    learning_rate: Number = Field(1e-5, gt=0, le=10, description="Peak learning rate; it falls linearly to 0.")
    warmup_ratio: Share = Field(0.0, description="Share of the steps that warms up.")
    weight_decay: Number = Field(0.01, ge=0, le=1000, description="Decay of AdamW.")
    max_grad_norm: Number = Field(1.0, gt=0, description="The gradient norm is clipped to this.")
    epochs: IntegerOrNull = Field(
        None, ge=1, le=1_000_000, description="Passes over the queries; null without `steps`: 2."
    )
    steps: IntegerOrNull = Field(None, ge=1, le=10**9, description="Length in steps, instead of epochs.")
    accumulate: Natural = Field(1, description="Micro-batches per step; more of them save memory.")
    precision: Precision = Field("auto", description="As in `training`.")
    evaluate_every: Natural | None = Field(
        None, description="Rerank the dev queries at the start, after each so many steps, and at the end; null: never."
    )
    select: Literal["last", "dev"] = Field(
        "last", description="Which step's weights become the checkpoint; dev: the best evaluated step."
    )
    patience: Natural | None = Field(None, description="Evaluations without gain before training stops; null: never.")

    @model_validator(mode="after")
    def schedule_is_possible(self):
        if self.epochs and self.steps:
            raise Refusal("give only one of epochs and steps: each sets the length of the training")
        if self.batch_queries % self.accumulate:
            raise Refusal(f"batch_queries {self.batch_queries} must be a multiple of accumulate {self.accumulate}")
        if not self.evaluate_every and (self.select == "dev" or self.patience):
            raise Refusal(
                "select: dev and patience need evaluate_every: after how many steps the dev queries are ranked"
            )
        return self


class RankerDev(RankedQueries):
    """Some queries of a split, whose positives and first neighbours are ranked: the same at every evaluation."""

    depth: Natural = Field(50, le=10_000, description="Neighbours per query, besides its positives.")

    @model_validator(mode="after")
    def the_order_of_passages_decides(self):
        require_order(self.measure, self.depth + 1, "depth")
        return self


class PoolOf(Section):
    """The pool of negatives of an episode, as it was drawn."""

    experiment: str = Field(description="An experiment of the configuration, under the same seed.")
    episode: Natural | Literal["last"] = Field("last", description="Which of its episodes.")


class RankerTraining(RankerSchedule):
    """A training of a cross-encoder: positives against the negatives of a pool that a dual encoder has mined."""

    pool: PoolOf = Field(description="The pool of its negatives; queries without any are left out.")
    dev: RankerDev = Field(RankerDev(), description="The dev set that evaluate_every reranks.")

    @field_validator("dev")
    @classmethod
    def dev_measure_is_computed(cls, dev):
        known_measures([dev.measure])
        return dev


class CrossEncoder(Reads):
    """A model that reads query and passage together and gives one number: sequence classification with one label."""

    checkpoint: CheckpointSource | None = Field(
        None,
        description="Its weights and tokenizer; with `training`, where training starts. null: it starts where "
        "`encoder` does.",
    )
    training: RankerTraining | None = Field(
        None,
        description="Train it here, from a cross-encoder or from an encoder with a new output; null: use the "
        "checkpoint as it is.",
    )

    @model_validator(mode="after")
    def there_is_one(self):
        if not (self.checkpoint or self.training):
            raise Refusal("give its checkpoint, or a training, which starts where `encoder` does")
        return self


class Teacher(Section):
    """A second opinion on pairs: exactly one of encoder, experiment, file, cross_encoder."""

    encoder: Encoder | None = Field(None, description="Another dual encoder, with the keys of `encoder`.")
    experiment: str | None = Field(None, description="The checkpoint of an experiment, under the same seed.")
    episode: Integer | Literal["last"] = Field(
        "last",
        description="Episode of that experiment; 0: its start. If the experiment teaches itself, last is the episode "
        "before the one that it teaches.",
    )
    file: LocalPath | None = Field(
        None,
        description="Scores or verdicts of pairs made elsewhere: JSON lines of query_id, passage_id, score, or "
        "these three columns, tab-separated; plain or .gz.",
    )

    cross_encoder: CrossEncoder | None = Field(
        None, description="A cross-encoder. It gives scores of pairs, but no vectors."
    )

    one_kind = exactly_one("encoder", "experiment", "file", "cross_encoder")


class RankerSettings(Section):
    """Settings of the stage `ranker`. seed: of the output added to an encoder, as a start; None for a cross-encoder"""

    checkpoint: Identified
    seed: IntegerOrNull = Field(None, exclude_if=equals(None))

    def identity(self):
        """A folder is identified by its files, whatever its path."""
        return self.model_dump(mode="json", exclude={"checkpoint": {"folder"}})


class CrossTrainSettings(Section):
    """Settings of the stage `cross_train`. max_tokens: as in `Reads`; dev: if training.evaluate_every is set;
    ignore_own_text: of the dev set, as in `TrainSettings`"""

    training: RankerSchedule
    max_tokens: Tokens
    seed: Integer
    dev: RankerDev | None = None
    ignore_own_text: bool = Field(False, exclude_if=equals(False))


class CrossScoreSettings(ScoreSettings, Reads):
    """Settings of the stage `cross_score`: which pairs, and how to read them."""


class ScoresFileSettings(Section):
    """Settings of the stage `scores_file`. sha256: of the file"""

    path: str
    sha256: str

    def identity(self):
        """The file is identified by its content; only the end of its name says how to read it."""
        form = self.path.removesuffix(".gz").endswith((".jsonl", ".json"))
        return {"sha256": self.sha256, "form": "jsonl" if form else "tsv"}
