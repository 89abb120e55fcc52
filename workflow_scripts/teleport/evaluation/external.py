"""Stage `external`: a run from elsewhere, in TREC's six columns, in the form of our own retrievals."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from teleport.collection import records
from teleport.evaluation.judged import order_within
from teleport.runtime.arrays import Run
from teleport.settings.scoring import ExternalSettings as Settings  # noqa: F401

COLUMNS = "query, Q0, passage, rank, score, tag"


def run(job):
    """Write ids.npy int32 and scores.npy float32 [queries of the run, longest list], rows.npy int32.

    Lists are ordered as trec_eval does: by descending score (as float32), ties by descending passage id; the rank
    column and the order of lines do not count. Shorter lists end with id -1 and score 0.

    Facts: lines, num_queries, depth, unknown_queries (lines dropped because the split does not have their query).
    Raises ValueError with file, line and remedy for a line without six columns, a score that is not a finite number, a
    query or passage that the collection does not have, and a pair that is listed twice; for a run without any line of
    the split's queries; and as `records.lines` does for a file that is damaged or not UTF-8.
    """
    file, split = job.settings.file, job.settings.split
    query_ids = pq.read_table(job.input("collection", f"queries.{split}.parquet"), columns=["query_id"])["query_id"]
    row_of = {query_id: row for row, query_id in enumerate(query_ids.to_pylist())}
    lines, rows, passages, scores, dropped = read_lines(file, row_of, job.settings.unknown_queries == "drop")
    if not passages:
        found = f"none of its lines is of a query of {split!r} ({dropped} are of others)"
        raise ValueError(f"{file}: {found}. Give the run of this split.")
    ids = find_passages(file, job.input("collection", "corpus.parquet"), passages, lines)
    refuse_repeated_pairs(file, rows, ids, passages, lines)
    # trec_eval compares ids with strcmp, so by their bytes.
    ties = np.unique(np.array([name.encode() for name in passages], dtype=object), return_inverse=True)[1]
    order = np.lexsort((-ties, -scores, rows))
    queries, line, counts = np.unique(rows[order], return_inverse=True, return_counts=True)
    slot = order_within(line)
    ids_QK = np.full((len(queries), counts.max()), -1, np.int32)
    scores_QK = np.zeros(ids_QK.shape, np.float32)
    ids_QK[line, slot], scores_QK[line, slot] = ids[order], scores[order]
    Run(ids_QK, scores_QK, queries).write(job)
    return {"lines": len(lines), "num_queries": len(queries), "depth": ids_QK.shape[1], "unknown_queries": dropped}


def read_lines(path, row_of, drop_unknown):
    """The run as columns: line numbers, query rows (int64), passage ids (list), scores (float32); and dropped lines."""
    lines, rows, passages, scores, dropped = [], [], [], [], 0
    for line, text in records.lines(path):
        columns = text.split()
        if len(columns) != 6:
            raise records.wrong_row(path, line, f"{len(columns)} columns, a run has six ({COLUMNS}). Correct the line.")
        query, _, passage, _, score, _ = columns
        if query in row_of:
            lines.append(line)
            rows.append(row_of[query])
            passages.append(passage)
            scores.append(as_number(score, path, line))
        elif drop_unknown:
            dropped += 1
        else:
            remedy = "Give the run of this split, or set unknown_queries: drop to leave such lines out."
            raise records.wrong_row(path, line, f"query {query!r} is not among the split's judged queries. {remedy}")
    return np.array(lines, np.int64), np.array(rows, np.int64), passages, np.array(scores, np.float32), dropped


def as_number(text, path, line):
    """A finite float. Raises ValueError naming the line."""
    try:
        value = float(text if text.isascii() and "_" not in text else "none")  # 1_0 is a number in Python alone
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise records.wrong_row(path, line, f"the score {text!r} is not a finite number. Correct the line.")
    return value


def find_passages(path, corpus, passages, lines):
    """Rows of the passages with the ids `passages` in corpus.parquet (int32). Raises ValueError for an unknown one."""
    doc_ids = pq.read_table(corpus, columns=["doc_id"])["doc_id"].combine_chunks()
    found = pc.index_in(pa.array(passages, pa.string()), value_set=doc_ids)
    if found.null_count:
        first = int(np.argmax(found.is_null().to_numpy(zero_copy_only=False)))
        remedy = "Give a run over this collection, or the collection that the run was made on."
        raise records.wrong_row(path, lines[first], f"passage {passages[first]!r} is not in the corpus. {remedy}")
    return found.to_numpy().astype(np.int32)


def refuse_repeated_pairs(path, rows, ids, passages, lines):
    """Raise ValueError naming the first line whose query and passage an earlier line has too."""
    pairs = rows * (int(ids.max()) + 1) + ids
    _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    repeated = np.flatnonzero(first[inverse] != np.arange(len(pairs)))
    if len(repeated):
        again, before = repeated[0], lines[first[inverse[repeated[0]]]]
        twice = f"passage {passages[again]!r} is listed for this query on line {before} already"
        raise records.wrong_row(path, lines[again], f"{twice}. Remove one of the lines.")
