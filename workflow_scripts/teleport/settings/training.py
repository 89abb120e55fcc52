"""How an episode trains."""

from typing import Literal

from pydantic import Field, model_validator

from teleport.settings.section import Integer, IntegerOrNull, Number, Section


class Training(Section):
    """One episode's training."""

    negatives_per_query: Integer = Field(
        31, ge=1, description="N per positive (ANCE-Tele Table 5: 31; released Episode 1: 15)."
    )
    batch_queries: Integer = Field(8, ge=1, description="Queries per step (Table 5: 8 MARCO, 128 QA).")
    learning_rate: Number = Field(5e-6, gt=0, description="Peak rate (Table 5: 5e-6).")
    warmup_ratio: Number = Field(0.1, ge=0, lt=1, description="Share of the schedule that warms up (Table 5: 0.1).")
    weight_decay: Number = Field(0.0, ge=0, description="Decay of AdamW or LAMB (released: 0).")
    max_grad_norm: Number = Field(1.0, gt=0, description="Gradient norm is clipped to this (released: 1).")
    epochs: IntegerOrNull = Field(
        None, ge=1, description="Length of the schedule in passes over the queries (Table 5: 3)."
    )
    steps: IntegerOrNull = Field(None, ge=1, description="Length of the schedule in steps, instead of epochs.")
    stop_after_steps: IntegerOrNull = Field(
        None, ge=1, description="Stop early; the schedule keeps its full length (§4.3)."
    )
    start_from: Literal["pretrained", "previous"] = Field(
        "pretrained", description="ANCE-Tele: pretrained, every episode."
    )
    positive: Literal["rotate", "first"] = Field(
        "rotate", description="Which positive an epoch uses (QA: always the first)."
    )
    mask_false_negatives: bool = Field(False, description="Leave known positives out of a query's in-batch negatives.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="auto: bf16 where the hardware computes in it."
    )
    # Left out of a stage's settings at their defaults, so that only their use makes new stages.
    optimizer: Literal["adamw", "lamb"] = Field(
        "adamw",
        exclude_if=lambda value: value == "adamw",
        description="adamw (ANCE-Tele, released), or lamb without bias correction, as ANCE's released code has it.",
    )
    gradient_caching: bool = Field(
        False,
        exclude_if=lambda value: not value,
        description="Encode the batch twice, so that its memory is that of one chunk (GradCache); same gradients.",
    )
    accumulate: Integer = Field(
        1,
        ge=1,
        exclude_if=lambda value: value == 1,
        description="Micro-batches that a step's queries are split into; in-batch negatives come from the micro-batch "
        "alone.",
    )

    @model_validator(mode="after")
    def equal_micro_batches(self):
        if self.batch_queries % self.accumulate:
            raise ValueError(
                f"batch_queries {self.batch_queries} cannot be split into {self.accumulate} equal micro-batches: "
                "make batch_queries a multiple of accumulate"
            )
        return self

    @model_validator(mode="after")
    def one_length(self):
        if (self.epochs is None) == (self.steps is None):
            raise ValueError(
                "give exactly one of epochs and steps (to override one by the other, set the first to null)"
            )
        return self


class EpisodeOverride(Section):
    """What one episode does differently: any setting of `training`."""

    training: dict = Field({}, description="Settings of `training` for this episode.")
