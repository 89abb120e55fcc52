"""Scores of a run, by ir-measures' names: `RR@10`, `nDCG@10`, `R@1000`, `R(rel=2)@100`, `AP`, ...

The usual measures are computed in `judged.py`, from arrays; the others that ir-measures knows, by ir-measures. There
scores are replaced by -rank: the libraries behind ir-measures break ties differently (RR@10 by ascending, nDCG@10 by
descending document id), so tied scores would have the columns of one table computed from different rankings.
"""

import ir_measures
import numpy as np

from teleport.evaluation.judged import MEASURES, rank_judged
from teleport.settings.measures import parse_measures


def score_run(ids_QK, rows, judgments, names):
    """Scores of every judged query: (their rows, ascending, {name: float64, one value each}). ids_QK, rows: of a `Run`.
    A judged query that is not in the run, or with an empty list, scores 0; queries without judgments are left out."""
    measures, judged = dict(zip(names, parse_measures(names), strict=True)), rank_judged(ids_QK, rows, judgments)
    others = [measure for measure in measures.values() if not in_arrays(measure)]
    scores = score_by_ir_measures(ids_QK, rows, judgments, others) if others else {}
    return judged.queries, {
        name: MEASURES[measure.NAME](judged, **measure.params) if in_arrays(measure) else scores[measure]
        for name, measure in measures.items()
    }


def in_arrays(measure):
    """Whether `judged.py` has a measure (see `parse_measures`), with its parameters."""
    return measure.NAME in MEASURES and set(measure.params) <= {"cutoff", "rel"}


def score_by_ir_measures(ids_QK, rows, judgments, measures):
    """{measure: float64 [judged queries]} by ir-measures, several hundred times slower."""
    grades = {}
    for query, passage, grade in zip(*(column.tolist() for column in judgments), strict=True):
        grades.setdefault(str(query), {})[str(passage)] = max(grade, -1)  # pytrec_eval crashes where all are lower
    ranked = {
        str(row): {str(passage): -rank for rank, passage in enumerate(ids[ids >= 0].tolist())}
        for row, ids in zip(rows.tolist(), ids_QK, strict=True)
    }
    queries = sorted(grades, key=int)
    scores = {measure: dict.fromkeys(queries, 0.0) for measure in measures}
    for measure in measures:  # one at a time: in one call, a measure may be computed under the grade of another
        for metric in ir_measures.iter_calc([measure], grades, ranked):
            scores[measure][metric.query_id] = float(metric.value)
    return {measure: np.array([values[query] for query in queries]) for measure, values in scores.items()}
