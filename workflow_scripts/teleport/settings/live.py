"""Live search: what takes the place of a pool of negatives where every step of a training searches for its own."""

from typing import Literal

from pydantic import Field, model_validator

from teleport.settings.search import FlatIndex, FrozenIndex
from teleport.settings.section import Integer, Section


class Live(Section):
    """Every step searches with its queries, as they are encoded in it, over passages that are frozen (ADORE)."""

    depth: Integer = Field(200, ge=1, description="Passages found for a query at every step (ADORE, released: 200).")
    index: FrozenIndex = Field(FlatIndex(), description="What is searched: flat, or pq with its own order of passages.")
    append_positives: Literal["all", "never"] = Field(
        "all", description="To a list without any positive of its query: all of them, at its end (released), or none."
    )
    scores: Literal["full", "compressed"] = Field(
        "full", description="In the loss: of the passages' vectors (released), or of what a pq index keeps of them."
    )

    @model_validator(mode="after")
    def something_is_compressed(self):
        if self.scores == "compressed" and self.index.kind == "flat":
            raise ValueError("scores compressed goes with an index of kind pq: a flat one keeps the vectors themselves")
        return self
