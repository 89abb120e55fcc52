"""Mining, and the pool of training negatives."""

from itertools import pairwise
from typing import Literal

from pydantic import Field, field_validator, model_validator

from teleport.settings.live import Live
from teleport.settings.pool import Filters
from teleport.settings.registry import SOURCES
from teleport.settings.search import FlatIndex, Index
from teleport.settings.section import Integer, LocalPath, Number, Section

MIXED = ("query", "lookahead", "momentum")  # what the modes mixture and released share out


class Mining(Section):
    """Retrieval of negative candidates."""

    depth: Integer = Field(
        200,
        ge=1,
        le=32_767,
        description="Neighbours per anchor (Table 5: 200; ranks are int16). Left out, it is cut to the passages that "
        "there are; stated, fewer of them are an error.",
    )
    anchor: Literal["first", "all"] = Field("first", description="Lookahead anchors: first positive (released) or all.")
    parts: Integer = Field(
        1,
        ge=1,
        description="Mine and train on one part of the training queries an episode, in turn (ANCE, released: 5).",
    )
    index: Index = Field(FlatIndex(), description="What is searched for negatives; compare search_index.")


class NegativesFile(Section):
    """A file of negatives made elsewhere."""

    path: LocalPath = Field(description="JSON lines or JSON, plain or .gz.")
    form: Literal["tevatron", "dpr", "token-ids"] = Field(
        "tevatron",
        description="tevatron: lines of query_id and negative_passages with docid, or with text where ids are missing. "
        "dpr: hard_negative_ctxs. token-ids: ANCE-Tele's released lines of query, positives, negatives in token ids.",
    )


class Negatives(Section):
    """The training negatives of an episode: a pool, or what every step searches for."""

    sources: list[Literal["query", "lookahead", "momentum"]] = Field(
        list(MIXED), min_length=1, description="Neighbours of the query, of its positive (lookahead); the last pool."
    )
    mode: Literal["mixture", "released"] = Field(
        "mixture", description="Counts per source by alpha and beta (Appendix C), or equal ones (released code)."
    )
    alpha: Number = Field(0.5, ge=0, le=1, description="mixture: share of momentum negatives (ANCE-Tele Table 5: 0.5).")
    beta: Number = Field(0.5, ge=0, le=1, description="mixture: share of lookahead among the new ones (Table 5: 0.5).")
    pool: Integer = Field(
        60, ge=1, le=100_000, description="mixture: negatives per query, all in memory (released Episode 1: 30 + 30)."
    )
    per_source: Integer = Field(
        30,
        ge=1,
        le=32_767,
        description="released: new negatives per source (30 MARCO, 80 QA); one source alone has those of two.",
    )
    counts: dict[str, Integer] | None = Field(
        None, description="Negatives per query of each source, instead of a mode; {}: none but those of the batch."
    )
    ranks: dict[str, list[tuple[Integer, Integer]]] = Field(
        {}, description="Source → ranks drawn from, such as [[1, 20], [181, 200]]; known positives do not count."
    )
    file: NegativesFile | None = Field(None, description="What the source `file` reads.")
    live: Live | None = Field(None, description="No pool: every step searches for its negatives (ADORE); null: a pool.")
    filters: Filters = Field(Filters(), description="Leave out probable false negatives.")
    keep_duplicates: bool = Field(True, description="Keep a passage as often as drawn (Table 8: dropping costs 0.9).")
    remove: Literal["judged", "answers"] = Field(
        "judged", description="Never negatives: known positives; or, instead, passages with an answer (released QA)."
    )
    relevant_grade: Integer = Field(
        1, ge=-(2**31), lt=2**31, description="From this grade on no negative; see collection.positive_grade."
    )
    short_pool: Literal["warn", "error"] = Field("warn", description="If a planned pool is below negatives_per_query.")

    @field_validator("counts", "ranks")
    @classmethod
    def sources_are_known(cls, by_source):
        for name in by_source or ():
            if name not in SOURCES:
                raise ValueError(f"there is no source {name!r}; sources are {', '.join(SOURCES)}")
        return by_source

    @field_validator("counts")
    @classmethod
    def counts_are_not_negative(cls, counts):
        if counts and min(counts.values()) < 0:
            raise ValueError("a count cannot be below 0")
        if counts and max(counts.values()) > 100_000:
            raise ValueError(f"a count of {max(counts.values())} is more than 100,000: all are held in memory")
        return counts

    @field_validator("ranks")
    @classmethod
    def ranks_rise(cls, ranks):
        for name, ranges in ranks.items():
            ordered = all(a <= b for a, b in ranges) and all(before[1] < after[0] for before, after in pairwise(ranges))
            if not ranges or ranges[0][0] < 1 or not ordered:
                raise ValueError(f"ranks of {name} must be ascending ranges from 1 on, such as [[1, 20], [181, 200]]")
            if SOURCES[name].needs in (None, "last pool"):
                raise ValueError(f"{name} has no ranks: it is no retrieval")
        return ranks

    @model_validator(mode="after")
    def something_is_mined(self):
        if self.counts is None and not {"query", "lookahead"} & set(self.sources):
            raise ValueError("sources needs query or lookahead: momentum alone has nothing to start from")
        if (self.counts or {}).get("file") and self.file is None:
            raise ValueError("counts has the source file: name what it reads in `file`")
        return self
