"""A BEIR folder. queries.jsonl holds the queries of all splits; a split has the queries that its judgments name."""

from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from teleport.locate import existing, split_names
from teleport.records import Rows, Split, json_rows, judgment_rows, refuse
from teleport.settings.collection import Judged
from teleport.settings.section import LocalPath

HEADER = ["query-id", "corpus-id", "score"]
PASSAGE, QUERY = {"_id": str, "title": str, "text": str}, {"_id": str, "text": str}


class Beir(Judged):
    """A BEIR folder: corpus.jsonl[.gz], queries.jsonl[.gz], qrels/SPLIT.tsv."""

    patterns: ClassVar = ("corpus.jsonl", "queries.jsonl", "qrels/*.tsv")

    source: Literal["beir"]
    path: LocalPath = Field(
        description="The BEIR folder. The queries of all splits are in one file, so one more of them is another train "
        "split, and trains again; in the form `folder` each split has its own file."
    )

    def split_names(self):
        return split_names(Path(self.path, "qrels"), "*.tsv", "collection.path")


Settings = Beir


def corpus(settings, job=None):
    """The passages of a `Beir` folder, whose files may be plain or .gz."""
    path = existing(Path(settings.path, "corpus.jsonl"), "collection.path")
    return Rows(path, partial(json_rows, types=PASSAGE, defaults={"title": ""}))


def split(settings, name, job=None):
    """A split of a `Beir` folder."""
    home, key = Path(settings.path), "collection.path"
    qrels = Rows(existing(home / "qrels" / f"{name}.tsv", key), partial(judgment_rows, header=HEADER))
    return Split(Rows(existing(home / "queries.jsonl", key), partial(judged_queries, qrels=qrels)), qrels)


def judged_queries(path, qrels, wrong=refuse):
    """(line number, id, text) of the queries in the JSON lines `path` that `qrels` name."""
    judged = {
        row[1] for row in qrels.read(qrels.place, wrong=lambda *fault: None)
    }  # faults are reported when the split is checked
    return (row for row in json_rows(path, QUERY, wrong=wrong) if row[1] in judged)
