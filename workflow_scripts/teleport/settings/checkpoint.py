"""Pretrained checkpoints: where they come from, and what the stages `pretrained` and `tokens` make of them."""

from typing import Literal

from pydantic import Field, model_validator

from teleport.settings.section import Integer, IntegerOrNull, LocalPath, Section


class CheckpointSource(Section):
    """Where the pretrained checkpoint comes from: exactly one of hub, folder, package."""

    hub: str | None = Field(None, description="A model id on the Hugging Face hub; needs `revision`.")
    revision: str | None = Field(None, description="The commit of the hub repository.")
    folder: LocalPath | None = Field(None, description="A local folder in transformers' form.")
    package: str | None = Field(None, description="An installed Python package that carries the checkpoint.")
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="Expected digest of the weights file.")

    @model_validator(mode="after")
    def one_place(self):
        if sum(place is not None for place in (self.hub, self.folder, self.package)) != 1:
            raise ValueError("give exactly one of hub, folder, package")
        if (self.hub is None) != (self.revision is None):
            raise ValueError("hub and revision go together: name the commit, so that the weights cannot change")
        return self


class Identified(CheckpointSource):
    """A source with what pins its content: a package's version, or the digests of a folder's files."""

    version: str | None = None
    files: dict[str, str] = {}


class PretrainedSettings(Section):
    """The settings of a `pretrained` stage. seed: of the projection head, where the checkpoint brings none."""

    checkpoint: Identified
    query_checkpoint: Identified | None = None
    pooling: Literal["cls", "mean"] = "cls"
    projection: IntegerOrNull = None
    normalize: bool = False
    tied: bool = True
    seed: Integer | None = None


class TokensSettings(Section):
    """The settings of a `tokens` stage."""

    title: Literal["sep", "space", "none"] = "sep"
    lower_case: bool | None = None
    max_characters: IntegerOrNull = None
    query_prefix: str = ""
    passage_prefix: str = ""
