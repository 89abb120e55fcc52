"""Any set of ir_datasets as a collection: it fetches, verifies (MD5) and parses; this only names the fields.

Passages of `msmarco-passage` have their encoding repaired by ir_datasets: not to the character those of the official
file, which the papers use (config/marco.yaml reads that one).
"""

import difflib
import os
from pathlib import Path

from teleport.collection.download import show_licences
from teleport.collection.records import Rows, Source, Split
from teleport.runtime.log import log

HOME = Path("data/ir_datasets")


def source(settings):
    """The Source of `settings` (settings.IrDatasets). Raises ValueError for an id that is unknown or lacks a part."""
    registry = open_registry()
    corpus = part(registry, settings.corpus, "docs", "collection.corpus")
    splits = {name: split(registry, dataset, name) for name, dataset in settings.splits.items()}
    names = sorted({dataset.split("/")[0] for dataset in [settings.corpus, *settings.splits.values()]})
    show_licences({f"ir_datasets-{name}": f"see https://ir-datasets.com/{name}.html." for name in names})
    passages = Rows(
        f"{settings.corpus} docs",
        lambda: ((line, doc.doc_id, *title_and_text(doc)) for line, doc in enumerate(corpus.docs_iter(), 1)),
    )
    return Source(passages, splits)


def open_registry():
    """The sets of ir_datasets ({id: set}), which keeps its files below data/ir_datasets."""
    # Read by ir_datasets while it is imported, so it is imported here and nowhere above.
    os.environ["IR_DATASETS_HOME"] = str(HOME.resolve())
    os.environ["IR_DATASETS_TMP"] = str((HOME / "tmp").resolve())
    import ir_datasets

    return ir_datasets.registry


def part(registry, dataset, entity, key):
    """The set `dataset` when it has `entity` (docs, queries, qrels).

    Raises ValueError naming the setting `key` for an unknown id and for a set without that part.
    """
    try:
        found = registry[dataset]
    except KeyError:
        close = difflib.get_close_matches(dataset, list(registry), n=3)
        remedy = f"Did you mean {' or '.join(close)}?" if close else "Its ids are listed at https://ir-datasets.com."
        raise ValueError(f"{key}: ir_datasets has no {dataset!r}. {remedy}") from None
    if not getattr(found, f"has_{entity}")():
        raise ValueError(f"{key}: {dataset!r} of ir_datasets has no {entity}. Name a set that has.")
    return found


def split(registry, dataset, name):
    """The Split of one id: its queries, its judgments, and answers where its queries have them."""
    key = f"collection.splits.{name}"
    found = part(registry, dataset, "queries", key)
    part(registry, dataset, "qrels", key)
    answers = None
    if "answers" in found.queries_cls()._fields:
        answers = Rows(
            f"{dataset} queries",
            lambda: ((line, query.query_id, list(query.answers)) for line, query in enumerate(found.queries_iter(), 1)),
        )
    return Split(
        Rows(
            f"{dataset} queries",
            lambda: ((line, query.query_id, query_text(query)) for line, query in enumerate(found.queries_iter(), 1)),
        ),
        Rows(f"{dataset} qrels", lambda: judgments(dataset, found)),
        answers,
    )


def judgments(dataset, found):
    """(number, query id, passage id, grade) of a set's judgments; exact repetitions are read once and counted."""
    seen, repeated = set(), 0
    for line, judgment in enumerate(found.qrels_iter(), 1):
        row = (judgment.query_id, judgment.doc_id, str(judgment.relevance))
        if row in seen:
            repeated += 1
        else:
            seen.add(row)
            yield line, *row
    if repeated:
        log.info("%s: %d judgments are repeated and read once", dataset, repeated)


def title_and_text(doc):
    """Title and text of a document, whatever ir_datasets calls its fields (`text`, `body`, or all it has as one)."""
    text = next((getattr(doc, name) for name in ("text", "body") if hasattr(doc, name)), None)
    if text is None:
        return "", doc.default_text()
    return getattr(doc, "title", ""), text


def query_text(query):
    """The text of a query, whatever its field is called (a TREC topic's is `title`)."""
    text = next((getattr(query, name) for name in ("text", "title") if hasattr(query, name)), None)
    return query.default_text() if text is None else text
