"""Scores of a run, by ir-measures' names: `RR@10`, `nDCG@10`, `R@1000`, `R(rel=2)@100`, `AP`, ...

ir-measures computes them, with two corrections. Scores are replaced by -rank: the libraries behind ir-measures break
ties differently (RR@10 by ascending, nDCG@10 by descending document id), so with tied scores the columns of one table
would come from different rankings. And each measure is computed in a separate call: in a shared call, a measure may use
the lowest relevant grade of another one. `Hole@k` and `Errors@k` are not in ir-measures, so they are computed here.

Q is the number of judged queries. `ranked` holds the passages of each, best first, and `judged` its (passages, grades).
"""

from typing import NamedTuple

import ir_measures
import numpy as np

from teleport.settings.measures import Own, parse_measures

BLOCK_QUERIES = 500  # queries with results in dictionaries at a time: 0.1 GB with 1,000 results each


class Judgments(NamedTuple):
    """Judgments in any order, each (query, passage) once: rows of queries, of passages, and grades; all int [J]."""

    queries: np.ndarray
    passages: np.ndarray
    grades: np.ndarray


def score_run(ids_QK, rows, judgments, names):
    """Scores of every judged query: (their rows, ascending, {name: float64, one value each}). ids_QK, rows: of a `Run`.
    A judged query that is not in the run, or with an empty list, scores 0; queries without judgments are left out."""
    order = np.argsort(judgments.queries, kind="stable")
    queries, starts = np.unique(judgments.queries[order], return_index=True)
    columns = (np.split(column[order], starts[1:]) for column in (judgments.passages, judgments.grades))
    judged, nothing = list(zip(*columns, strict=True)), np.zeros(0, np.int32)
    lists = (ids_QK[line] if line >= 0 else nothing for line in lines_of(rows, queries))
    ranked = [ids[ids >= 0] for ids in lists]
    scores = {}
    for name, measure in zip(names, parse_measures(names), strict=True):
        if isinstance(measure, Own):
            scores[name] = OWN[measure.NAME](ranked, judged, measure.params["cutoff"])
        else:
            scores[name] = score_by_ir_measures(ranked, judged, measure)
    return queries, scores


def lines_of(rows, queries):
    """The line of each of `queries` in a `Run` with these `rows`, -1 if it has none (int64)."""
    line_of = np.full(max(queries.max(initial=-1), rows.max(initial=-1)) + 1, -1)
    line_of[rows] = np.arange(len(rows))
    return line_of[queries]


def score_by_ir_measures(ranked, judged, measure):
    """The scores by one measure of ir-measures, float64 [Q]."""
    scores_Q = np.zeros(len(ranked))
    # Results after the cut-off take most of the time and change nothing, unless the measure skips unjudged ones.
    cutoff = None if "judged_only" in measure.params else measure.params.get("cutoff")
    for first in range(0, len(ranked), BLOCK_QUERIES):
        run, grades = {}, {}
        for query in range(first, min(first + BLOCK_QUERIES, len(ranked))):
            passages, values = judged[query]
            # Grades are raised to -1, or to 0 if all of a query are lower: else pytrec_eval may end the process, or
            # compute nDCG for ever.
            values = np.maximum(values, 0 if values.max() < 0 else -1)
            grades[str(query)] = dict(zip(map(str, passages.tolist()), values.tolist(), strict=True))
            if ids := ranked[query][:cutoff].tolist():  # no empty list: `Judged` divides by the number of results
                run[str(query)] = dict(zip(map(str, ids), range(0, -len(ids), -1), strict=True))
        for metric in ir_measures.iter_calc([measure], grades, run):
            scores_Q[int(metric.query_id)] = metric.value
    return scores_Q


def hole_rate(ranked, judged, cutoff):
    """Unjudged results among the first `cutoff`, divided by the mean number of first results (ANCE, Table 6: Hole@10).
    So the mean over queries is the share of unjudged results pooled over queries, as in ANCE's notebook. float64 [Q]"""
    first = [ids[:cutoff] for ids in ranked]
    holes_Q = [np.count_nonzero(~np.isin(ids, passages)) for ids, (passages, _) in zip(first, judged, strict=True)]
    results = sum(map(len, first)) / max(len(first), 1)
    return np.array(holes_Q, np.float64) / (results or 1)


def top_errors(ranked, judged, cutoff):
    """Top-K pairwise errors (STAR and ADORE, Table 1): the irrelevant passages above each positive (grade 1 or more),
    counted up to K. A positive that was not retrieved counts K. This is exact if the run is as long as K plus the other
    positives, or as the corpus. float64 [Q]"""
    errors_Q = np.zeros(len(ranked))
    for query, (ids, (passages, grades)) in enumerate(zip(ranked, judged, strict=True)):
        positives = passages[grades >= 1]
        places = np.flatnonzero(np.isin(ids, positives))  # ranks of the retrieved positives, from 0
        above = places - np.arange(len(places))  # without the positives above
        errors_Q[query] = np.minimum(above, cutoff).sum() + cutoff * (len(positives) - len(places))
    return errors_Q


OWN = {"Hole": hole_rate, "Errors": top_errors}


def first_hit_reciprocals(hit_QK):
    """1 / rank of the first hit in each ranked list, 0 without one: float64 [Q]. hit_QK: bool, whether each result is
    relevant"""
    return np.where(hit_QK.any(axis=1), 1 / (hit_QK.argmax(axis=1) + 1), 0.0)
