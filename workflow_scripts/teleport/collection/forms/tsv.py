"""MS MARCO-style files, each named in the configuration."""

from typing import Literal

from pydantic import Field

from teleport.locate import existing
from teleport.records import Rows, Split, judgment_rows, passage_rows, query_rows
from teleport.settings.collection import Judged, SplitName
from teleport.settings.section import LocalPath, Section


class Files(Section):
    """The two files of a split."""

    queries: LocalPath = Field(description="Tab-separated: query id, text.")
    qrels: LocalPath = Field(description="TREC judgments: query, iteration (may be absent), passage, grade.")


class Tsv(Judged):
    """MS MARCO-style files: a corpus of two or three tab-separated columns, and two files per split."""

    source: Literal["tsv"]
    corpus: LocalPath = Field(description="Tab-separated, .gz or plain: id, text; or id, title, text.")
    splits: dict[SplitName, Files] = Field(description="Files of train, dev, test and others.")


Settings = Tsv


def corpus(settings, job=None):
    """The passages of a `Tsv`."""
    return Rows(existing(settings.corpus, "collection.corpus"), passage_rows)


def split(settings, name, job=None):
    """A split of a `Tsv`."""
    queries, qrels = (
        existing(getattr(settings.splits[name], role), f"collection.splits.{name}.{role}")
        for role in ("queries", "qrels")
    )
    return Split(Rows(queries, query_rows), Rows(qrels, judgment_rows))
