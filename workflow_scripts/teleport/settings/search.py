"""The settings of searches: built indexes, retrievals, BM25. NAMESettings belong to the stage NAME."""

from typing import Literal

from pydantic import Field, model_validator

from teleport.refusal import Refusal
from teleport.settings.index import Index
from teleport.settings.section import Integer, Number, Part, Section, equals


class IndexSettings(Section):
    """index: as `Index.built`; depth: of no meaning, but the key of every index has it"""

    index: Index = Index()
    depth: None = None


class RetrieveSettings(Section):
    """Neighbours of the queries of a split, or of their positives (lookahead).

    scores: what orders the retrieved passages: their vectors, or the codes that a pq index keeps of them
    parameters: of the index's searches, such as nprobe=64
    part: of the split's queries; only these are searched for
    """

    of: Literal["queries", "positives"]
    split: str
    depth: Integer
    anchor: Literal["first", "all"] | None = None
    scores: Literal["full", "compressed"] = "full"
    parameters: str = Field("", exclude_if=equals(""))
    part: Part | None = None


class RerankSettings(Section):
    """Settings of the stage `rerank`."""

    split: str


class Bm25(Section):
    """Lexical search (Lucene's formula): the baseline, and a source of negatives."""

    terms: Literal["words", "characters", "subwords"] = Field(
        "words",
        exclude_if=equals("words"),
        description="Terms of the index. words; characters: in scripts without spaces, each character and each pair "
        "of neighbours, otherwise words, with their vowel signs; subwords: tokens of the encoder's tokenizer.",
    )
    k1: Number = Field(0.9, ge=0, le=1000, description="Term saturation (Anserini 0.9; MS MARCO 0.82); 1000 is none.")
    b: Number = Field(0.4, ge=0, le=1, description="Length normalisation (Anserini's default 0.4; MS MARCO: 0.68).")
    stemmer: str | None = Field("english", description="Snowball stemmer; null: none.")
    stopwords: str | None = Field("english", description="Stop word list of bm25s; null: none.")

    @model_validator(mode="before")
    @classmethod
    def subwords_are_not_stemmed(cls, value):
        """With subwords there is no stemmer and no stop words, which are for words. Raises Refusal if somebody names
        some."""
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
