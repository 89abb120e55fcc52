"""Teachers: whose scores a draw, a filter, a mask or a loss may compare besides those of the checkpoint that mines; and
what the stages `scores_file`, `ranker` and `cross_score` are told."""

from typing import Literal

from pydantic import Field

from teleport.settings.encoder import CheckpointSource, Encoder, Identified, Precision
from teleport.settings.pool import ScoreSettings
from teleport.settings.section import Integer, LocalPath, Section, Tokens, exactly_one


class Reads(Section):
    """How a cross-encoder reads a pair, and what it says of it."""

    max_tokens: Tokens = Field(512, description="Of a query and a passage together, with special tokens.")
    title: Literal["space", "none"] = Field("space", description="Between title and text; none: without title.")
    sigmoid: bool = Field(False, description="Scores from 0 to 1; false: the model's output as it is.")
    precision: Precision = Field("auto", description="auto: bf16 where hardware is faster in it.")


class CrossEncoder(Reads):
    """A model that reads query and passage together and gives one number: sequence classification with one label."""

    checkpoint: CheckpointSource = Field(description="Its weights and tokenizer.")


class Teacher(Section):
    """A second opinion on pairs: exactly one of encoder, experiment, file, cross_encoder."""

    encoder: Encoder | None = Field(None, description="A dual encoder of its own, as the key `encoder` describes one.")
    experiment: str | None = Field(None, description="The checkpoint of an experiment, under the same seed.")
    episode: Integer | Literal["last"] = Field("last", description="Of the experiment; 0: its start.")
    file: LocalPath | None = Field(
        None,
        description="Scores or verdicts of pairs made elsewhere: JSON lines of query_id, passage_id, score, or these "
        "three columns between tabs; plain or .gz.",
    )

    cross_encoder: CrossEncoder | None = Field(None, description="It has scores of pairs, and no vectors.")

    one_kind = exactly_one("encoder", "experiment", "file", "cross_encoder")


class RankerSettings(Section):
    """Of the stage `ranker`."""

    checkpoint: Identified

    def identity(self):
        """A folder is what its files are, wherever it lies."""
        return self.model_dump(mode="json", exclude={"checkpoint": {"folder"}})


class CrossScoreSettings(ScoreSettings, Reads):
    """Of the stage `cross_score`: which pairs, and how they are read."""


class ScoresFileSettings(Section):
    """Of the stage `scores_file`. sha256: of the file"""

    path: str
    sha256: str

    def identity(self):
        """The file is what its content is; only the end of its name says how it is read."""
        form = self.path.removesuffix(".gz").endswith((".jsonl", ".json"))
        return {"sha256": self.sha256, "form": "jsonl" if form else "tsv"}
