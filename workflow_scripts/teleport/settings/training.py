"""How an episode trains: the schedule, the dev set, live search; and the settings of a `train` stage."""

import math
from typing import Literal

from pydantic import Field, model_validator

from teleport.refusal import Refusal
from teleport.settings.dev import RankedQueries, require_order
from teleport.settings.encoder import Adapted, Lengths, Pooling, Precision
from teleport.settings.index import FrozenIndex, Index
from teleport.settings.section import (
    MINER,
    Chosen,
    Integer,
    IntegerOrNull,
    Judge,
    Natural,
    Number,
    Part,
    Section,
    Share,
    Unique,
    Weighted,
    equals,
    exactly_one,
)

Side = Literal["query", "passage"]
MOST_POSITIVES = 8
DEV_NEIGHBOURS = 100  # of each query, in the pool of a dev set


class Clusters(Section):
    """Clusters of the training queries, of which each batch takes one (TAS-B)."""

    number: Integer = Field(ge=2, description="Number of clusters; each should fill several batches.")
    vectors: Judge = Field(
        MINER, description="Whose vectors are clustered: miner (the checkpoint that mines) or a name in `teachers`."
    )


class Training(Section):
    """One episode's training, from any checkpoint."""

    loss: Weighted | list[Weighted]
    masks: list[Chosen] = []
    negatives_per_query: Integer = Field(
        31,
        ge=0,
        le=100_000,
        description="Own negatives per positive, N (Table 5: 31; released Episode 1: 15); 0: only those of the batch.",
    )
    batch_queries: Natural = Field(
        8,
        le=65_536,
        description="Queries per step (Table 5: 8 MARCO, 128 QA); each is scored with all passages of the batch.",
    )
    triples: bool = Field(
        False,
        description="Every negative makes its own row with query and positive, a query's rows in sequence (ANCE, "
        "released); batch_queries then counts rows. Only with losses over a query's own negatives, such as nll.",
    )
    learning_rate: Number = Field(5e-6, gt=0, description="Peak learning rate (Table 5: 5e-6).")
    base_learning_rate: Number = Field(
        0.0, ge=0, description="Learning rate at which the warm-up begins and the decay ends."
    )
    warmup_ratio: Share | None = Field(
        0.1, description="Share of the schedule, or of each cycle, that warms up (Table 5: 0.1)."
    )
    warmup_steps: IntegerOrNull = Field(
        None, ge=0, description="Warm-up steps, instead of warmup_ratio (ANCE: 5000 on MARCO passages)."
    )
    cycle_steps: IntegerOrNull = Field(
        None, ge=2, description="Steps after which warm-up and decay repeat (CyclicLR); null: one schedule."
    )
    weight_decay: Number = Field(0.0, ge=0, le=1000, description="Decay of AdamW or LAMB (released: 0).")
    max_grad_norm: Number = Field(1.0, gt=0, description="The gradient norm is clipped to this (released: 1).")
    epochs: IntegerOrNull = Field(
        None, ge=1, le=1_000_000, description="Length of the schedule in passes over the queries (Table 5: 3)."
    )
    steps: IntegerOrNull = Field(
        None, ge=1, le=10**9, description="Length of the schedule in steps, instead of epochs."
    )
    stop_after_steps: Natural | None = Field(
        None,
        description="Stop after this many steps (Appendix C.2); the schedule keeps its full length (released code).",
    )
    continues: bool | Literal["moments"] = Field(
        False,
        description="true: consecutive episodes are one training; the optimiser's moments, the schedule and the "
        "order of queries continue, and `steps` is the length of all (ANCE); with mining.parts each goes on at "
        "its step in the order of its own part. moments: only the moments continue, and each episode has its own "
        "schedule (ANCE without --single_warmup).",
    )
    trains: Unique[Side] = Field(
        ["query", "passage"], min_length=1, description="Sides whose encoder is trained; the other is frozen (ADORE)."
    )
    positive: Literal["rotate", "first", "all"] = Field(
        "rotate",
        description="Which positive an epoch uses (QA: the first). all: a query has one row per positive, without "
        "its other positives.",
    )
    max_positives: Natural = Field(
        MOST_POSITIVES,
        exclude_if=equals(MOST_POSITIVES),
        description="With positive all: at most this many positives of a query in a step; the next epoch takes the "
        "next ones.",
    )
    distinct_positives: bool = Field(
        False, description="No batch has a query's positive that is a known positive of another query."
    )
    clusters: Clusters | None = Field(
        None,
        exclude_if=equals(None),
        description="A batch has queries of one cluster, as long as they fill it (TAS-B); null: of all queries.",
    )
    precision: Precision = Field("auto", description="auto: bf16 if the hardware is faster with it.")
    optimizer: Literal["adamw", "lamb"] = Field(
        "adamw", description="adamw (ANCE-Tele, released), or lamb without bias correction (ANCE, released)."
    )
    gradient_caching: bool = Field(
        False,
        description="Encode the batch twice, in the memory of a single bucket of texts (GradCache); same gradients.",
    )
    gradient_checkpointing: bool = Field(
        False,
        exclude_if=equals(False),
        description="Keep only the input of each layer, and compute the layer again in the backward pass; same "
        "gradients.",
    )
    accumulate: Natural = Field(
        1, description="Micro-batches per step; in-batch negatives come from the query's own micro-batch."
    )
    memory: Integer = Field(
        0,
        ge=0,
        le=1_000_000,
        exclude_if=equals(0),
        description="This many passages of the last batches are further negatives, with their vectors of then and "
        "without gradient (cross-batch memory); 0: none.",
    )
    memory_queries: bool = Field(
        False,
        exclude_if=equals(False),
        description="The queries whose positive is in `memory` are further rows of the softmax, with their vectors of "
        "then (ContAccum).",
    )
    mixed_negatives: Integer = Field(
        0,
        ge=0,
        le=100_000,
        exclude_if=equals(0),
        description="This many further negatives per query, each a random point between the vectors of two of its own "
        "(MoCHi, arXiv 2010.01028; KaLM-Embedding-V2); 0: none.",
    )
    widths: Unique[Natural] = Field(
        [],
        exclude_if=equals([]),
        description="Widths of the vectors' beginnings whose losses are summed, such as [64, 128, 384] (Matryoshka, "
        "arXiv 2205.13147); []: whole vectors only.",
    )
    evaluate_every: Natural | None = Field(
        None,
        description="Rank the dev queries (`dev`) at the start, after each so many steps, and at the end; null: never.",
    )
    select: Literal["last", "dev"] = Field(
        "last", description="Which step's weights become the checkpoint; dev: the best evaluated step, 0 included."
    )
    patience: Natural | None = Field(None, description="Evaluations without gain before training stops; null: never.")
    average_with_start: Share = Field(
        0.0, description="Share of the starting weights in the checkpoint (LM-Cocktail, WiSE-FT: 0.5)."
    )

    one_warm_up = exactly_one("warmup_ratio", "warmup_steps")
    one_length = exactly_one("epochs", "steps")

    @property
    def losses(self):
        """The losses whose weighted sum a step minimises (list)."""
        return self.loss if isinstance(self.loss, list) else [self.loss]

    @model_validator(mode="after")
    def schedule_is_possible(self):
        length, name = (self.cycle_steps, "cycle_steps") if self.cycle_steps else (self.steps, "steps")
        if self.warmup_steps and length and self.warmup_steps >= length:
            raise Refusal(f"warmup_steps {self.warmup_steps} must be below {name} {length}: lower it")
        if self.base_learning_rate > self.learning_rate:
            raise Refusal(f"base_learning_rate {self.base_learning_rate} is above learning_rate: lower it")
        if self.continues is True and self.steps is None:
            raise Refusal("continues needs steps: the length of a schedule that several episodes share")
        return self

    @model_validator(mode="after")
    def batches_are_possible(self):
        if self.batch_queries % self.accumulate:
            raise Refusal(
                f"batch_queries {self.batch_queries} cannot be split into {self.accumulate} equal micro-batches: "
                "make batch_queries a multiple of accumulate"
            )
        if self.positive == "all" and self.triples:
            raise Refusal("positive: all makes a row per positive, triples a row per negative: change one of them")
        if self.positive != "all" and self.max_positives != MOST_POSITIVES:
            raise Refusal("max_positives works only with positive: all. Leave it out, or set positive to all")
        if self.widths != sorted(self.widths):
            raise Refusal(f"widths {self.widths} must ascend: the last one is the widest")
        if self.distinct_positives and self.triples:
            raise Refusal("distinct_positives needs a loss over the batch, triples needs nll: leave one of them out")
        if self.clusters and self.clusters.vectors == MINER and self.continues is True:
            raise Refusal(
                "clusters change with the checkpoint that mines, and continues: true keeps one order of queries: set "
                "continues to moments, or clusters.vectors to a teacher"
            )
        if self.clusters and (self.triples or self.distinct_positives):
            other = "triples" if self.triples else "distinct_positives"
            raise Refusal(f"clusters and {other} both decide which queries a batch has: leave one of them out")
        return self

    @model_validator(mode="after")
    def memory_is_possible(self):
        masks = [mask.kind for mask in self.masks]
        if self.memory and "known_positives" not in masks:
            raise Refusal("memory can have a query's own positives from earlier steps: add known_positives to masks")
        if self.memory and "other_negatives" in masks:
            raise Refusal(
                "memory keeps negatives of earlier queries, and the mask other_negatives hides those of the batch "
                "alone: leave one of them out"
            )
        if self.memory and self.continues:
            raise Refusal("memory ends with its stage, but continues goes on in the next stage: leave one of them out")
        softmax_alone = [loss.kind for loss in self.losses] == ["softmax"]
        if self.memory_queries and (not self.memory or not softmax_alone or self.mixed_negatives):
            raise Refusal(
                "memory_queries remembers the queries of passages in memory, as rows of loss softmax without "
                "mixed_negatives: set memory, take that loss, or leave memory_queries out"
            )
        return self

    @model_validator(mode="after")
    def negatives_can_be_mixed(self):
        if self.mixed_negatives and (self.negatives_per_query < 2 or self.triples):
            raise Refusal(
                "mixed_negatives mixes two own negatives of a row: set negatives_per_query to 2 or more, without "
                "triples, or mixed_negatives to 0"
            )
        return self

    @model_validator(mode="after")
    def dev_is_evaluated(self):
        named = {"select: dev": self.select == "dev", "patience": self.patience}
        for name in [name for name, given in named.items() if given and not self.evaluate_every]:
            raise Refusal(f"{name} needs evaluate_every: after how many steps the dev queries are ranked")
        named |= {"average_with_start": self.average_with_start}
        for name in [name for name, given in named.items() if given and self.continues]:
            raise Refusal(
                f"{name} changes what a training ends with, and continues goes on from its last step: leave one of "
                "them out"
            )
        return self


