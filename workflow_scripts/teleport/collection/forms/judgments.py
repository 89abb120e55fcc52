"""Judgments alone, to score runs from elsewhere. Queries and passages have only ids, which serve as their texts."""

from typing import ClassVar, Literal

from pydantic import Field

from teleport.locate import existing, fetched, located
from teleport.records import Rows, Split, judgment_rows, refuse
from teleport.settings.collection import Fetched, SplitName
from teleport.settings.section import LocalPath, Section


class JudgmentFile(Section):
    """The file of a split that has nothing else."""

    qrels: LocalPath = Field(
        description="A path or a name of `files`; TREC judgments: query, iteration (may be absent), passage, grade."
    )


class JudgmentsAlone(Fetched):
    """Judgments alone, to score runs from elsewhere (`external`): without texts nothing can be encoded or searched."""

    has_texts: ClassVar = False

    source: Literal["judgments"]
    splits: dict[SplitName, JudgmentFile] = Field(description="File of each split.")

    def of_corpus(self):
        """The passages are those that any split judges."""
        used = self.files_of(*self.splits.values())
        return super().of_corpus().model_copy(update={"splits": self.splits, "files": used})

    def of_split(self, name):
        return super().of_split(name).model_copy(update={"files": self.files_of(self.splits[name])})


Settings = JudgmentsAlone


def corpus(settings, job):
    """The passages of a `JudgmentsAlone`."""
    paths = [qrels_of(settings, name, job) for name in settings.splits]

    def passages(place, wrong=refuse):
        rows = (row for path in paths for row in judgment_rows(path, wrong=unheard))
        return first_of_each((number, doc, "", doc) for number, _, doc, _ in rows)

    return Rows(", ".join(map(str, paths)), passages)


def split(settings, name, job):
    """A split of a `JudgmentsAlone`."""
    place = qrels_of(settings, name, job)
    return Split(Rows(place, queries), Rows(place, judgment_rows))


def qrels_of(settings, name, job):
    """Return the path of the judgments of a split."""
    path, files = settings.splits[name].qrels, fetched(job)
    if path.partition("!")[0] in files:
        return located(path, files)
    return existing(path, f"collection.splits.{name}.qrels")


def queries(path, wrong=refuse):
    """(line number, id, text) of the queries that a file of judgments names."""
    return first_of_each((number, query, query) for number, query, *_ in judgment_rows(path, wrong=unheard))


def unheard(*fault):
    """Ignore a wrong row: it is reported when the judgments themselves are checked."""


def first_of_each(rows):
    """The first of the rows (line number, id, ...) of every id."""
    seen = set()
    return (row for row in rows if not (row[1] in seen or seen.add(row[1])))
