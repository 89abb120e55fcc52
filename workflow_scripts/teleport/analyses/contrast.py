"""Stage `contrast`: compare two runs of a split: the overlap of their first 100 passages (ANCE, Table 6; fewer if the
search is less deep), the queries won, lost and tied (A.4), and the first rank at which the lists differ (Tables 8 and
9). No code was released for it."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from teleport.arrays import Run
from teleport.evaluation.evaluate import as_scored
from teleport.evaluation.measures import lines_of, score_run
from teleport.evaluation.names import joint_numbers, read_query_ids
from teleport.settings.measures import ContrastSettings as Settings  # noqa: F401
from teleport.settings.measures import better

SAME = 1e-9  # scores of a query that differ by less are a tie: 1/3 is not 1 - 2/3 in binary numbers


def run(job):
    """Compare two runs query by query, over the judged queries of the split.

    Writes contrast.parquet, a line per query: query_id, overlap, value, reference_value; rank, the first at which the
    lists differ (0: none); doc_id and grade of the run at that rank, reference_doc_id and reference_grade of the
    reference (null: no passage, no judgment).

    Facts: overlap (mean over queries of |first `depth` of both| / depth), wins, losses and ties of the run by
    settings.measure, num_queries, depth, measure.
    """
    settings, split = job.settings, job.settings.split
    doc_ids, numbers = joint_numbers(job, "run", "reference")
    ours, theirs = Run.read(job, "run"), Run.read(job, "reference")
    theirs = theirs._replace(ids=np.where(theirs.ids >= 0, numbers[theirs.ids], -1))
    doc_ids, judgments, (ours, theirs), _ = as_scored(job, doc_ids, [ours, theirs])
    scored = [score_run(run.ids, run.rows, judgments, [settings.measure]) for run in (ours, theirs)]
    judged, values = scored[0][0], [scores[settings.measure] for _, scores in scored]
    lists = [lists_of(run, judged) for run in (ours, theirs)]
    first = ([ids[: settings.depth][ids[: settings.depth] >= 0] for ids in pair] for pair in zip(*lists, strict=True))
    overlaps = np.array([len(np.intersect1d(*pair)) for pair in first]) / settings.depth
    query_ids = read_query_ids(job, split).take(pa.array(judged))
    table = {"query_id": query_ids, "overlap": overlaps, "value": values[0], "reference_value": values[1]}
    pq.write_table(pa.table(table | parting(lists, judged, judgments, doc_ids)), job.output("contrast.parquet"))
    gains = (better(settings.measure) or 1) * (values[0] - values[1])
    won, lost = (int(np.count_nonzero(sign * gains > SAME)) for sign in (1, -1))
    facts = {"wins": won, "losses": lost, "ties": len(judged) - won - lost, "num_queries": len(judged)}
    return facts | {"overlap": float(overlaps.mean()), "depth": settings.depth, "measure": settings.measure}


def lists_of(retrieved, rows):
    """The passages int [Q, K] of a `Run` for the query rows `rows`; all -1 for a query without a line."""
    lines = lines_of(retrieved.rows, rows)
    return np.where(lines[:, None] >= 0, retrieved.ids[lines], -1)


def parting(lists, judged, judgments, doc_ids):
    """{column: values}: the first rank at which the two lists differ, and the two passages there (see `run`)."""
    depth = max(ids_QK.shape[1] for ids_QK in lists)
    lists = [np.pad(ids_QK, ((0, 0), (0, depth - ids_QK.shape[1])), constant_values=-1) for ids_QK in lists]
    differ = lists[0] != lists[1]
    columns = {"rank": np.where(differ.any(axis=1), differ.argmax(axis=1) + 1, 0)}
    grades = {(query, passage): grade for query, passage, grade in zip(*map(np.ndarray.tolist, judgments), strict=True)}
    for prefix, ids_QK in zip(("", "reference_"), lists, strict=True):
        ids = np.where(differ.any(axis=1), ids_QK[np.arange(len(ids_QK)), differ.argmax(axis=1)], -1)
        columns[f"{prefix}doc_id"] = doc_ids.take(pa.array(ids, mask=ids < 0))
        pairs = zip(judged.tolist(), ids.tolist(), strict=True)
        columns[f"{prefix}grade"] = pa.array([grades.get(pair) if pair[1] >= 0 else None for pair in pairs], pa.int32())
    return columns
