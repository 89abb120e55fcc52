"""What the stages that score and check are told."""

from typing import Literal

from teleport.settings.section import Integer, IntegerOrNull, Section


class EvaluateSettings(Section):
    split: str
    measures: list[str]
    collapse: Literal["maxp", "firstp"] | None = None
    separator: str = "#"


class ExternalSettings(Section):
    file: str
    sha256: str
    split: str
    unknown_queries: Literal["error", "drop"] = "error"


class CheckSettings(Section):
    mining_depth: Integer
    evaluation_depth: Integer
    splits: list[str]
    measures: list[str]
    measures_of: dict[str, list[str]] | None = None
    trains: bool
    batch_queries: IntegerOrNull = None
    remove: Literal["judged", "answers"] = "judged"
