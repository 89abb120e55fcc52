"""What the stages are told that score runs and compare them."""

from typing import Literal

from pydantic import Field

from teleport.settings.section import Integer, Section


def needed_splits(evaluated, watched, trains):
    """{split: why it is needed} of those that are evaluated, that trainings are watched by, and that is trained on."""
    needed = {name: f"evaluation.splits names {name!r}" for name in evaluated}
    needed |= {name: f"training.dev.split names {name!r}" for name in watched}
    return needed | ({"train": "training needs the split 'train'"} if trains else {})


class CheckSettings(Section):
    """The settings of a `check` stage."""

    splits: list[str]
    evaluation_depth: Integer = Field(description="0 where it is left out, and cut to the collection.")
    measures: list[str] = Field(description="Those of all splits, each once.")
    measures_of: dict[str, list[str]] | None = Field(None, description="Where splits differ: split → measures.")
    trains: bool = Field(description="Whether there is an episode; what follows counts only then.")
    mining_depth: Integer = Field(0, description="0 where nothing is mined, and as for evaluation_depth.")
    live_depth: Integer = Field(0, description="0 where no step searches.")
    batch_queries: Integer | None = Field(None, description="How many training queries the largest batch needs.")
    remove: Literal["judged", "answers"] = "judged"
    dev_splits: list[str] = Field([], description="Those that trainings are watched by.")


class EvaluateSettings(Section):
    """The settings of an `evaluate` stage."""

    split: str
    measures: list[str]
    collapse: Literal["maxp", "firstp"] | None = None
    separator: str = "#"


class ExternalSettings(Section):
    """The settings of an `external` stage.

    sha256: of the file, so that another content is another run; null where the stage `download` has verified it.
    unknown_passages: of lines whose passage the collection lacks; keep: as one without judgment
    """

    file: str
    sha256: str | None
    split: str
    form: Literal["trec", "tsv"] = "trec"
    unknown_queries: Literal["error", "drop"] = "error"
    unknown_passages: Literal["error", "drop", "keep"] = "error"


class RerankSettings(Section):
    """The settings of a `rerank` stage."""

    split: str


class ErrorsSettings(Section):
    """The settings of an `errors` stage. top: errors of a positive count up to so many in the top-K errors."""

    split: str
    top: Integer = 200


class ContrastSettings(Section):
    """The settings of a `contrast` stage. depth: of the lists whose overlap is measured."""

    split: str
    measure: str
    depth: Integer = 100
    collapse: Literal["maxp", "firstp"] | None = None
    separator: str = "#"


class NegativesOverlapSettings(Section):
    """The settings of a `negatives_overlap` stage. depth: how many of the first negatives are compared."""

    depth: Integer = 100
