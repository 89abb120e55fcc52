"""What is searched, and how: indexes over passage vectors, retrievals, BM25. NAMESettings are of the stage NAME."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from teleport.refusal import Refusal
from teleport.settings.section import Integer, Natural, Number, Part, Section


class FlatIndex(Section):
    """Exact search: every passage is compared."""

    kind: Literal["flat"] = "flat"


class IvfIndex(Section):
    """faiss's inverted lists: only the passages of the nearest clusters are compared."""

    kind: Literal["ivf"]
    nlist: Natural = Field(1024, le=2**24, description="Clusters (k-means); faiss advises 4 to 16 times √passages.")
    nprobe: Natural = Field(64, description="Clusters searched per anchor.")

    @model_validator(mode="after")
    def probes_are_lists(self):
        if self.nprobe > self.nlist:
            raise Refusal(f"nprobe {self.nprobe} is more than nlist {self.nlist}: lower it")
        return self


class PqIndex(Section):
    """faiss's product quantisation: m x bits bits per passage."""

    kind: Literal["pq"]
    m: Natural = Field(48, le=65_536, description="Parts of a vector; they divide its dimensions (JPQ, RepCONC: 48).")
    bits: Natural = Field(8, le=12, description="Bits per part.")


class HnswIndex(Section):
    """faiss's graph of neighbours; slow to build, which one thread does so that it is reproducible."""

    kind: Literal["hnsw"]
    M: Integer = Field(32, ge=2, le=64, description="Neighbours per passage (faiss: 32).")
    efConstruction: Natural = Field(200, le=1_000_000, description="Candidates while building.")
    efSearch: Natural = Field(400, le=1_000_000, description="Candidates while searching; at least the depth is used.")


Index = Annotated[FlatIndex | IvfIndex | PqIndex | HnswIndex, Field(discriminator="kind")]
# Of what is searched in the place of the vectors, by its own scores: evaluation, and ADORE's training.
FrozenIndex = Annotated[FlatIndex | PqIndex, Field(discriminator="kind")]


class IndexSettings(Section):
    """depth: at which the recall of an index for mining is measured."""

    index: Index = FlatIndex()
    depth: Integer | None = None


class RetrieveSettings(Section):
    """Neighbours of the queries of a split, or of their positives (lookahead).

    scores: what orders the passages that are found: their vectors, or what a pq index keeps of them
    part: of the queries of the split, the only ones that are searched for
    """

    of: Literal["queries", "positives"]
    split: str
    depth: Integer
    anchor: Literal["first", "all"] | None = None
    scores: Literal["full", "compressed"] = "full"
    part: Part | None = None


class Bm25(Section):
    """Lexical search (Lucene's formula): the baseline, and a source of negatives."""

    k1: Number = Field(0.9, ge=0, le=1000, description="Term saturation (Anserini 0.9; MS MARCO 0.82); 1000 is none.")
    b: Number = Field(0.4, ge=0, le=1, description="Length normalisation (Anserini's default 0.4; MS MARCO: 0.68).")
    stemmer: str | None = Field("english", description="Snowball stemmer; null: none.")
    stopwords: str | None = Field("english", description="Stop word list of bm25s; null: none.")


class LexicalIndexSettings(Bm25):
    """Of the stage `lexical_index`. title: as encoder.title"""

    title: Literal["sep", "space", "none"]


class Bm25Settings(Section):
    """Of the stage `bm25`."""

    split: str
    depth: Integer
