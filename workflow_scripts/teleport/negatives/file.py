"""Stage `negatives_file`: negatives made elsewhere, in the form of our own retrievals.

Training on another system's negatives tells a fault of mining from a fault of training.
"""

from collections import Counter

import numpy as np

from teleport.negatives.file_forms import FORMS
from teleport.runtime.arrays import Run
from teleport.runtime.files import sha256_file
from teleport.settings.negatives_file import NegativesFileSettings as Settings  # noqa: F401


def run(job):
    """Write a `Run` of the training queries that the file has: negatives in its order, scores 0.

    A query that the file has on several lines has as many lines here. Facts: lines (or records) of the file, queries
    (training queries with a line), other_queries (lines of queries that are no training queries, left out), negatives,
    unmatched (negatives whose text or token ids no passage has, left out).

    Raises ValueError, with file and line where there is one, for a passage id that the collection does not have, for
    a file of another form, of other queries or of another corpus, and for one that changed after planning.
    """
    path, found = job.settings.path, sha256_file(job.settings.path)
    if found != job.settings.sha256:
        raise ValueError(f"{path} has changed since it was planned (SHA-256 {found}). Run the workflow again.")
    form, counts, rows, lists = FORMS[job.settings.form](job), Counter(), [], []
    for place, query, negatives in form.records():
        counts["lines"] += 1
        query_rows = form.query_rows(query)
        if not query_rows:
            counts["other_queries"] += 1
            continue
        passages = form.passages(place, negatives)
        counts["unmatched"] += int(np.count_nonzero(passages < 0))
        rows += query_rows
        lists += [passages[passages >= 0]] * len(query_rows)
    refuse_nothing(path, form, rows, lists, counts)
    to_run(rows, lists).write(job)
    facts = {name: counts[name] for name in ("lines", "other_queries", "unmatched")}
    return facts | {"queries": len(set(rows)), "negatives": sum(map(len, lists))}


def refuse_nothing(path, form, rows, lists, counts):
    """Raise ValueError when no query of the file is a training query, or none of its negatives is in the collection."""
    if not rows:
        raise ValueError(f"{path}: none of its {counts['lines']} queries is a training query. {form.other_queries}")
    if not any(map(len, lists)):
        raise ValueError(f"{path}: none of its negatives is in the collection. {form.other_texts}")


def to_run(rows, lists):
    """A `Run` of passages in lists of different lengths."""
    ids = np.full((len(lists), max(map(len, lists))), -1, np.int32)
    for line, passages in zip(ids, lists, strict=True):
        line[: len(passages)] = passages
    return Run(ids, np.zeros(ids.shape, np.float32), np.array(rows, np.int32))
