"""Stage `evaluate`: score a run by the judgments and answers of a split; write a TREC run and scores of every query."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from teleport.answers import find_answers
from teleport.arrays import Run, pair_keys
from teleport.evaluation.measures import Judgments, score_run
from teleport.evaluation.names import Documents, read_column, read_doc_ids, read_query_ids
from teleport.reader import MISSING, read_answers
from teleport.running.log import log
from teleport.settings.measures import EvaluateSettings as Settings  # noqa: F401
from teleport.settings.measures import coverage_cutoffs, measure_cutoffs

BLOCK_QUERIES = 1000
SEARCHES = ("retrieve", "bm25")  # kinds of runs that evaluation.depth cuts


def run(job):
    """Write SPLIT.run.gz and per_query.parquet (query_id, measure, value float64).

    Measures of judgments are over the judged queries of the split, answer coverage (`Cov@k`) is over its questions with
    answers. A query without results scores 0. With settings.collapse ("maxp" or "firstp") the run, its measures of
    judgments and the judgments are of documents (see `Documents`).

    No run can retrieve a relevant passage that is not in the corpus (collection.drop). As in trec_eval, which has only
    the judgments, it stays in the denominator of recall, AP and nDCG. With settings.ignore_own_text a query's own text
    (`without_own_text`) is first removed from its list.

    Facts: means {measure: mean}; num_queries of measures of judgments, or of coverage if there is nothing else;
    num_questions of coverage.
    """
    split, names = job.settings.split, job.settings.measures
    query_ids = read_query_ids(job, split)
    retrieved, passage_ids, cutoffs = Run.read(job, "run"), read_doc_ids(job, "run"), coverage_cutoffs(names)
    doc_ids, judgments, (scored,), (of_passages,) = as_scored(job, passage_ids, [retrieved])
    by_judgments = [name for name in names if name not in cutoffs]
    judged, values = score_run(scored.ids, scored.rows, judgments, by_judgments)
    cut = job.inputs["run"].manifest["kind"] in SEARCHES and retrieved.ids.shape[1] < len(passage_ids)
    if job.settings.collapse and cut:
        warn_of_few_documents(retrieved, scored, judged, by_judgments)
    queries, facts = dict.fromkeys(values, judged), {}
    if cutoffs:  # answers are searched in passages, even if documents are judged
        covered, answered = score_coverage(job, split, of_passages.ids, of_passages.rows, cutoffs)
        values, queries = values | covered, queries | dict.fromkeys(covered, answered)
        facts["num_questions"] = len(answered)
    write_run(job, query_ids, doc_ids, scored)
    table = {
        "query_id": pa.concat_arrays([query_ids.take(pa.array(queries[name])) for name in names]),
        "measure": np.repeat(names, [len(queries[name]) for name in names]),
        "value": np.concatenate([values[name] for name in names]),
    }
    pq.write_table(pa.table(table), job.output("per_query.parquet"))
    num_queries = len(next(iter(queries.values())))
    return facts | {"means": {name: float(values[name].mean()) for name in names}, "num_queries": num_queries}


def warn_of_few_documents(retrieved, scored, judged, names):
    """Warn of lists that have fewer documents than a measure counts only because the search returned no more passages.
    retrieved, scored: the `Run` of passages and that of documents; judged: query rows; names: of measures"""
    cutoffs = measure_cutoffs(names)
    name = max(cutoffs, key=cutoffs.get, default=None)
    full_Q = (retrieved.ids[:, -1] >= 0) & np.isin(retrieved.rows, judged)
    few_Q = full_Q & (np.count_nonzero(scored.ids >= 0, axis=1) < cutoffs.get(name, 0))
    if few_Q.any():
        log.warning(
            "%d of %d queries have fewer than %d documents among their %d passages, so %s may be too low. Raise "
            "evaluation.depth, which counts passages",
            few_Q.sum(), len(judged), cutoffs[name], retrieved.ids.shape[1], name,
        )  # fmt: skip


def as_scored(job, doc_ids, runs):
    """What job.settings score: (ids, `Judgments`, runs) of passages, or with settings.collapse of documents; and the
    runs of passages. With settings.ignore_own_text no run has a query's own text.

    doc_ids: ids of passages (Arrow strings), by the numbers in `runs`
    """
    settings, judgments, documents = job.settings, read_judgments(job, job.settings.split), None
    if settings.collapse:
        lacking = read_missing(job, settings.split)["doc_id"].combine_chunks()
        documents = Documents(pa.concat_arrays([doc_ids, lacking[::-1]]), settings.separator)
    if settings.ignore_own_text:
        query_ids = read_query_ids(job, settings.split)
        own_keys = own_texts(read_same_texts(job, settings.split), query_ids, doc_ids, documents)
        runs = [without_own_text(run, own_keys) for run in runs]
    if not documents:
        return doc_ids, judgments, runs, runs
    collapsed = [Run(*documents.collapse(run.ids, run.scores, settings.collapse), run.rows) for run in runs]
    return documents.names, documents.judge(judgments), collapsed, runs


def read_judgments(job, split):
    """The `Judgments` of a split; passages that are not in the corpus are numbered -1, -2, …"""
    table = pq.read_table(job.input(f"split.{split}", f"qrels.{split}.parquet"), columns=["query", "passage", "grade"])
    judgments, missing = [column.to_numpy() for column in table.columns], read_missing(job, split)
    lacking = missing["query"].to_numpy(), -1 - np.arange(len(missing), dtype=np.int32), missing["grade"].to_numpy()
    return Judgments(*map(np.concatenate, zip(judgments, lacking, strict=True)))


def read_missing(job, split):
    """The judgments of a split whose passages are not in the corpus: a table of query (its row), doc_id and grade."""
    role, file = f"split.{split}", f"missing.{split}.parquet"
    if file in job.inputs[role].manifest["files"]:
        return pq.read_table(job.input(role, file))
    return MISSING.empty_table()


def without_own_text(retrieved, own_keys):
    """A `Run` without each query's own text: the passage with its id (BEIR's ignore_identical_ids), and passages with
    its text (`collection.equal`). Later passages move up, and empty slots come last. own_keys: of `own_texts`"""
    ids_QK, scores_QK, rows = retrieved
    own_QK = (ids_QK >= 0) & np.isin(pair_keys(rows[:, None], ids_QK), own_keys)
    order_QK = np.argsort(own_QK, axis=1, kind="stable")
    emptied = ((ids_QK, -1), (scores_QK, 0))
    moved = (np.take_along_axis(np.where(own_QK, empty, values), order_QK, 1) for values, empty in emptied)
    return Run(*moved, rows)


def read_same_texts(job, split):
    """The passages with the text of a query of a split: a table of query and passage rows."""
    return pq.read_table(job.input(f"split.{split}", f"same_text.{split}.parquet"))


def own_texts(same, query_ids, doc_ids, documents=None):
    """The pairs of a query of a split and a passage that is its own text (`pair_keys`). same: as `read_same_texts`
    gives them; documents: `Documents` of the passages, if ids of queries name these"""
    by_id = pc.index_in(query_ids, value_set=documents.names if documents else doc_ids)
    named, same_id = np.flatnonzero(by_id.is_valid()), by_id.drop_null().to_numpy()
    if documents:
        order = np.argsort(documents.document_P, kind="stable")  # the passages of each document together
        starts, ends = (np.searchsorted(documents.document_P[order], same_id, side) for side in ("left", "right"))
        parts = [order[start:end] for start, end in zip(starts, ends, strict=True)]
        same_id = np.concatenate([np.zeros(0, np.int64), *parts])
        named = np.repeat(named, ends - starts)
    queries, passages = (np.concatenate(of) for of in ((same["query"], named), (same["passage"], same_id)))
    return pair_keys(queries, passages)


def own_keys(job, split):
    """The `own_texts` of the queries of a split among the passages of a job's corpus."""
    doc_ids = read_column(job, "corpus.parquet", "doc_id")
    return own_texts(read_same_texts(job, split), read_query_ids(job, split), doc_ids)


