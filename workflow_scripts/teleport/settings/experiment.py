"""An experiment: an encoder, and episodes, each of which is negatives x loss x schedule x start x what is trained."""

from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from teleport.settings.checkpoint import CheckpointSource
from teleport.settings.dev import Dev
from teleport.settings.negatives import Mining, Negatives
from teleport.settings.registry import LOSSES
from teleport.settings.search import FlatIndex, FrozenIndex
from teleport.settings.section import Integer, IntegerOrNull, Line, Number, Section, distinct, merged
from teleport.settings.training import Training

MOST_EPISODES = 255  # a pool keeps first episodes as uint8


class Encoder(Section):
    """The dual encoder: vectors of queries and passages, compared by inner product."""

    checkpoint: CheckpointSource = Field(description="Where episodes start; only passages beside a query_checkpoint.")
    pooling: Literal["cls", "mean"] | None = Field(
        None, description="From token vectors to that of a text (ANCE-Tele: cls); null: as the checkpoint's files say."
    )
    projection: IntegerOrNull = Field(
        None,
        gt=0,
        le=65_536,
        description="Width of a linear + LayerNorm head (ANCE 768): the checkpoint's, or drawn; or null.",
    )
    normalize: bool | None = Field(
        None, description="Scale vectors to length 1 (ANCE-Tele: no); null: as the checkpoint's files say, else no."
    )
    scale: Number = Field(
        1.0, gt=0, le=1e6, description="Factor on inner products in the loss (ANCE-Tele 1, cosine about 20)."
    )
    tied: bool = Field(True, description="One encoder for both sides (ANCE-Tele on MS MARCO), or two (NQ, TriviaQA).")
    title: Literal["sep", "space", "none"] = Field("sep", description="Between title and text; none: without title.")
    lower_case: bool | None = Field(None, description="Lower-case before tokenising; null: as the tokenizer does.")
    query_prefix: str | None = Field(
        None,
        description="Before every query (E5: `query: `), within max_query_tokens; null: the checkpoint's prompt.",
    )
    passage_prefix: str | None = Field(
        None, description="Before every passage and its title (E5: `passage: `); null: the checkpoint's prompt."
    )
    max_query_tokens: IntegerOrNull = Field(
        None,
        ge=3,
        le=32_768,
        description="With special tokens (ANCE-Tele Table 5: 32); null: as the checkpoint's files say, else 32.",
    )
    max_passage_tokens: IntegerOrNull = Field(
        None,
        ge=3,
        le=32_768,
        description="With special tokens (Table 5: 128 MARCO, 156 QA); null: as the checkpoint's files say, else 128.",
    )
    max_characters: IntegerOrNull = Field(
        None, ge=1, description="Passages are cut to so many characters before tokenising (ANCE, documents: 10,000)."
    )
    chunks: Integer = Field(
        1,
        ge=1,
        le=1024,
        description="A passage has a vector for each of so many chunks of max_passage_tokens, as far as its text goes, "
        "and scores by the best (ANCE MaxP: 4 x 512); 1: its beginning alone (FirstP).",
    )
    vectors: Literal["fp32", "fp16"] = Field(
        "fp32",
        description="Numbers in which vectors of passages are kept; fp16: half the disk, and searches that find nearly "
        "the same (the manifest of `encode` says how nearly).",
    )
    query_checkpoint: CheckpointSource | None = Field(None, description="That of queries, where two were published.")

    @model_validator(mode="after")
    def two_checkpoints_make_two_encoders(self):
        if self.query_checkpoint and self.tied:
            raise ValueError("query_checkpoint goes with tied: false only")
        return self


class Start(Section):
    """A checkpoint of another experiment of the configuration, under the same seed."""

    experiment: str = Field(description="Its name.")
    episode: Integer | Literal["last"] = Field("last", description="After which episode; 0: before the first.")


class EpisodeTraining(Training):
    """How an episode trains, and from where."""

    start_from: Literal["pretrained", "previous"] | Start = Field(
        "pretrained", description="ANCE-Tele: pretrained. The first episode mines with {experiment: NAME}, too."
    )

    dev: Dev = Field(Dev(), description="What evaluate_every ranks.")

    @field_validator("learning_rate")
    @classmethod
    def rate_keeps_what_was_learnt(cls, rate):
        if rate > 10:  # here and not in `Training`: tests overflow with a rate that nobody may configure
            raise ValueError("input should be at most 10: a step moves every weight by about the rate")
        return rate

    @field_validator("loss")
    @classmethod
    def loss_is_known(cls, loss):
        if loss not in LOSSES:
            raise ValueError(f"there is no such loss; losses are {', '.join(LOSSES)}")
        return loss


class Override(Section):
    """One entry of `episodes`: what it does differently from the settings of the experiment."""

    repeat: Integer = Field(1, ge=1, le=MOST_EPISODES, description="How many episodes in a row this entry stands for.")
    lag: Integer = Field(
        0, ge=0, description="Mine this many checkpoints back, within the entry; mining can overlap training (ANCE: 1)."
    )
    mining: dict = Field({}, description="Settings of `mining` for this episode.")
    negatives: dict = Field({}, description="Settings of `negatives` for this episode.")
    training: dict = Field({}, description="Settings of `training` for this episode.")


