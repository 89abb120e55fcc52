"""Scores of a run, by ir-measures' names: `RR@10`, `nDCG@10`, `R@1000`, `R(rel=2)@100`, `AP`, ...

The usual measures are computed in `judged.py`, from arrays; the others that ir-measures knows, by ir-measures. There
scores are replaced by -rank: the libraries behind ir-measures break ties differently (RR@10 by ascending, nDCG@10 by
descending document id), so tied scores would have the columns of one table computed from different rankings.
"""

import ir_measures
import numpy as np

from teleport.evaluation.judged import FAR, MEASURES, OWN_MEASURES, rank_judged
from teleport.settings.measures import Own, parse_measures


def score_run(ids_QK, rows, judgments, names):
    """Scores of every judged query: (their rows, ascending, {name: float64, one value each}). ids_QK, rows: of a `Run`.
    A judged query that is not in the run, or with an empty list, scores 0; queries without judgments are left out."""
    measures, judged = parse_measures(names), rank_judged(ids_QK, rows, judgments)
    others = [measure for measure in measures if not isinstance(measure, Own) and not in_arrays(measure)]
    scores = score_by_ir_measures(ids_QK, rows, judgments, others) if others else {}
    for measure in measures:
        if isinstance(measure, Own):
            scores[measure] = OWN_MEASURES[measure.name](judged, measure.cutoff)
        elif measure not in scores:
            function, parameters = MEASURES[measure.NAME], measure.params
            scores[measure] = function(judged, parameters.get("cutoff", FAR), parameters.get("rel", 1))
    return judged.queries, {name: scores[measure] for name, measure in zip(names, measures, strict=True)}


def in_arrays(measure):
    """Whether `judged.py` has an ir-measures object, with its parameters."""
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
