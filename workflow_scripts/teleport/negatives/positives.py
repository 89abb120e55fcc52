"""Stage `positives`: the positives of the training questions of an episode, as released for NQ and TriviaQA.

Those judged, where a question has any; otherwise one, the best-ranked passage with an answer among the neighbours of
the question that this episode retrieved. It is looked for anew in every episode, so it can change with the checkpoint.
"""

import numpy as np

from teleport.collection.answers import find_answers
from teleport.collection.reader import read_answers, read_positives


def run(job):
    """Write offsets.npy int64 [Q + 1] and passages.npy int32: row q has passages[offsets[q] : offsets[q + 1]].

    Facts: how many questions have given, found, or no positives (`given`, `found`, `without`). Raises ValueError when
    the training split has no answers.
    """
    given = read_positives(job.inputs["collection"], "train")
    ids_QK, rows = (np.load(job.input("queries", f"{name}.npy"), mmap_mode="r") for name in ("ids", "rows"))
    lines = np.flatnonzero(np.diff(given[0])[rows] == 0)  # of questions without a judged positive
    answers_Q = read_answers(job.inputs["collection"], "train")
    corpus = job.input("collection", "corpus.parquet")
    found_QK = find_answers(corpus, ids_QK[lines], [answers_Q[row] for row in rows[lines]])
    hits = np.flatnonzero(found_QK.any(axis=1))
    best = ids_QK[lines[hits], found_QK[hits].argmax(axis=1)]
    offsets, passages = add_positives(*given, rows[lines[hits]], best)
    for name, array in {"offsets": offsets, "passages": passages}.items():
        with open(job.output(f"{name}.npy"), "wb") as file:
            np.save(file, array)
    counts = {"given": int(np.count_nonzero(np.diff(given[0]))), "found": len(hits)}
    return counts | {"without": len(offsets) - 1 - sum(counts.values())}


def add_positives(offsets, passages, queries, found):
    """Give each of `queries` (rows without positives) its passage in `found`; returns the new (offsets, passages)."""
    counts = np.diff(offsets)
    owners = np.concatenate([np.repeat(np.arange(len(counts)), counts), queries])
    order = np.argsort(owners, kind="stable")
    counts[queries] = 1
    joined = np.concatenate([passages, found])[order].astype(np.int32)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), joined
