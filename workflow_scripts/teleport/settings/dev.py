"""The dev set of a training: which queries it is watched by, and how many passages they are ranked against."""

from pydantic import Field, model_validator

from teleport.settings.section import Integer, Section


class Dev(Section):
    """Some queries of a split and a fixed pool of passages: drawn once, the same at every evaluation."""

    split: str = Field("dev", description="Whose queries are ranked; never one that a table reports.")
    queries: Integer = Field(100, ge=1, description="At most so many of its judged queries.")
    passages: Integer = Field(
        400,
        ge=2,
        le=10_000_000,
        description="The pool: positives of the queries and their neighbours under the checkpoint that mines, in turn "
        "by rank, and random passages.",
    )
    random: Integer = Field(100, ge=0, description="So many of `passages`, or more where there are no others.")
    measure: str = Field(
        "RR@10",
        pattern=r"^(RR|nDCG|R|P|AP|Success)(\(rel=[1-9][0-9]*\))?@[1-9][0-9]*$",
        description="What is compared between steps: RR@10, nDCG@10, R(rel=2)@100, …",
    )

    @model_validator(mode="after")
    def some_passages_are_known(self):
        if self.random >= self.passages:
            raise ValueError(
                f"random {self.random} leaves no place for positives among {self.passages} passages: lower it"
            )
        return self

    @property
    def name(self):
        """What the measure is called beside those of tables, such as "dev RR@10"."""
        return f"{self.split} {self.measure}"
