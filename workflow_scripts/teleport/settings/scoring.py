"""The settings of scores: the scorers of pairs, and the settings of stages that score and compare runs.
NAMESettings belong to the stage NAME."""

from typing import Annotated, Literal

from pydantic import Field

from teleport.settings.section import NAME, Integer, Number, Section, is_false

MINER = "miner"
# The scorer whose scores a draw, a filter, a mask or a loss compares: the checkpoint that mines, or a teacher.
Judge = Annotated[str, Field(pattern=NAME)]


class Scored(Section):
    """Settings of what compares scores of pairs."""

    scores: Judge = Field(MINER, description="Whose scores: miner (the checkpoint that mines) or a name in `teachers`.")


class ScaledScores(Scored):
    """Settings of a loss that compares the size of a teacher's scores with that of the model's."""

    teacher_scale: Number = Field(
        1.0,
        gt=0,
        description="Factor on the teacher's scores. A teacher's cosines need one, as the model's need encoder.scale.",
    )


class Collapse(Section):
    """Whether passages are scored, or their documents."""

    collapse: Literal["maxp", "firstp"] | None = Field(
        None, description="Score documents by their best passage (maxp) or first one (firstp); null: score passages."
    )
    separator: str = Field(
        "#", min_length=1, description="Separator in passage ids: what stands before the last one is the document's id."
    )


class CheckSettings(Section):
    """Settings of the stage `check`: what the plan needs from the collection."""

    splits: list[str]
    evaluation_depth: Integer = Field(description="0 where it is left out, and cut to the collection.")
    measures: list[str] = Field(description="Those of all splits, each once.")
    measures_of: dict[str, list[str]] | None = Field(None, description="Where splits differ: split → measures.")
    trains: bool = Field(description="Whether there is an episode; what follows counts only then.")
    mining_depth: Integer = Field(description="0 where nothing is mined, and as for evaluation_depth.")
    live_depth: Integer = Field(description="0 where no step searches.")
    batch_queries: Integer | None = Field(description="How many training queries the largest batch needs.")
    remove: Literal["judged", "answers"]
    answers: bool = Field(False, exclude_if=is_false, description="Whether a relabelling looks for answers.")
    dev_splits: list[str] = Field(description="Those that trainings are watched by.")


class EvaluateSettings(Collapse):
    """Settings of the stage `evaluate`."""

    split: str
    measures: list[str]
    ignore_own_text: bool = Field(False, exclude_if=is_false)


class ExternalSettings(Section):
    """sha256: of the file, so that other content is another run; null if the stage `download` has verified it.
    unknown_passages: for lines whose passage is not in the collection; keep: treat it as unjudged
    """

    file: str
    sha256: str | None
    split: str
    form: Literal["trec", "tsv"]
    unknown_queries: Literal["error", "drop"]
    unknown_passages: Literal["error", "drop", "keep"]

    def identity(self):
        """The file is identified by its content, whatever its path; a member of an archive also by its name."""
        settings = self.model_dump(mode="json")
        return settings | ({"file": self.file.partition("!")[2]} if self.sha256 else {})


class RerankSettings(Section):
    """Settings of the stage `rerank`."""

    split: str


class ErrorsSettings(Section):
    """top: the most errors of a positive that count in the top-K errors"""

    split: str
    top: Integer = 200


class ContrastSettings(Collapse):
    """depth: of the lists whose overlap is measured."""

    split: str
    measure: str
    depth: Integer = 100
    ignore_own_text: bool = Field(False, exclude_if=is_false)


class NegativesOverlapSettings(Section):
    """depth: how many of the first negatives are compared."""

    depth: Integer = 100
