"""Judgments alone, to score runs from elsewhere. Their queries and passages have ids alone, which are their texts."""

from typing import Literal

from pydantic import Field

from teleport.collection.records import Rows, Source, Split, existing, judgment_rows, located, refuse
from teleport.settings.collection import Fetched, SplitName
from teleport.settings.section import LocalPath, Section


class JudgmentFile(Section):
    """The file of a split that has nothing else."""

    qrels: LocalPath = Field(
        description="A path or a name of `files`; TREC judgments: query, iteration (may be absent), passage, grade."
    )


class JudgmentsAlone(Fetched):
    """Judgments alone, to score runs from elsewhere (`external`): without texts nothing can be encoded or searched."""

    source: Literal["judgments"]
    splits: dict[SplitName, JudgmentFile] = Field(min_length=1, description="File of each split.")


Settings = JudgmentsAlone


def read(settings, job):
    """The Source of a `JudgmentsAlone`."""
    files = job.facts("download")["files"] if "download" in job.inputs else {}
    splits, qrels = {}, []
    for name, split in settings.splits.items():
        fetched, key = split.qrels.partition("!")[0] in files, f"collection.splits.{name}.qrels"
        qrels.append(place := located(split.qrels, files) if fetched else existing(split.qrels, key))
        splits[name] = Split(Rows(place, queries), Rows(place, judgment_rows))

    def passages(place, wrong=refuse):
        rows = (row for path in qrels for row in judgment_rows(path, wrong=unheard))
        return first_of_each((number, doc, "", doc) for number, _, doc, _ in rows)

    return Source(Rows(", ".join(map(str, qrels)), passages), splits, {"judged_only": True})


def queries(path, wrong=refuse):
    """(line number, id, text) of the queries that a file of judgments names."""
    return first_of_each((number, query, query) for number, query, *_ in judgment_rows(path, wrong=unheard))


def unheard(*fault):
    """A wrong row is told where the judgments themselves are read."""


def first_of_each(rows):
    """The first of the rows (line number, id, ...) of every id."""
    seen = set()
    return (row for row in rows if not (row[1] in seen or seen.add(row[1])))