class Dev(RankedQueries):
    """Some queries of a split and a fixed pool of passages: drawn once, the same at every evaluation."""

    passages: Integer = Field(
        400, ge=2, le=10_000_000, description="Size of the pool: positives, neighbours by rank, random passages."
    )
    random: Integer = Field(100, ge=0, description="How many of `passages` are random; more if there are no others.")
    neighbours: Literal["bm25", "start", "miner"] = Field(
        "bm25",
        description=f"Who finds them, the first {DEV_NEIGHBOURS} of each query. bm25: no checkpoint. start (of the "
        "experiment), miner (of each episode): passages that this checkpoint ranks too high, so that any other "
        "checkpoint looks better than it (docs/results.md).",
    )

    @model_validator(mode="after")
    def the_order_of_passages_decides(self):
        if self.random >= self.passages:
            raise Refusal(
                f"random {self.random} leaves no place for positives among {self.passages} passages: lower it"
            )
        require_order(self.measure, self.passages, "passages")
        return self


class Live(Section):
    """Every step searches with its queries, as they are encoded in it, over passages that are frozen (ADORE)."""

    depth: Natural = Field(200, description="Passages found for a query at every step (ADORE, released: 200).")
    index: FrozenIndex = Field(
        Index(), description="Index that a step searches: Flat, or PQ48, which orders passages by its codes."
    )
    append_positives: Literal["all", "never"] = Field(
        "all", description="Append all positives of a query to a list that has none (released), or never."
    )
    scores: Literal["full", "compressed"] = Field(
        "full",
        description="Scores in the loss: from the passages' vectors (released), or from the codes in a PQ index.",
    )

    @model_validator(mode="after")
    def something_is_compressed(self):
        if self.scores == "compressed" and self.index.kind == "flat":
            raise Refusal("scores: compressed needs an index such as PQ48: Flat keeps the vectors themselves")
        return self


