"""The dual encoder, the source of its checkpoint, and the settings of the stages `pretrained`, `tokens`, `encode`."""

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
    equals,
    exactly_one,
)

Precision = Literal["auto", "fp32", "bf16"]


class CheckpointSource(Section):
    """The source of the pretrained checkpoint: exactly one of hub, folder, package, packages."""

    hub: Text | None = Field(None, description="A model id on the Hugging Face hub; needs `revision`.")
    revision: str | None = Field(None, description="The commit of the hub repository; a branch or tag may move.")
    folder: LocalPath | None = Field(None, description="A local folder in transformers' form.")
    package: Text | None = Field(None, description="An installed Python package that carries the checkpoint.")
    packages: Unique[Text] | None = Field(
        None,
        min_length=1,
        exclude_if=equals(None),
        description="Installed packages, each with a part (NAME.zip.001, …) of one zip file; needs `sha256`.",
    )
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="Expected digest of the weights file.")

    one_place = exactly_one("hub", "folder", "package", "packages")

    @model_validator(mode="after")
    def commit_is_named(self):
        if (self.hub is None) != (self.revision is None):
            raise Refusal("hub and revision must be given together: name the commit, so that the weights cannot change")
        return self

    @model_validator(mode="after")
    def joined_parts_are_known(self):
        if self.packages and not self.sha256:
            raise Refusal("packages needs sha256 (of the weights): nothing else shows that all parts belong together")
        return self

    @property
    def place(self):
        """Its name in sentences."""
        return self.hub or self.folder or self.package or self.packages[0]


TITLE = "{title}"  # in a passage_prefix


def with_title(prefix, title=""):
    """A prefix with the title of a passage in the place of TITLE; "none", as EmbeddingGemma has it, without a title."""
    return prefix.replace(TITLE, title or "none")


class Pooling(Section):
    """How token vectors become the vector of a text."""

    pooling: Literal["cls", "mean", "last"] | None = Field(
        None,
        description="How token vectors become a text's vector (ANCE-Tele: cls); null: as the checkpoint's files say.",
    )
    projection: IntegerOrNull = Field(
        None,
        gt=0,
        le=65_536,
        description="Width of a linear + LayerNorm head (ANCE: 768), drawn if the checkpoint has none; null: no head.",
    )
    normalize: bool | None = Field(
        None, description="Scale vectors to length 1 (ANCE-Tele: no); null: as the checkpoint's files say, else no."
    )
    tied: bool = Field(True, description="One encoder for both sides (ANCE-Tele on MS MARCO), or two (NQ, TriviaQA).")


class Lengths(Section):
    """How much of a text is encoded."""

    max_query_tokens: Tokens | None = Field(
        None,
        description="Longest query with special tokens (ANCE-Tele Table 5: 32); null: as the checkpoint says, else 32.",
    )
    max_passage_tokens: Tokens | None = Field(
        None,
        description="Longest passage with special tokens (Table 5: 128 MARCO, 156 QA); null: as the checkpoint "
        "says, else 128.",
    )
    chunks: Natural = Field(
        1,
        le=1024,
        description="Most chunks of max_passage_tokens that a passage is encoded in; the best gives its score (ANCE "
        "MaxP: 4 x 512); 1: its beginning only (FirstP).",
    )


class Encoded(Lengths):
    """The texts that are encoded, and the number format of their vectors."""

    vectors: Literal["fp32", "fp16"] = Field(
        "fp32",
        description="Number format of stored passage vectors; fp16: half the disk, nearly the same search results.",
    )
    truncate_dim: IntegerOrNull = Field(
        None,
        ge=1,
        exclude_if=equals(None),
        description="For evaluation alone: keep this many first components of every vector (Matryoshka), scaled to "
        "length 1 again with normalize; null: all.",
    )


