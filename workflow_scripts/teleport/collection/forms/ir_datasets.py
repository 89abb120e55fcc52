"""Any set of ir_datasets as a collection. ir_datasets fetches, verifies (MD5) and parses; this only names the fields.

ir_datasets repairs the encoding of `msmarco-passage`, so some characters differ from the official file, which the
papers use (config/marco.yaml reads the official one).
"""

import difflib
import os
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from teleport.records import Rows, Split
from teleport.refusal import Refusal
from teleport.settings.collection import Judged, SplitName

HOME = Path("data/ir_datasets")


class IrDatasets(Judged):
    """Sets of ir_datasets, which fetches, verifies and parses them below data/ir_datasets."""

    unknown_cost: ClassVar = "ir_datasets' downloads"

    source: Literal["ir_datasets"]
    corpus: str = Field(description="The id whose documents are the passages, for example `msmarco-passage`.")
    splits: dict[SplitName, str] = Field(description="Split → its id, such as `msmarco-passage/dev/small`.")


Settings = IrDatasets


def corpus(settings, job=None):
    """The passages of an `IrDatasets`."""
    entry = set_with("docs", settings.corpus, "collection.corpus")
    return rows(f"{settings.corpus} docs", entry.docs_iter, passage_fields)


def split(settings, name, job=None):
    """A split of an `IrDatasets`: its queries, its judgments, and answers where its queries have them."""
    dataset = settings.splits[name]
    for entity in ("queries", "qrels"):
        entry = set_with(entity, dataset, f"collection.splits.{name}")
    queries, answers = rows(f"{dataset} queries", entry.queries_iter, query_fields), None
    if "answers" in entry.queries_cls()._fields:
        answers = rows(queries.place, entry.queries_iter, lambda query: (query.query_id, list(query.answers)))
    qrels = rows(f"{dataset} qrels", entry.qrels_iter, lambda j: (j.query_id, j.doc_id, str(j.relevance)))
    return Split(queries, qrels, answers)


def rows(place, records, fields):
    """Rows of the records that `records()` iterates over, numbered from 1; fields: the fields of one record"""
    return Rows(place, lambda place, wrong: ((number, *fields(record)) for number, record in enumerate(records(), 1)))


def open_registry():
    """The sets of ir_datasets ({id: set}), which keeps its files below data/ir_datasets."""
    # ir_datasets reads these variables when it is imported, so it is imported here and nowhere above.
    os.environ["IR_DATASETS_HOME"] = str(HOME.resolve())
    os.environ["IR_DATASETS_TMP"] = str((HOME / "tmp").resolve())
    import ir_datasets

    return ir_datasets.registry


def set_with(entity, dataset, key):
    """The set `dataset`, which must have `entity` (docs, queries, qrels); `key` is the setting that names it. Its terms
    are shown."""
    from teleport.collection.download import show_licences  # here: loading a configuration loads this file

    registry = open_registry()
    try:
        entry = registry[dataset]
    except KeyError:
        close = difflib.get_close_matches(dataset, list(registry), n=3)
        remedy = f"Did you mean {' or '.join(close)}?" if close else "Its ids are listed at https://ir-datasets.com."
        raise Refusal(f"{key}: ir_datasets has no {dataset!r}. {remedy}") from None
    if not getattr(entry, f"has_{entity}")():
        raise Refusal(f"{key}: {dataset!r} of ir_datasets has no {entity}. Name a set that has.")
    name = dataset.split("/")[0]
    show_licences({f"ir_datasets-{name}": f"see https://ir-datasets.com/{name}.html."})
    return entry


def passage_fields(doc):
    """Id, title (empty without one) and text; a document without a text in `text` or `body` is one text, title
    included. In some sets `body` is a list of sections, or bytes."""
    text = getattr(doc, "text", getattr(doc, "body", None))
    if not isinstance(text, str):
        return doc.doc_id, "", doc.default_text()
    return doc.doc_id, getattr(doc, "title", None) or "", text


def query_fields(query):
    """Id and text of a query; a TREC topic has its text in `title`."""
    text = getattr(query, "text", getattr(query, "title", None))
    return query.query_id, query.default_text() if text is None else text
