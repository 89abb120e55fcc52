"""What an `encode` stage is told: which texts become vectors, how long they may be, and in which precision."""

from typing import Literal

from pydantic import field_validator

from teleport.settings.section import Integer, Section

SIDES = (["query"], ["passage"], ["query", "passage"])


class EncodeSettings(Section):
    """The settings of an `encode` stage. sides: query (the queries of every split), passage, or both in this order."""

    sides: list[Literal["query", "passage"]]
    max_query_tokens: Integer
    max_passage_tokens: Integer
    precision: Literal["auto", "fp32", "bf16"]

    @field_validator("sides")
    @classmethod
    def one_spelling(cls, sides):
        if sides not in SIDES:  # they enter the stage's key
            raise ValueError("sides must be [query], [passage] or [query, passage]")
        return sides
