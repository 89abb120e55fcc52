"""What an `encode` stage is told."""

from typing import Literal

from teleport.settings.section import Integer, Section


class EncodeSettings(Section):
    """The settings of an `encode` stage. sides: what is encoded, queries and passages, or one of them."""

    sides: list[Literal["query", "passage"]]
    max_query_tokens: Integer
    max_passage_tokens: Integer
    chunks: Integer = 1
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    vectors: Literal["fp32", "fp16"] = "fp32"
