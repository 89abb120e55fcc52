"""What the stages `check`, `evaluate` and `external` are told."""

from typing import Literal

from pydantic import Field

from teleport.settings.section import Integer, IntegerOrNull, Section


class CheckSettings(Section):
    """The settings of a `check` stage."""

    splits: list[str]
    evaluation_depth: Integer
    measures: list[str] = Field(description="Those of all splits, each once.")
    measures_of: dict[str, list[str]] | None = Field(None, description="Where splits differ: split → measures.")
    trains: bool = Field(description="Whether there is an episode; what follows counts only then.")
    mining_depth: Integer = Field(0, description="0 where nothing is mined.")
    batch_queries: IntegerOrNull = Field(None, description="How many training queries the largest batch needs.")
    remove: Literal["judged", "answers"] = "judged"


class EvaluateSettings(Section):
    """The settings of an `evaluate` stage."""

    split: str
    measures: list[str]
    collapse: Literal["maxp", "firstp"] | None = None
    separator: str = "#"


class ExternalSettings(Section):
    """The settings of an `external` stage. sha256: of the file, so that another content is another run."""

    file: str
    sha256: str
    split: str
    unknown_queries: Literal["error", "drop"] = "error"
