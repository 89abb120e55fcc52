"""Mining, and the pool of training negatives."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from teleport.settings.section import Integer, Number, Section


class FlatIndex(Section):
    """Exact search: every passage is compared."""

    kind: Literal["flat"] = "flat"


class IvfIndex(Section):
    """faiss's inverted lists: only the passages of the nearest clusters are compared."""

    kind: Literal["ivf"]
    nlist: Integer = Field(
        1024, ge=1, description="Clusters, by k-means; faiss advises 4 to 16 times the root of passages."
    )
    nprobe: Integer = Field(64, ge=1, description="Clusters searched per anchor.")

    @model_validator(mode="after")
    def probes_are_lists(self):
        if self.nprobe > self.nlist:
            raise ValueError(f"nprobe {self.nprobe} is more than nlist {self.nlist}: lower it")
        return self


class PqIndex(Section):
    """faiss's product quantisation: m x bits bits per passage."""

    kind: Literal["pq"]
    m: Integer = Field(
        48, ge=1, description="Parts of a vector; they divide its dimensions (JPQ and RepCONC: 48 of 768)."
    )
    bits: Integer = Field(8, ge=1, le=12, description="Bits per part.")


class HnswIndex(Section):
    """faiss's graph of neighbours; slow to build, which one thread does so that it is reproducible."""

    kind: Literal["hnsw"]
    M: Integer = Field(32, ge=2, le=64, description="Neighbours per passage (faiss: 32).")
    efConstruction: Integer = Field(200, ge=1, description="Candidates while building.")
    efSearch: Integer = Field(
        400, ge=1, description="Candidates while searching; less than the depth counts as the depth."
    )


Index = Annotated[FlatIndex | IvfIndex | PqIndex | HnswIndex, Field(discriminator="kind")]


class Mining(Section):
    """Retrieval of negative candidates with the newest checkpoint."""

    depth: Integer = Field(
        200,
        ge=1,
        le=32_767,
        description="Neighbours retrieved per anchor (ANCE-Tele Table 5: 200). A pool keeps ranks as int16.",
    )
    anchor: Literal["first", "all"] = Field(
        "first", description="Lookahead anchors: the first positive (released), or all."
    )
    index: Index = Field(FlatIndex(), description="What is searched for negatives; evaluation always searches exactly.")


class Negatives(Section):
    """The pool of training negatives of an episode."""

    sources: list[Literal["query", "positive", "momentum"]] = Field(
        ["query", "positive", "momentum"],
        min_length=1,
        description="Neighbours of the query, of its positive (lookahead), and the last episode's pool (momentum).",
    )
    mode: Literal["mixture", "released"] = Field(
        "mixture",
        description="Shares by alpha and beta (paper, Appendix C), or equal counts concatenated (released code).",
    )
    alpha: Number = Field(0.5, ge=0, le=1, description="mixture: share of momentum negatives (ANCE-Tele Table 5: 0.5).")
    beta: Number = Field(0.5, ge=0, le=1, description="mixture: share of lookahead among the new ones (Table 5: 0.5).")
    pool: Integer = Field(60, ge=1, description="mixture: negatives per query (released Episode 1: 30 + 30).")
    per_source: Integer = Field(30, ge=1, description="released: negatives per source and episode (30 MARCO, 80 QA).")
    keep_duplicates: bool = Field(
        True, description="Keep a passage as often as it was drawn (Table 8: dropping costs 0.9)."
    )
    remove: Literal["judged", "answers"] = Field(
        "judged",
        description="What is no negative: known positives; or every passage whose text has an answer, and nothing else "
        "(released, NQ and TriviaQA).",
    )

    @model_validator(mode="after")
    def something_is_mined(self):
        if "query" not in self.sources and "positive" not in self.sources:
            raise ValueError("sources needs query or positive: momentum alone has nothing to start from")
        return self
