"""How an episode trains."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from teleport.settings.dev import Dev
from teleport.settings.live import Live
from teleport.settings.section import Integer, IntegerOrNull, Number, NumberOrNull, Part, Section, distinct

Side = Literal["query", "passage"]


class Training(Section):
    """One episode's training, from whatever checkpoint."""

    loss: str = Field(
        "softmax",
        description="softmax over all passages of the batch (ANCE-Tele, released); nll: pairs of positive and own "
        "negative (ANCE); ranknet: pairs with all passages of the batch (STAR); hardest: the highest-scored passage of "
        "the batch (NCE). With negatives.live: lambda, pairs weighed by ranks (ADORE), or ranknet-list, all weights 1.",
    )
    metric_cut: IntegerOrNull = Field(
        None, ge=1, description="lambda: ranks after this one gain nothing (ADORE: passages 200, documents 10)."
    )
    star_alpha: NumberOrNull = Field(
        None,
        ge=0,
        description="ranknet: mean over own negatives + star_alpha x mean over the others (STAR, Eq. 13); null: one "
        "mean over all pairs (released).",
    )
    negatives_per_query: Integer = Field(
        31,
        ge=0,
        le=100_000,
        description="N per positive (ANCE-Tele Table 5: 31; released Episode 1: 15); 0: the batch's alone.",
    )
    batch_queries: Integer = Field(
        8, ge=1, le=65_536, description="Queries per step (Table 5: 8 MARCO, 128 QA); each is scored with all passages."
    )
    triples: bool = Field(
        False,
        description="Every negative makes a row of its own with its query and positive, those of a query one after "
        "another (ANCE, released); batch_queries then counts rows. For the loss nll.",
    )
    learning_rate: Number = Field(5e-6, gt=0, description="Peak rate (Table 5: 5e-6).")
    base_learning_rate: Number = Field(0.0, ge=0, description="Rate where the warm-up begins and the decay ends.")
    warmup_ratio: NumberOrNull = Field(
        0.1, ge=0, lt=1, description="Share of the schedule, or of each cycle, that warms up (Table 5: 0.1)."
    )
    warmup_steps: IntegerOrNull = Field(
        None, ge=0, description="Steps that warm up, instead of warmup_ratio (ANCE: 5000 on MARCO passages)."
    )
    cycle_steps: IntegerOrNull = Field(
        None, ge=2, description="Warm-up and decay are repeated every so many steps (CyclicLR); null: one schedule."
    )
    weight_decay: Number = Field(0.0, ge=0, le=1000, description="Decay of AdamW or LAMB (released: 0).")
    max_grad_norm: Number = Field(1.0, gt=0, description="Gradient norm is clipped to this (released: 1).")
    epochs: IntegerOrNull = Field(
        None, ge=1, le=1_000_000, description="Length of the schedule in passes over the queries (Table 5: 3)."
    )
    steps: IntegerOrNull = Field(
        None, ge=1, le=10**9, description="Length of the schedule in steps, instead of epochs; a billion takes years."
    )
    stop_after_steps: IntegerOrNull = Field(
        None, ge=1, description="Stop early (Appendix C.2); the schedule keeps its full length (released code)."
    )
    continues: bool | Literal["moments"] = Field(
        False,
        description="Episodes that follow each other with true are one training: the optimiser's moments, the schedule "
        "and the order of queries go on, and `steps` is the length of all (ANCE). moments: those go on alone, and each "
        "episode has a schedule of its own (ANCE without --single_warmup).",
    )
    trains: Annotated[list[Side], AfterValidator(distinct)] = Field(
        ["query", "passage"], min_length=1, description="Sides whose encoder is trained; the other is frozen (ADORE)."
    )
    positive: Literal["rotate", "first"] = Field(
        "rotate", description="Which positive an epoch uses (QA: always the first)."
    )
    mask_false_negatives: bool = Field(False, description="Leave known positives out of a query's in-batch negatives.")
    distinct_positives: bool = Field(
        False,
        description="No batch has the positive of one query that is a known positive of another.",
    )
    label_smoothing: Number = Field(
        0.0, ge=0, lt=1, description="softmax: share of the target that all passages have alike."
    )
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="auto: bf16 where the hardware computes in it."
    )
    optimizer: Literal["adamw", "lamb"] = Field(
        "adamw", description="adamw (ANCE-Tele, released), or lamb without bias correction (ANCE, released)."
    )
    gradient_caching: bool = Field(
        False, description="Encode the batch twice, in the memory of one bucket of texts (GradCache); same gradients."
    )
    accumulate: Integer = Field(
        1,
        ge=1,
        description="Micro-batches that a step's queries are split into; in-batch negatives come from the micro-batch "
        "alone.",
    )
    evaluate_every: IntegerOrNull = Field(
        None,
        ge=1,
        description="Rank the dev queries (`dev`) before the first step, every so many steps and after the last; null: "
        "never.",
    )
    select: Literal["last", "dev"] = Field(
        "last",
        description="The step whose weights become the checkpoint; dev: the best of those evaluated, 0 included.",
    )
    patience: IntegerOrNull = Field(None, ge=1, description="Stop after so many evaluations without gain; null: never.")
    average_with_start: Number = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the starting weights in the checkpoint (LM-Cocktail, WiSE-FT: 0.5); 0: as trained.",
    )

    @model_validator(mode="after")
    def equal_micro_batches(self):
        if self.batch_queries % self.accumulate:
            raise ValueError(
                f"batch_queries {self.batch_queries} cannot be split into {self.accumulate} equal micro-batches: "
                "make batch_queries a multiple of accumulate"
            )
        if self.batch_queries == self.accumulate and not self.negatives_per_query:
            raise ValueError(
                "with negatives_per_query 0 a micro-batch of one query has no negative at all: lower accumulate, or "
                "raise batch_queries or negatives_per_query"
            )
        return self

    @model_validator(mode="after")
    def dev_is_evaluated(self):
        named = {"select: dev": self.select == "dev", "patience": self.patience}
        for name in [name for name, given in named.items() if given and not self.evaluate_every]:
            raise ValueError(f"{name} needs evaluate_every: after how many steps the dev queries are ranked")
        named |= {"average_with_start": self.average_with_start}
        for name in [name for name, given in named.items() if given and self.continues]:
            raise ValueError(f"{name} changes what a training ends with, and continues goes on from its last step")
        if self.distinct_positives and self.triples:
            raise ValueError("distinct_positives is of losses over the batch, triples of nll: leave one of them out")
        if self.label_smoothing and self.loss != "softmax":
            raise ValueError(f"label_smoothing goes with loss softmax, not {self.loss}")
        return self

    @model_validator(mode="after")
    def one_warm_up(self):
        if (self.warmup_ratio is None) == (self.warmup_steps is None):
            raise ValueError(
                "give exactly one of warmup_ratio and warmup_steps (to override one by the other, set the first to "
                "null)"
            )
        length, name = (self.cycle_steps, "cycle_steps") if self.cycle_steps else (self.steps, "steps")
        if self.warmup_steps and length and self.warmup_steps >= length:
            raise ValueError(f"warmup_steps {self.warmup_steps} must be below {name} {length}: lower it")
        if self.base_learning_rate > self.learning_rate:
            raise ValueError(f"base_learning_rate {self.base_learning_rate} is above learning_rate: lower it")
        return self

    @model_validator(mode="after")
    def one_length(self):
        if (self.epochs is None) == (self.steps is None):
            raise ValueError(
                "give exactly one of epochs and steps (to override one by the other, set the first to null)"
            )
        if self.continues is True and self.steps is None:
            raise ValueError("continues needs steps: the length of a schedule that several episodes share")
        return self


class TrainSettings(Section):
    """The settings of a `train` stage.

    run_episode: the first of the episodes that are one training with this one (`continues`); its draws derive from it
    part: of the training queries, the only ones trained on; dev: where training.evaluate_every asks for it
    """

    training: Training
    episode: Integer
    run_episode: Integer
    part: Part | None = None
    seed: Integer
    pooling: Literal["cls", "mean"]
    projection: IntegerOrNull = None
    normalize: bool
    tied: bool
    scale: Number
    max_query_tokens: Integer
    max_passage_tokens: Integer
    chunks: Integer = 1
    relevant_grade: Integer = 1
    live: Live | None = None
    dev: Dev | None = None
