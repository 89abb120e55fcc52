"""A folder of tab-separated files, whose names contain the split."""

from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from teleport.locate import existing, existing_or_none, split_names
from teleport.records import Rows, Split, json_rows, judgment_rows, passage_rows, query_rows
from teleport.settings.collection import Judged
from teleport.settings.section import LocalPath


class Folder(Judged):
    """A folder: corpus.tsv[.gz] (id, title, text), queries.SPLIT.tsv, qrels.SPLIT.tsv, maybe answers.SPLIT.jsonl."""

    patterns: ClassVar = ("corpus.tsv", "queries.*.tsv", "qrels.*.tsv", "answers.*.jsonl")

    source: Literal["folder"]
    path: LocalPath = Field(description="The folder of corpus.tsv[.gz].")
    queries: LocalPath | None = Field(None, description="The folder of queries and judgments, if it is another one.")

    @property
    def home(self):
        """(the folder of queries and judgments, the setting that names it)."""
        return Path(self.queries or self.path), "collection.queries" if self.queries else "collection.path"

    def of_corpus(self):
        return super().of_corpus().model_copy(update={"queries": None})

    def split_names(self):
        home, key = self.home
        return split_names(home, "(?:queries|qrels).*.tsv", key)


Settings = Folder


def corpus(settings, job=None):
    """The passages of a `Folder`."""
    return Rows(existing(Path(settings.path, "corpus.tsv"), "collection.path"), passage_rows)


def split(settings, name, job=None):
    """A split of a `Folder`. It needs queries and judgments; a split other than train with answers needs no
    judgments."""
    home, key = settings.home
    queries, qrels = existing(home / f"queries.{name}.tsv", key), home / f"qrels.{name}.tsv"
    answers = existing_or_none(home / f"answers.{name}.jsonl")
    if existing_or_none(qrels) or name == "train" or not answers:
        judged = Rows(existing(qrels, key), judgment_rows)
    else:
        judged = Rows(qrels, lambda path, wrong: iter(()))
    answers = answers and Rows(answers, partial(json_rows, types={"id": str, "answers": list}))
    return Split(Rows(queries, query_rows), judged, answers)