def own_pairs(job, split, rows, passages):
    """Whether each pair of a query of a split and a passage is a query with its own text (bool). rows, passages: int,
    of shapes that broadcast"""
    return np.isin(pair_keys(rows, passages), own_keys(job, split))


def score_coverage(job, split, ids_QK, rows, cutoffs):
    """Answer coverage of a run: ({name: float64 [A] of 0 and 1}, query rows int64 [A]) for the A questions of the split
    with answers, judged or not. DPR calls it top-k accuracy, ANCE-Tele R@k. ids_QK, rows: of a `Run`; cutoffs:
    {name: k}. A question that is not in the run scores 0."""
    answers_Q = read_answers(job.inputs[f"split.{split}"], split)
    ids_QK = ids_QK[:, : max(cutoffs.values())]
    hit_QK = find_answers(job.input("corpus", "corpus.parquet"), ids_QK, [answers_Q[row] for row in rows])
    answered, covered_Q = np.flatnonzero([bool(answers) for answers in answers_Q]), np.zeros(len(answers_Q))
    covered = {}
    for name, k in cutoffs.items():
        covered_Q[rows] = hit_QK[:, :k].any(axis=1)
        covered[name] = covered_Q[answered]
    return covered, answered


def write_run(job, query_ids, doc_ids, retrieved):
    """Write a `Run` in TREC's six columns, always the same bytes; its tag names the stage that made it. Scores are the
    retrieval's, so that ties stay visible. The order of a query's lines is the ranking."""
    source, path = job.inputs["run"].manifest, job.output(f"{job.settings.split}.run.gz")
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 1, file, mtime=0) as zipped:
        for first in range(0, len(retrieved.rows), BLOCK_QUERIES):
            ids_QK, scores_QK, rows = (array[first : first + BLOCK_QUERIES] for array in retrieved)
            filled_QK = ids_QK >= 0
            lines, slots = np.nonzero(filled_QK)
            text = pc.binary_join_element_wise(
                query_ids.take(pa.array(rows[lines])),
                "Q0",
                doc_ids.take(pa.array(ids_QK[lines, slots])),
                pa.array(np.cumsum(filled_QK, axis=1)[lines, slots]).cast(pa.string()),
                pa.array(scores_QK[lines, slots]).cast(pa.string()),
                f"{source['kind']}-{source['key']}\n",
                " ",
            )
            if len(text):  # without lines the buffer has bytes that are no text
                zipped.write(text.buffers()[2])  # all lines, end to end
