"""Measures, baselines and systems from elsewhere."""

from itertools import groupby
from typing import Annotated, Literal

import ir_measures
from pydantic import AfterValidator, Field, field_validator, model_validator

from teleport.settings.section import Integer, Line, LocalPath, Number, Section, distinct


def meaning(measure):
    """One text for all spellings of a measure, such as MRR@10 and RR@10; names that ir-measures lacks as they are."""
    try:
        return str(ir_measures.parse_measure(measure))
    except (NameError, ValueError, AssertionError, KeyError):
        return measure


class Significance(Section):
    """Paired test of every row against one baseline row."""

    baseline: str = Field("Zero-shot", description="Row to compare with: Zero-shot, BM25 or an experiment's label.")
    test: Literal["permutation", "t-test"] = Field(
        "permutation", description="permutation (ANCE-Tele), or a two-sided paired t-test (STAR and ADORE)."
    )
    resamples: Integer = Field(
        9999, ge=99, le=10_000_000, description="Random sign flips (ANCE-Tele: permutation test)."
    )
    level: Number = Field(0.05, gt=0, lt=1, description="Marked as significant below this Holm-corrected p.")


class Evaluation(Section):
    """How checkpoints and runs are scored."""

    splits: Annotated[list[str], AfterValidator(distinct)] = Field(
        ["test"], min_length=1, description="Query sets that are searched after every episode."
    )
    depth: Integer = Field(
        1000, ge=1, le=1_000_000, description="Length of a run per query; a block of queries is in memory."
    )
    measures: list[str] | dict[str, list[str]] = Field(
        ["RR@10", "nDCG@10", "R@100", "R@1000"], min_length=1, description="ir-measures names, Cov@k; or split → names."
    )
    significance: Significance = Field(Significance(), description="The test that marks cells.")
    collapse: Literal["maxp", "firstp"] | None = Field(
        None, description="Score documents by their best passage (maxp) or first one (firstp); null: score passages."
    )
    separator: str = Field("#", min_length=1, description="A passage's document: its id before the last of these.")
    forgetting: bool = Field(
        False, description="Search training queries with the last checkpoint too, for its forgetting rate (Table 9)."
    )

    @field_validator("measures")
    @classmethod
    def measures_differ(cls, measures):
        for names in measures.values() if isinstance(measures, dict) else [measures]:
            for _, group in groupby(sorted(names, key=meaning), meaning):
                if len(same := list(group)) > 1:
                    raise ValueError(f"one measure stands here as {' and '.join(same)}: leave one of them out")
        return measures

    @model_validator(mode="after")
    def measures_of_every_split(self):
        by_split = isinstance(self.measures, dict)
        if missing := [split for split in self.splits if by_split and not self.measures.get(split)]:
            raise ValueError(f"measures by split must name every split; it lacks {', '.join(missing)}")
        return self

    def measures_of(self, split):
        """The names of the measures of one split."""
        return list(self.measures[split] if isinstance(self.measures, dict) else self.measures)


class External(Section):
    """A system from elsewhere, scored but not trained here: runs in TREC's format, or a checkpoint."""

    label: Line | None = Field(None, description="Name of the row in tables; the entry's name when absent.")
    runs: dict[str, LocalPath] | None = Field(
        None, min_length=1, description="Split → run file of six columns, plain or .gz; ties go as in trec_eval."
    )
    unknown_queries: Literal["error", "drop"] = Field("error", description="For lines of queries that the split lacks.")
    encoder: dict | None = Field(None, description="Settings of `encoder` that differ: its checkpoint, pooling, …")

    @model_validator(mode="after")
    def one_form(self):
        if (self.runs is None) == (self.encoder is None):
            raise ValueError("give exactly one of runs and encoder")
        return self
