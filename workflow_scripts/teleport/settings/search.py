"""The settings of searches: indexes over passage vectors, retrievals, BM25. NAMESettings are of the stage NAME."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from teleport.refusal import Refusal
from teleport.settings.section import Integer, Number, Part, Section

NUMBER = r"[1-9]\d{0,7}"
FORMS = {
    "flat": "Flat",
    "ivf": rf"IVF{NUMBER},Flat",
    "pq": rf"PQ{NUMBER}(x([1-9]|1[0-2]))?(np)?",
    "hnsw": rf"HNSW{NUMBER}(,Flat)?",
}  # of the texts of index_factory those that are tested
# The index that the name of a kind alone stands for.
BARE = {"flat": "Flat", "ivf": "IVF4096,Flat", "pq": "PQ48", "hnsw": "HNSW32"}
PARAMETERS = r"(\w+=\d+(,\w+=\d+)*)?"


def also_text(schema):
    """Let a JSON Schema of an object take text in its place."""
    schema["type"] = [schema["type"], "string"]


class Index(Section):
    """The index that is searched: a text for faiss's `index_factory`, and after a space the parameters of its searches,
    such as "Flat", "IVF4096,Flat nprobe=64", "PQ48" or "HNSW32 efConstruction=200,efSearch=400".

    "Flat" is exact search, in which faiss has no part. The name of a kind alone, flat, ivf, pq or hnsw, is one of BARE.
    """

    model_config = ConfigDict(json_schema_extra=also_text)
    factory: str = Field("Flat", description="Flat, IVF4096,Flat, PQ48, PQ48x4, HNSW32; or flat, ivf, pq, hnsw alone.")
    parameters: str = Field("", description="nprobe=64 (IVF); efConstruction=200,efSearch=400 (HNSW).")

    @model_validator(mode="before")
    @classmethod
    def from_text(cls, value):
        if not isinstance(value, str):
            return value
        factory, *parameters = value.split() or [""]
        return {"factory": BARE.get(factory.lower(), factory), "parameters": ",".join(parameters)}

    @model_validator(mode="after")
    def is_known(self):
        if not any(re.fullmatch(form, self.factory) for form in FORMS.values()):
            known = "Flat, IVF4096,Flat, PQ48, PQ48x4 or HNSW32"
            raise Refusal(f"{self.factory!r} is not a known index: write one such as {known}")
        if not re.fullmatch(PARAMETERS, self.parameters):
            raise Refusal(
                f"{self.parameters!r} sets no parameter: write them as nprobe=64 or efSearch=400,efConstruction=200"
            )
        if self.kind == "flat" and self.parameters:
            raise Refusal(
                f"the index Flat takes no parameters, not {self.parameters!r}: leave them out, or name another index"
            )
        return self

    @property
    def kind(self):
        """ "flat", "ivf", "pq" or "hnsw"."""
        return next(kind for kind, form in FORMS.items() if re.fullmatch(form, self.factory))

    @property
    def numbers(self):
        """The numbers in the factory's text: clusters; parts, and where they are there bits; or neighbours."""
        return [int(number) for number in re.findall(r"\d+", self.factory)]

    @property
    def centroids(self):
        """How many centroids its k-means finds at a time, from as many vectors at least; 0 without k-means."""
        return {"ivf": self.numbers[0], "pq": 2**self.bits}[self.kind] if self.kind in ("ivf", "pq") else 0

    @property
    def bits(self):
        """The bits of each part of a vector, of a pq index."""
        return (*self.numbers, 8)[1]

    def __str__(self):
        return f"{self.factory} {self.parameters}".strip()


def searches_itself(index):
    """An index that can be searched in the place of the vectors, by its own scores: by evaluation, and by ADORE."""
    if index.kind not in ("flat", "pq"):
        raise Refusal(
            f"{index.factory} cannot replace the vectors: write Flat, or PQ with a number of parts, such as PQ48"
        )
    return index


FrozenIndex = Annotated[Index, AfterValidator(searches_itself)]


class IndexSettings(Section):
    """depth: at which the recall of an index for mining is measured."""

    index: Index = Index()
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


def is_words(value):
    """For `exclude_if`: a setting added later, which is in the keys of the stages that set something else."""
    return value == "words"


class Bm25(Section):
    """Lexical search (Lucene's formula): the baseline, and a source of negatives."""

    terms: Literal["words", "characters", "subwords"] = Field(
        "words",
        exclude_if=is_words,
        description="Terms of the index. words; characters: in scripts without spaces, each character and each pair "
        "of neighbours, otherwise words; subwords: tokens of the encoder's tokenizer.",
    )
    k1: Number = Field(0.9, ge=0, le=1000, description="Term saturation (Anserini 0.9; MS MARCO 0.82); 1000 is none.")
    b: Number = Field(0.4, ge=0, le=1, description="Length normalisation (Anserini's default 0.4; MS MARCO: 0.68).")
    stemmer: str | None = Field("english", description="Snowball stemmer; null: none.")
    stopwords: str | None = Field("english", description="Stop word list of bm25s; null: none.")

    @model_validator(mode="before")
    @classmethod
    def subwords_are_not_stemmed(cls, value):
        """A stemmer and stop words are of words: with subwords there are none, and a person who names some is
        warned."""
        if not isinstance(value, dict) or value.get("terms") != "subwords":
            return value
        if named := [key for key in ("stemmer", "stopwords") if value.get(key) is not None]:
            raise Refusal(
                f"{named[0]} works on words, but terms is subwords: leave {named[0]} out, or set terms to characters"
            )
        return value | {"stemmer": None, "stopwords": None}


class LexicalIndexSettings(Bm25):
    """Settings of the stage `lexical_index`. title: as encoder.title"""

    title: Literal["sep", "space", "none"]


class Bm25Settings(Section):
    """Settings of the stage `bm25`."""

    split: str
    depth: Integer
