"""Stage `scores_file`: read scores or verdicts of pairs that were made elsewhere, such as by a language model.

The file has a line for each pair: query id, passage id, score between tabs, or JSON lines with the keys query_id,
passage_id, score. A verdict is a score too: true is 1, false is 0.
"""

from itertools import compress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from teleport.evaluation.names import read_column, read_query_ids
from teleport.negatives.scores import LARGEST, write_table
from teleport.records import float_of, json_rows, tab_rows, wrong_row
from teleport.refusal import Refusal
from teleport.running.files import require_planned
from teleport.running.log import log
from teleport.settings.teachers import ScoresFileSettings as Settings  # noqa: F401


def run(job):
    """Write a `scores.PairTable` of the training queries. Facts: pairs, queries (that have some), other_queries (lines
    of queries that are not trained on)."""
    path = job.settings.path
    require_planned({path: job.settings.sha256})
    lines = [(line, *pair, number_of(score, path, line)) for line, *pair, score in pairs_of(path)]
    if not lines:
        raise Refusal(f"{path} has no line. Give a line for each pair: query id, passage id, score.")
    query_ids = read_query_ids(job, "train")
    trained = pc.is_in(pa.array([query for _, query, *_ in lines], pa.string()), value_set=query_ids).to_pylist()
    others = len(lines) - sum(trained)
    if others == len(lines):
        raise Refusal(f"{path}: none of its {others} lines has a training query. Give ids of the split train.")
    if others:
        line, query, *_ = lines[trained.index(False)]
        ids = f"{others} of {len(lines)} lines have no training query and are left out, first {query!r} on line {line}"
        log.warning("%s: %s. Check these ids, unless they are of other splits or of queries not trained on", path, ids)
    numbers, queries, passages, scores = zip(*compress(lines, trained), strict=True)
    columns = [(queries, query_ids, "query is not in the training split")]
    columns += [(passages, read_column(job, "corpus.parquet", "doc_id"), "passage is not in the corpus")]
    indices = []
    for names, known, problem in columns:
        rows = pc.index_in(pa.array(names, pa.string()), value_set=known)
        if rows.null_count:
            first = int(rows.is_null().to_numpy(zero_copy_only=False).argmax())
            pair = f"query {queries[first]!r} with passage {passages[first]!r}"
            raise wrong_row(path, numbers[first], f"{pair}: the {problem}. Correct or remove the line.")
        indices.append(rows.to_numpy())
    (rows, passages), scores, names = indices, np.array(scores, np.float32), passages
    order = np.lexsort((passages, rows))
    same = np.flatnonzero((np.diff(rows[order]) == 0) & (np.diff(passages[order]) == 0))
    if len(same):
        before, again = sorted(order[same[0] : same[0] + 2])
        pair = f"query {queries[again]!r} with passage {names[again]!r}"
        raise wrong_row(path, numbers[again], f"{pair} is on line {numbers[before]} already. Remove one of the lines.")
    write_table(job, rows[order], passages[order], scores[order], len(query_ids))
    return {"pairs": len(rows), "queries": len(np.unique(rows)), "other_queries": others}


def pairs_of(path):
    """(line number, query id, passage id, score) of each line, as written."""
    if path.removesuffix(".gz").endswith((".jsonl", ".json")):
        return json_rows(path, {"query_id": str, "passage_id": str, "score": object}, {"score": None})
    return tab_rows(path, (3,), "query id, passage id, score")


def number_of(score, path, line):
    """The float of a score as written. Raises Refusal if it is not a finite number."""
    value = float_of(score)
    if not abs(value) <= LARGEST:  # NaN is not
        raise wrong_row(path, line, f"the score {score!r} is not a finite number. Correct the line.")
    return value