class Episode(Section):
    """One episode with all its settings. entry: the first episode of its entry in `episodes`, which bounds the lag."""

    mining: Mining
    negatives: Negatives
    training: EpisodeTraining
    lag: Integer = 0
    entry: Integer = 1

    @property
    def counts(self):
        """Whether negatives are drawn for it at all."""
        return self.training.negatives_per_query > 0

    @property
    def watched_by(self):
        """The `Dev` set that is ranked during its training; None without one."""
        return self.training.dev if self.training.evaluate_every else None

    @model_validator(mode="after")
    def loss_has_what_it_needs(self):
        training = self.training
        if training.loss == "nll" and not self.counts:
            raise ValueError(
                "training.loss nll compares a positive with the query's own negatives, and negatives_per_query is 0: "
                "set it to 1 or more, or take a loss over the batch (softmax, ranknet, hardest)"
            )
        if training.triples and training.loss != "nll":
            raise ValueError(
                f"training.triples goes with loss nll: {training.loss} compares with the whole batch, in which the "
                "positive of a query is repeated. Change one of them"
            )
        if training.star_alpha is not None and (training.loss != "ranknet" or not self.counts):
            raise ValueError(
                "training.star_alpha weighs own negatives against the rest of the batch: it goes with loss ranknet and "
                "negatives_per_query of 1 or more. Set it to null, or change those"
            )
        return self

    @model_validator(mode="after")
    def parts_have_negatives(self):
        negatives = self.negatives
        names = negatives.sources if negatives.counts is None else [n for n, c in negatives.counts.items() if c]
        if self.mining.parts > 1 and self.counts and "momentum" in names:
            raise ValueError(
                f"mining.parts is {self.mining.parts} and momentum is a source: the last pool has other queries. Leave "
                "momentum out of negatives.sources or counts, or set mining.parts to 1"
            )
        return self

    @model_validator(mode="after")
    def negatives_are_used(self):
        if not self.counts and self.negatives.counts:
            raise ValueError("negatives.counts has negatives but training.negatives_per_query is 0: change one of them")
        if self.counts and self.negatives.counts is not None and not any(self.negatives.counts.values()):
            raise ValueError("negatives.counts has none: set training.negatives_per_query to 0 to train without")
        return self

    @model_validator(mode="after")
    def loss_takes_what_there_is(self):
        lists = sorted(name for name, loss in LOSSES.items() if loss.takes == "lists")
        if (self.training.loss in lists) != (self.negatives.live is not None):
            others = ", ".join(name for name in LOSSES if name not in lists)
            raise ValueError(
                f"training.loss {self.training.loss} does not go with these negatives: with negatives.live take one of "
                f"{', '.join(lists)}; without it one of {others}"
            )
        if self.training.loss == "lambda" and self.training.metric_cut is None:
            raise ValueError("training.loss lambda needs training.metric_cut (ADORE: passages 200, documents 10)")
        return self

    @model_validator(mode="after")
    def live_search_has_frozen_passages(self):
        if self.negatives.live and self.training.trains != ["query"]:
            raise ValueError(
                "negatives.live searches vectors of passages that no step changes: set training.trains to [query]"
            )
        if self.negatives.live and self.training.negatives_per_query:
            raise ValueError("negatives.live takes the place of a pool: set training.negatives_per_query to 0")
        return self


class Experiment(Section):
    """One system: everything that may differ between the rows of a table."""

    label: Line | None = Field(None, description="Name of the row in tables; the experiment's name when absent.")
    encoder: Encoder
    mining: Mining = Mining()
    negatives: Negatives = Negatives()
    training: EpisodeTraining | None = Field(None, description="Needed where there are episodes.")
    episodes: list[Override] = Field(description="One entry per episode; an empty list is the zero-shot system.")
    search_index: FrozenIndex = FlatIndex()
    seeds: Annotated[list[Integer], Field(min_length=1), AfterValidator(distinct)] = Field(
        [42], description="Root seeds; tables give mean and standard deviation."
    )

    @model_validator(mode="after")
    def few_enough(self):
        if sum(override.repeat for override in self.episodes) > MOST_EPISODES:
            raise ValueError(f"episodes are more than {MOST_EPISODES}: repeat fewer")
        return self

    def overridden(self, number):
        """The settings of entry 0, 1, ... of `episodes` as plain data: the experiment's, with the entry's on top."""
        override, sections = self.episodes[number], ("mining", "negatives", "training")
        stated = self.model_dump(include=set(sections), exclude_unset=True)
        return {name: merged(stated.get(name, {}), getattr(override, name)) for name in sections}

    @cached_property
    def method(self):
        """The `Episode`s in order, repeated entries one by one (list)."""
        found = []
        for number, override in enumerate(self.episodes):
            settings = self.overridden(number) | {"lag": override.lag, "entry": len(found) + 1}
            found += [Episode.model_validate(settings)] * override.repeat
        return found
