"""Stage `evaluate`: a run against the judgments and answers of a split, as a TREC run and as scores of every query."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from teleport.evaluation.collapse import Documents
from teleport.evaluation.coverage import score_coverage
from teleport.evaluation.judged import Judgments, order_within
from teleport.evaluation.measures import refuse_repeated_ids, score_run
from teleport.evaluation.names import read_doc_ids
from teleport.runtime.arrays import Run
from teleport.settings.measures import coverage_cutoffs
from teleport.settings.scoring import EvaluateSettings as Settings  # noqa: F401

BLOCK_QUERIES = 1000


def run(job):
    """Write SPLIT.run.gz and per_query.parquet (query_id, measure, value float64); returns the facts.

    Measures of judgments are over the judged queries of the split, answer coverage (`Cov@k`) is over its questions
    that have answers; one without results counts 0. With settings.collapse ("maxp" or "firstp") the run, its measures
    of judgments and the judgments are of documents (see `Documents`).

    facts: means {measure: mean}; num_queries of the first measure of judgments, or of coverage where it is alone;
    num_questions of coverage. Raises ValueError for an unknown measure and for a passage that a list has twice.
    """
    split, names = job.settings.split, job.settings.measures
    ids_QK, scores_QK, rows = Run.read(job, "run")
    query_ids = read_column(job, f"queries.{split}.parquet", "query_id")
    doc_ids, judgments = read_doc_ids(job, "run"), read_judgments(job, split)
    refuse_repeated_ids(ids_QK, rows, query_ids, doc_ids)
    passages_QK = ids_QK  # answers are looked for in passages, whatever is judged
    if job.settings.collapse:
        documents = Documents(doc_ids, job.settings.separator)
        ids_QK, scores_QK = documents.collapse(ids_QK, scores_QK, job.settings.collapse)
        doc_ids, judgments = documents.names, documents.judge(judgments)
    cutoffs = coverage_cutoffs(names)
    judged, values = score_run(ids_QK, rows, judgments, [name for name in names if name not in cutoffs])
    queries, facts = dict.fromkeys(values, judged), {}
    if cutoffs:
        covered, answered = score_coverage(job.inputs["collection"], split, passages_QK, rows, cutoffs)
        values, queries = values | covered, queries | dict.fromkeys(covered, answered)
        facts["num_questions"] = len(answered)
    write_run(job, query_ids, doc_ids, Run(ids_QK, scores_QK, rows))
    write_scores(job, query_ids, [(name, queries[name], values[name]) for name in names])
    num_queries = len(next(iter(queries.values())))
    return facts | {"means": {name: float(values[name].mean()) for name in names}, "num_queries": num_queries}


def read_column(job, file_name, column):
    """One text column of a Parquet file of the collection, as one Arrow array."""
    return pq.read_table(job.input("collection", file_name), columns=[column])[column].combine_chunks()


def read_judgments(job, split):
    """The `Judgments` of a split."""
    table = pq.read_table(job.input("collection", f"qrels.{split}.parquet"), columns=["query", "passage", "grade"])
    return Judgments(*(column.to_numpy() for column in table.columns))


def write_run(job, query_ids, doc_ids, retrieved):
    """Write a `Run` in TREC's six columns, always the same bytes; its tag names the stage that made it.

    Scores are those of the retrieval, so that a tie in them stays visible; the order of a query's lines is the ranking.
    """
    refuse_spaces("query_id", query_ids)
    refuse_spaces("doc_id", doc_ids)
    source, path = job.inputs["run"].manifest, job.output(f"{job.settings.split}.run.gz")
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 1, file, mtime=0) as zipped:
        for first in range(0, len(retrieved.rows), BLOCK_QUERIES):
            ids_QK, scores_QK, rows = (array[first : first + BLOCK_QUERIES] for array in retrieved)
            lines, slots = np.nonzero(ids_QK >= 0)
            text = pc.binary_join_element_wise(
                query_ids.take(pa.array(rows[lines])),
                "Q0",
                doc_ids.take(pa.array(ids_QK[lines, slots])),
                pa.array(order_within(lines) + 1).cast(pa.string()),
                pa.array(scores_QK[lines, slots]).cast(pa.string()),
                f"{source['kind']}-{source['key']}\n",
                " ",
            )
            zipped.write(text.buffers()[2])  # all lines, end to end


def refuse_spaces(name, texts):
    """Raise ValueError when an id has white space, at which the columns of a TREC run are split."""
    spaced = texts.filter(pc.match_substring_regex(texts, r"\s"))
    if len(spaced):
        raise ValueError(f"{name} {spaced[0].as_py()!r} has white space, which a TREC run cannot hold. Rename the id.")


def write_scores(job, query_ids, scored):
    """Write per_query.parquet, measure by measure; `scored`: (measure, rows of its queries, their values) of each."""
    table = {
        "query_id": pa.concat_arrays([query_ids.take(pa.array(rows)) for _, rows, _ in scored]),
        "measure": np.repeat([name for name, _, _ in scored], [len(rows) for _, rows, _ in scored]),
        "value": np.concatenate([values for _, _, values in scored]),
    }
    pq.write_table(pa.table(table), job.output("per_query.parquet"))
