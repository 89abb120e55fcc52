"""Teachers: whose scores a draw, a filter, a mask or a loss may compare besides those of the checkpoint that mines; and
what the stage `scores_file` is told."""

from typing import Literal

from pydantic import Field

from teleport.settings.encoder import Encoder
from teleport.settings.section import Integer, LocalPath, Section, exactly_one


class Teacher(Section):
    """A second opinion on pairs of a query and a passage: exactly one of encoder, experiment, file."""

    encoder: Encoder | None = Field(None, description="A dual encoder of its own, as the key `encoder` describes one.")
    experiment: str | None = Field(None, description="The checkpoint of an experiment, under the same seed.")
    episode: Integer | Literal["last"] = Field("last", description="Of the experiment; 0: its start.")
    file: LocalPath | None = Field(
        None,
        description="Scores or verdicts of pairs made elsewhere: JSON lines of query_id, passage_id, score, or these "
        "three columns between tabs; plain or .gz.",
    )

    one_kind = exactly_one("encoder", "experiment", "file")


class ScoresFileSettings(Section):
    """Of the stage `scores_file`. sha256: of the file"""

    path: str
    sha256: str

    def identity(self):
        """The file is what its content is; only the end of its name says how it is read."""
        form = self.path.removesuffix(".gz").endswith((".jsonl", ".json"))
        return {"sha256": self.sha256, "form": "jsonl" if form else "tsv"}
