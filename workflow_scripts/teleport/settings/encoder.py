"""The dual encoder that is made from a pretrained checkpoint."""

from typing import Literal

from pydantic import Field, model_validator

from teleport.settings.checkpoint import CheckpointSource
from teleport.settings.section import Integer, IntegerOrNull, Number, Section


class Encoder(Section):
    """The dual encoder: vectors of queries and passages, compared by inner product."""

    checkpoint: CheckpointSource = Field(description="The pretrained checkpoint that episodes start from.")
    pooling: Literal["cls", "mean"] = Field("cls", description="From token vectors to that of a text (ANCE-Tele: cls).")
    projection: IntegerOrNull = Field(None, gt=0, description="Width of a linear + LayerNorm head (ANCE 768), or null.")
    normalize: bool = Field(False, description="Scale vectors to length 1 (ANCE-Tele: no).")
    scale: Number = Field(1.0, gt=0, description="Factor on inner products in the loss (ANCE-Tele 1, cosine about 20).")
    tied: bool = Field(True, description="One encoder for both sides (ANCE-Tele on MS MARCO), or two (NQ, TriviaQA).")
    title: Literal["sep", "space", "none"] = Field("sep", description="Between title and text; none: without title.")
    lower_case: bool | None = Field(None, description="Lower-case before tokenising; null: as the tokenizer does.")
    max_query_tokens: Integer = Field(32, ge=3, description="With special tokens (ANCE-Tele Table 5: 32).")
    max_passage_tokens: Integer = Field(128, ge=3, description="With special tokens (Table 5: 128 MARCO, 156 QA).")
    query_checkpoint: CheckpointSource | None = Field(None, description="That of queries, where two were published.")

    @model_validator(mode="after")
    def two_checkpoints_make_two_encoders(self):
        if self.query_checkpoint and self.tied:
            raise ValueError("query_checkpoint goes with tied: false only")
        return self
