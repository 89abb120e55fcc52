"""MS MARCO-style files, each named in the configuration."""

from typing import Literal

from pydantic import Field

from teleport.collection.records import Rows, Source, Split, existing, judgment_rows, passage_rows, query_rows
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
    splits: dict[SplitName, Files] = Field(min_length=1, description="Files of train, dev, test and others.")


Settings = Tsv


def read(settings, job=None):
    """The Source of a `Tsv`."""
    corpus = existing(settings.corpus, "collection.corpus")
    splits = {}
    for name, files in settings.splits.items():
        queries = existing(files.queries, f"collection.splits.{name}.queries")
        qrels = existing(files.qrels, f"collection.splits.{name}.qrels")
        splits[name] = Split(Rows(queries, query_rows), Rows(qrels, judgment_rows))
    return Source(Rows(corpus, passage_rows), splits)