ALSO = "also-{}."  # with the number of a further collection: 1, 2, ...


def warm_up(training, length):
    """Steps of the warm-up of a schedule, or of a cycle, of `length` steps."""
    return training.warmup_steps if training.warmup_ratio is None else math.ceil(length * training.warmup_ratio)


def never_at_its_rate(training, total):
    """A sentence if all of the `total` steps of a schedule, or all of a cycle, warm up; else None."""
    length = training.cycle_steps or total
    if warm_up(training, length) < length:
        return None
    return f"all {length} steps warm up, so training.learning_rate is never reached. Lower warmup_ratio."


def rows_per_query(training):
    """How many rows of a batch a query has: one, or with triples one per negative."""
    return training.negatives_per_query if training.triples else 1


def reads_judgments(settings, loads):
    """Whether a training with these `TrainSettings` reads which passages are judged relevant. loads: of its stage"""
    training = settings.training
    return bool(training.masks or training.distinct_positives or settings.live or "unmasked" in loads)


class TrainSettings(Lengths, Pooling, Adapted):
    """The settings of a `train` stage.

    run_episode: the first of the episodes that form one training with this one (`continues`); its draws derive from it
    part: of the training queries; only these are trained on; dev: if training.evaluate_every is set
    ignore_own_text: whether the dev set ranks no query's own text, as evaluation.ignore_own_text
    also: weights of other collections, whose roles begin with ALSO
    """

    training: Training
    episode: Integer
    run_episode: Integer
    part: Part | None = None
    seed: Integer
    scale: Number
    relevant_grade: Integer
    same_text: bool = Field(False, exclude_if=equals(False))
    ignore_own_text: bool = Field(False, exclude_if=equals(False))
    live: Live | None = None
    dev: Dev | None = None
    also: list[Number] = Field([], exclude_if=equals([]))