class TextSettings(Section):
    """How texts are tokenised."""

    title: Literal["sep", "space", "none"] = Field(
        "sep", description="What stands between title and text; none: the title is left out."
    )
    lower_case: bool | None = Field(
        None,
        description="Lower-case texts before the tokenizer reads them; null: if the checkpoint's "
        "sentence_bert_config.json says do_lower_case.",
    )
    query_prefix: str | None = Field(
        None,
        description="Text before a query (E5: `query: `), counted in max_query_tokens; null: the checkpoint's prompt.",
    )
    passage_prefix: str | None = Field(
        None,
        description="Text before every passage and its title (E5: `passage: `); null: the checkpoint's prompt. The "
        "title may stand in it, with title: none (EmbeddingGemma: `title: {title} | text: `).",
    )
    max_characters: Natural | None = Field(
        None, description="Passages are cut to this many characters before tokenising (ANCE, documents: 10,000)."
    )

    @model_validator(mode="after")
    def a_title_stands_once(self):
        if TITLE in (self.passage_prefix or "") and self.title != "none":
            raise Refusal(f"passage_prefix has {TITLE}, so title: {self.title} would repeat it: set title to none")
        if TITLE in (self.query_prefix or ""):
            raise Refusal(f"query_prefix has {TITLE}, but queries have no title: leave it out")
        return self


class Cut(Section):
    """How many layers of the checkpoint are used."""

    layers: IntegerOrNull = Field(
        None,
        ge=0,
        exclude_if=equals(None),
        description="Start with this many of its first layers, so that it cannot retrieve yet (0: only its word "
        "vectors); null: all.",
    )


class Lora(Section):
    """Adapters of low rank, which are trained in the place of the backbone's weights (Hu et al. 2021)."""

    rank: Natural = Field(8, le=4096, description="Width of an adapter (Tevatron: 8).")
    alpha: Number = Field(64, gt=0, le=1e6, description="An adapter counts alpha / rank times (Tevatron: 64).")
    targets: Unique[Text] | None = Field(
        None, min_length=1, description="Names of the linear layers that get an adapter, such as q_proj; null: all."
    )


class Adapted(Section):
    """Whether adapters are trained or the weights themselves."""

    lora: Lora | None = Field(
        None,
        exclude_if=equals(None),
        description="Train low-rank adapters instead of the weights; null: all weights are trained.",
    )


class Encoder(TextSettings, Encoded, Pooling, Cut, Adapted):
    """The dual encoder: vectors of queries and passages, compared by inner product.

    `encoder.completed.completed` replaces every null that the checkpoint's files may fill, before stages are planned.
    """

    checkpoint: CheckpointSource = Field(
        description="The checkpoint that episodes start from; with a query_checkpoint, the passages' encoder."
    )
    precision: Precision | None = Field(
        None, description="Precision of encoding; null: as training.precision, else auto."
    )
    scale: Number = Field(
        1.0, gt=0, le=1e6, description="Factor on inner products in the loss (ANCE-Tele 1, cosine about 20)."
    )
    query_checkpoint: CheckpointSource | None = Field(
        None, description="The queries' encoder, if two were published; needs tied: false."
    )

    @model_validator(mode="after")
    def two_checkpoints_make_two_encoders(self):
        if self.query_checkpoint and self.tied:
            raise Refusal("query_checkpoint needs tied: false")
        return self

    @model_validator(mode="after")
    def adapters_have_layers(self):
        if self.lora and self.layers == 0:
            raise Refusal("lora adapts linear layers, and layers: 0 has none: set lora to null, or layers to 1 or more")
        return self


class Identified(CheckpointSource):
    """A source with its content pinned: by a package's version, or by the digests of a folder's files."""

    version: str | None = None
    files: dict[str, str] = {}


class PretrainedSettings(Pooling, Cut):
    """The settings of a `pretrained` stage. seed: of the projection head, if the checkpoint has none"""

    checkpoint: Identified
    query_checkpoint: Identified | None = None
    seed: Integer | None = None

    def identity(self):
        """A folder is identified by its files, whatever its path."""
        return self.model_dump(mode="json", exclude={"checkpoint": {"folder"}, "query_checkpoint": {"folder"}})


class TokensSettings(Section):
    """Settings of the stage `tokens`. of: "passages" or "queries.SPLIT", which also begins the names of its files;
    title, max_characters: for passages"""

    of: str
    lower_case: bool = False
    prefix: str = ""
    title: Literal["sep", "space", "none"] = "none"
    max_characters: Natural | None = None


class EncodeSettings(Encoded):
    """Settings of the stage `encode`. of: as of `tokens`; lengths of the others, chunks and vectors are not set for
    queries"""

    of: str
    precision: Precision
