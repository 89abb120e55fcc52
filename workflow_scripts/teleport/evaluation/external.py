"""Stage `external`: a run from elsewhere, in TREC's six columns, in the form of our own retrievals."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from teleport.collection.records import lines as numbered_lines
from teleport.runtime.arrays import Run
from teleport.settings.scoring import ExternalSettings as Settings  # noqa: F401

COLUMNS = "query, Q0, passage, rank, score, tag"


def run(job):
    """Write ids.npy int32 and scores.npy float32 [queries of the run, longest list], rows.npy int32.

    Lists are ordered as trec_eval does: by descending score (as float32), ties by descending passage id; the rank
    column and the order of lines do not count. Shorter lists end with id -1 and score 0.

    Facts: lines, num_queries, depth, unknown_queries (lines dropped because the split does not have their query).

    Raises ValueError with file, line and remedy for a line that has not six columns, a score that is no finite number,
    a query or passage that the collection does not have, and a pair that is listed twice; for a run without any line of
    the split's queries; and as `records.lines` does for a file that is damaged or not UTF-8.
    """
    settings = job.settings
    lines, rows, passages, scores, dropped = read_lines(
        settings.file,
        number(job.input("collection", f"queries.{settings.split}.parquet"), "query_id"),
        settings.unknown_queries == "drop",
    )
    if not passages:
        raise ValueError(
            f"{settings.file}: none of its lines is of a query of {settings.split!r} ({dropped} are of others). "
            "Give the run of this split."
        )
    ids = find_passages(settings.file, job.input("collection", "corpus.parquet"), passages, lines)
    refuse_repeated_pairs(settings.file, rows, ids, passages, lines)
    order = np.lexsort((-byte_order(passages), -scores, rows))
    queries, starts, counts = np.unique(rows[order], return_index=True, return_counts=True)
    shape = len(queries), int(counts.max())
    ids_QK, scores_QK = np.full(shape, -1, np.int32), np.zeros(shape, np.float32)
    line = np.repeat(np.arange(len(queries)), counts)
    slot = np.arange(len(order)) - np.repeat(starts, counts)
    ids_QK[line, slot], scores_QK[line, slot] = ids[order], scores[order]
    Run(ids_QK, scores_QK, queries).write(job)
    return {"lines": len(lines), "num_queries": len(queries), "depth": shape[1], "unknown_queries": dropped}


def number(path, column):
    """{id: row} of a Parquet column of ids."""
    return {name: row for row, name in enumerate(pq.read_table(path, columns=[column])[column].to_pylist())}


def read_lines(path, queries, drop_unknown):
    """The run as columns: line numbers, query rows (int64), passage ids (list of str), scores (float32), dropped lines.

    queries: {query id: row}
    """
    lines, rows, passages, scores, dropped = [], [], [], [], 0
    for line, text in numbered_lines(path):
        columns = text.split()
        if len(columns) != 6:
            raise ValueError(
                f"{path}, line {line}: {len(columns)} columns, a run has six ({COLUMNS}). Correct the line."
            )
        query, _, passage, _, score, _ = columns
        if query not in queries and drop_unknown:
            dropped += 1
            continue
        if query not in queries:
            raise ValueError(
                f"{path}, line {line}: query {query!r} is not among the split's judged queries. Give the run of "
                "this split, or set unknown_queries: drop to leave such lines out."
            )
        lines.append(line)
        rows.append(queries[query])
        passages.append(passage)
        scores.append(as_number(score, path, line))
    return np.array(lines, np.int64), np.array(rows, np.int64), passages, np.array(scores, np.float32), dropped


def as_number(text, path, line):
    """A finite float. Raises ValueError naming the line."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{path}, line {line}: the score {text!r} is not a finite number. Correct the line.")
    return value


def find_passages(path, corpus, passages, lines):
    """Rows of the passages with the ids `passages` in corpus.parquet (int32). Raises ValueError for an unknown one."""
    known = pq.read_table(corpus, columns=["doc_id"])["doc_id"].combine_chunks()
    found = pc.index_in(pa.array(passages, pa.string()), value_set=known)
    if found.null_count:
        first = int(np.argmax(found.is_null().to_numpy(zero_copy_only=False)))
        raise ValueError(
            f"{path}, line {lines[first]}: passage {passages[first]!r} is not in the corpus. Give a run over this "
            "collection, or the collection that the run was made on."
        )
    return found.to_numpy().astype(np.int32)


def refuse_repeated_pairs(path, rows, ids, passages, lines):
    """Raise ValueError naming the first line whose query and passage stand on an earlier line."""
    pairs = rows * (int(ids.max()) + 1) + ids
    _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    repeated = np.flatnonzero(first[inverse] != np.arange(len(pairs)))
    if len(repeated):
        again = repeated[0]
        raise ValueError(
            f"{path}, line {lines[again]}: passage {passages[again]!r} is listed for this query on line "
            f"{lines[first[inverse[again]]]} already. Remove one of the lines."
        )


def byte_order(passages):
    """The number of each id among all ids sorted by their bytes (int64), as strcmp orders them in trec_eval."""
    names = np.array([name.encode() for name in passages], dtype=object)
    return np.unique(names, return_inverse=True)[1]
