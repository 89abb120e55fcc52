"""The dual encoder, where its checkpoint comes from, and what the stages `pretrained`, `tokens`, `encode` are told."""

from typing import Literal

from pydantic import Field, model_validator

from teleport.refusal import Refusal
from teleport.settings.section import (
    Integer,
    IntegerOrNull,
    LocalPath,
    Natural,
    Number,
    Section,
    Text,
    Tokens,
    Unique,
    exactly_one,
    is_none,
)

Precision = Literal["auto", "fp32", "bf16"]


class CheckpointSource(Section):
    """Where the pretrained checkpoint comes from: exactly one of hub, folder, package, packages."""

    hub: Text | None = Field(None, description="A model id on the Hugging Face hub; needs `revision`.")
    revision: str | None = Field(None, description="The commit of the hub repository.")
    folder: LocalPath | None = Field(None, description="A local folder in transformers' form.")
    package: Text | None = Field(None, description="An installed Python package that carries the checkpoint.")
    packages: Unique[Text] | None = Field(
        None,
        min_length=1,
        exclude_if=is_none,
        description="Installed packages, each with a part (NAME.zip.001, …) of one zip file; needs `sha256`.",
    )
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="Expected digest of the weights file.")

    one_place = exactly_one("hub", "folder", "package", "packages")

    @model_validator(mode="after")
    def commit_is_named(self):
        if (self.hub is None) != (self.revision is None):
            raise Refusal("hub and revision go together: name the commit, so that the weights cannot change")
        return self

    @model_validator(mode="after")
    def joined_parts_are_known(self):
        if self.packages and not self.sha256:
            raise Refusal(
                "packages needs sha256, that of the weights: nothing else says that all parts belong together"
            )
        return self

    @property
    def place(self):
        """How sentences call it."""
        return self.hub or self.folder or self.package or self.packages[0]


class Pooling(Section):
    """How token vectors become the vector of a text."""

    pooling: Literal["cls", "mean", "last"] | None = Field(
        None, description="From token vectors to that of a text (ANCE-Tele: cls); null: as the checkpoint's files say."
    )
    projection: IntegerOrNull = Field(
        None, gt=0, le=65_536, description="Width of a linear + LayerNorm head (ANCE 768), drawn where new; null: none."
    )
    normalize: bool | None = Field(
        None, description="Scale vectors to length 1 (ANCE-Tele: no); null: as the checkpoint's files say, else no."
    )
    tied: bool = Field(True, description="One encoder for both sides (ANCE-Tele on MS MARCO), or two (NQ, TriviaQA).")


class Lengths(Section):
    """How much of a text is encoded."""

    max_query_tokens: Tokens | None = Field(
        None, description="With special tokens (ANCE-Tele Table 5: 32); null: as the checkpoint's files say, else 32."
    )
    max_passage_tokens: Tokens | None = Field(
        None, description="With special tokens (Table 5: 128 MARCO, 156 QA); null: as the checkpoint says, else 128."
    )
    chunks: Natural = Field(
        1,
        le=1024,
        description="A passage has a vector for each of so many chunks of max_passage_tokens, as far as its text "
        "goes, and scores by the best (ANCE MaxP: 4 x 512); 1: its beginning alone (FirstP).",
    )


class Encoded(Lengths):
    """What is encoded, and in which number format it is kept."""

    vectors: Literal["fp32", "fp16"] = Field(
        "fp32",
        description="Numbers in which vectors of passages are kept; fp16: half the disk, and searches that find nearly "
        "the same (the manifest of `encode` says how nearly).",
    )
    truncate_dim: IntegerOrNull = Field(
        None,
        ge=1,
        exclude_if=is_none,
        description="In a row of evaluation, the first so many components of every vector (Matryoshka), of length 1 "
        "again with normalize; null: all.",
    )


class TextSettings(Section):
    """How texts are tokenised."""

    title: Literal["sep", "space", "none"] = Field("sep", description="Between title and text; none: without title.")
    lower_case: bool | None = Field(None, description="Lower-case before tokenising; null: as the tokenizer does.")
    query_prefix: str | None = Field(
        None, description="Before a query (E5: `query: `), within max_query_tokens; null: the checkpoint's prompt."
    )
    passage_prefix: str | None = Field(
        None, description="Before every passage and its title (E5: `passage: `); null: the checkpoint's prompt."
    )
    max_characters: Natural | None = Field(
        None, description="Passages are cut to so many characters before tokenising (ANCE, documents: 10,000)."
    )


class Cut(Section):
    """How much of the checkpoint is taken."""

    layers: IntegerOrNull = Field(
        None,
        ge=0,
        exclude_if=is_none,
        description="Its first so many layers, as a start that is no retriever (0: the vectors of its words alone); "
        "null: all.",
    )


class Lora(Section):
    """Adapters of low rank, which are trained in the place of the backbone's weights (Hu et al. 2021)."""

    rank: Natural = Field(8, le=4096, description="Width of an adapter (Tevatron: 8).")
    alpha: Number = Field(64, gt=0, le=1e6, description="An adapter counts alpha / rank times (Tevatron: 64).")
    targets: Unique[Text] | None = Field(
        None, min_length=1, description="Names of the linear layers that get one, such as q_proj; null: all."
    )


class Adapted(Section):
    """Whether adapters are trained or the weights themselves."""

    lora: Lora | None = Field(
        None, exclude_if=is_none, description="Adapters in every episode's training; null: all weights are trained."
    )


class Encoder(TextSettings, Encoded, Pooling, Cut, Adapted):
    """The dual encoder: vectors of queries and passages, compared by inner product.

    `encoder.completed.completed` replaces every null that the checkpoint's files may fill, before stages are planned.
    """

    checkpoint: CheckpointSource = Field(description="Where episodes start; only passages beside a query_checkpoint.")
    precision: Precision | None = Field(None, description="Of encoding; null: as training.precision, else auto.")
    scale: Number = Field(
        1.0, gt=0, le=1e6, description="Factor on inner products in the loss (ANCE-Tele 1, cosine about 20)."
    )
    query_checkpoint: CheckpointSource | None = Field(None, description="That of queries, where two were published.")

    @model_validator(mode="after")
    def two_checkpoints_make_two_encoders(self):
        if self.query_checkpoint and self.tied:
            raise Refusal("query_checkpoint goes with tied: false only")
        return self


class Identified(CheckpointSource):
    """A source with what pins its content: a package's version, or the digests of a folder's files."""

    version: str | None = None
    files: dict[str, str] = {}


class PretrainedSettings(Pooling, Cut):
    """The settings of a `pretrained` stage. seed: of the projection head, where the checkpoint brings none."""

    checkpoint: Identified
    query_checkpoint: Identified | None = None
    seed: Integer | None = None

    def identity(self):
        """A folder is what its files are, wherever it lies."""
        return self.model_dump(mode="json", exclude={"checkpoint": {"folder"}, "query_checkpoint": {"folder"}})


class TokensSettings(Section):
    """Of the stage `tokens`. of: "passages" or "queries.SPLIT", of which the names of files are made, too; title,
    max_characters: of passages"""

    of: str
    lower_case: bool | None = None
    prefix: str = ""
    title: Literal["sep", "space", "none"] = "none"
    max_characters: Natural | None = None


class EncodeSettings(Encoded):
    """Of the stage `encode`. of: as of `tokens`; lengths of the others, chunks and vectors are not set for queries"""

    of: str
    precision: Precision
