"""Stage `external`: bring a run from elsewhere, or candidates to re-rank, into the form of our retrievals."""

import math
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from teleport import records
from teleport.arrays import Run, in_slots
from teleport.evaluation.names import OWN_PASSAGES, read_column, read_query_ids
from teleport.locate import fetched, located
from teleport.refusal import Refusal
from teleport.running.files import require_planned
from teleport.settings.measures import ExternalSettings as Settings  # noqa: F401


def run(job):
    """Write ids.npy int32 and scores.npy float32 [queries of the run, longest list], rows.npy int32.

    Lists are ordered as trec_eval does: by descending score (as float32), ties by descending passage id; the rank
    column and the order of lines do not count. Shorter lists end with id -1 and score 0. A passage that is not in the
    collection is an error, or its line is dropped, or it is kept: numbered after the collection's passages, with its
    id in passages.parquet. If the first line has three columns, the file is in MS MARCO's form: query, passage, rank;
    rank r becomes score -r. In form tsv a line is query, passage and anything else, and all scores are 0.

    Facts: lines, num_queries, depth; unknown_queries and unknown_passages: lines dropped because their query is not in
    the split, or their passage not in the collection.
    """
    settings, split = job.settings, job.settings.split
    files = fetched(job)
    file = located(settings.file, files) if files else settings.file
    require_planned({records.archive_and_member(file)[0]: settings.sha256} if settings.sha256 else {})
    query_ids = read_query_ids(job, split).to_pylist()
    row_of = {query_id: row for row, query_id in enumerate(query_ids)}
    lines, dropped = read_lines(file, settings.form, row_of, settings.unknown_queries == "drop")
    if not len(lines):
        raise Refusal(
            f"{file}: no line has a query of {split!r} ({dropped} lines have other queries). Give the run of this "
            "split."
        )
    ids = find_passages(job, file, lines)
    known = lines.append_column("id", ids).filter(ids.is_valid())
    refuse_repeated_pairs(file, known)
    retrieved = ranked(known)
    retrieved.write(job)
    facts = {"lines": len(known), "num_queries": len(retrieved.rows), "depth": retrieved.ids.shape[1]}
    return facts | {"unknown_queries": dropped, "unknown_passages": ids.null_count}


def ranked(lines):
    """The `Run` of lines in any order (a table of `read_lines` with a column id), sorted by score, ties by descending
    passage id in bytes, as in trec_eval (strcmp)."""
    lines = lines.sort_by([("row", "ascending"), ("score", "descending"), ("passage", "descending")])
    queries, counts = np.unique(lines["row"], return_counts=True)
    ids, scores = lines["id"].to_numpy(), lines["score"].to_numpy()
    return Run(in_slots(counts, ids, empty=-1), in_slots(counts, scores), queries)


def read_lines(path, form, row_of, drop_unknown):
    """(the run as an Arrow table, the number of dropped lines). Columns: line, its number; row, of the query; passage,
    its id; score, float32."""
    lines, rows, passages, scores, dropped = [], [], [], [], 0
    for line, text in records.lines(path):
        if line == 1 and form == "trec" and len(text.split()) == 3:
            form = "ranks"
        query, passage, score = columns_of(text, form, path, line)
        if query in row_of:
            lines.append(line)
            rows.append(row_of[query])
            passages.append(passage)
            value = records.float_of(score)
            if not math.isfinite(value):
                wrong = f"the score {score!r} is not a finite number. Correct the line."
                raise records.wrong_row(path, line, wrong)
            scores.append(value)
        elif drop_unknown:
            dropped += 1
        else:
            remedy = "Give the run of this split, or set unknown_queries: drop to leave such lines out."
            raise records.wrong_row(path, line, f"query {query!r} is not among the split's queries. {remedy}")
    scores = pa.array(scores, pa.float32())
    return pa.table({"line": lines, "row": rows, "passage": passages, "score": scores}), dropped


def columns_of(text, form, path, line):
    """(query id, passage id, score as text) of a line."""
    if form == "tsv":
        columns = text.split("\t", 2)
        if len(columns) < 2:
            raise records.wrong_row(path, line, "1 column, expected query id and passage id. Correct the line.")
        return columns[0], columns[1], "0"
    if form == "ranks":
        columns = text.split()
        if len(columns) != 3:
            raise records.wrong_row(path, line, f"{len(columns)} columns, expected 3 as in line 1. Correct the line.")
        if not re.fullmatch("[1-9][0-9]{0,6}", columns[2]):
            three = "the third of three columns is a rank, a whole number from 1 on"
            remedy = "Correct the line, or write scores in six columns (query, Q0, passage, rank, score, tag)."
            raise records.wrong_row(path, line, f"{three}, and not {columns[2]!r}. {remedy}")
        return columns[0], columns[1], f"-{columns[2]}"
    columns = text.split(maxsplit=5)  # a tag may have blanks
    if len(columns) != 6:
        forms = "a run has six (query, Q0, passage, rank, score, tag), or in all lines three (query, passage, rank)"
        raise records.wrong_row(path, line, f"{len(columns)} columns, {forms}. Correct the line.")
    return columns[0], columns[2], columns[4]


def find_passages(job, path, lines):
    """The number of each line's passage (Arrow, int32), the collection's first; null if the line is dropped. Writes
    passages.parquet if unknown passages are kept."""
    names, unknown = lines["passage"].combine_chunks(), job.settings.unknown_passages
    doc_ids = read_column(job, "corpus.parquet", "doc_id")
    ids = pc.index_in(names, value_set=doc_ids)
    if unknown == "keep":
        others = names.filter(ids.is_null()).unique()
        pq.write_table(pa.table({"doc_id": others}), job.output(OWN_PASSAGES))
        after = pc.add(pc.index_in(names, value_set=others), pa.scalar(len(doc_ids), pa.int32()))
        return pc.coalesce(ids, after)
    if ids.null_count and (unknown == "error" or ids.null_count == len(names)):
        line, name = (lines.filter(ids.is_null())[column][0].as_py() for column in ("line", "passage"))
        remedy = "Give a run over this collection, or the collection that the run was made on."
        raise records.wrong_row(path, line, f"passage {name!r} is not in the corpus. {remedy}")
    return ids


def refuse_repeated_pairs(path, lines):
    """Raise Refusal naming the first line that repeats the query and passage of an earlier line."""
    ids = lines["id"].to_numpy()
    pairs = lines["row"].to_numpy() * (int(ids.max()) + 1) + ids
    _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    repeated = np.flatnonzero(first[inverse] != np.arange(len(pairs)))
    if len(repeated):
        before, again = lines.take([first[inverse[repeated[0]]], repeated[0]]).to_pylist()
        twice = f"passage {again['passage']!r} is already listed for this query on line {before['line']}"
        raise records.wrong_row(path, again["line"], f"{twice}. Remove one of the lines.")
