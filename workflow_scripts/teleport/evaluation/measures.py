"""Scores of a run by ir-measures, in its vocabulary: `RR@10`, `nDCG@10`, `R@1000`, `R(rel=2)@100`, `AP`, ...

Before anything is measured, scores are replaced by -rank. The libraries behind ir-measures break ties differently
(RR@10 by ascending, nDCG@10 by descending document id), so tied scores would have the columns of one table computed
from different rankings.
"""

import re

import ir_measures
import numpy as np

HOLE = re.compile(r"Hole@([1-9][0-9]*)")


def parse_measures(names):
    """The ir-measures objects called `names` (list of str), in order; for `Hole@k`, which is ours, its cut-off k (int).

    Raises ValueError for a name that ir-measures does not know or cannot compute with what is installed.
    """
    measures = []
    for name in names:
        if hole := HOLE.fullmatch(name):
            measures.append(int(hole[1]))
            continue
        try:
            measure = ir_measures.parse_measure(name)
            supported = ir_measures.DefaultPipeline.supports(measure)
        except (NameError, ValueError, AssertionError, KeyError):
            supported = False
        if not supported:
            raise ValueError(
                f"evaluation.measures has {name!r}, which ir-measures cannot compute here. "
                "Give its names, for example RR@10, nDCG@10, R@1000, R(rel=2)@100 or AP; "
                "answer coverage is Cov@20."
            )
        measures.append(measure)
    return measures


def refuse_repeated_ids(ids_QK):
    """Raise ValueError when a query's list has a passage twice: it would count twice. -1 is an empty slot."""
    sorted_QK = np.sort(ids_QK, axis=1)
    repeated_QK = (sorted_QK[:, 1:] == sorted_QK[:, :-1]) & (sorted_QK[:, 1:] >= 0)
    if repeated_QK.any():
        line, place = np.argwhere(repeated_QK)[0]
        raise ValueError(
            f"line {line} of the run has passage {sorted_QK[line, place]} more than once: "
            "a run lists each passage once per query. Make the run anew."
        )


def score_queries(run, judgments, names):
    """Scores of every judged query: {name: {query: float}}, for each measure in `names`.

    `run` is {query: [passage, ...]} in the order of ranks, `judgments` {query: {passage: grade}}; ids are str.
    A judged query that is not in the run, or with an empty list, scores 0; queries without judgments are left out.
    Raises ValueError for a measure that ir-measures cannot compute.
    """
    measures = parse_measures(names)
    cutoffs = [measure for measure in measures if isinstance(measure, int)]
    known = [measure for measure in measures if not isinstance(measure, int)]
    ranked = {query: {p: -rank for rank, p in enumerate(passages)} for query, passages in run.items()}
    scores = {measure: dict.fromkeys(judgments, 0.0) for measure in known}
    for metric in ir_measures.iter_calc(known, judgments, ranked):
        scores[metric.measure][metric.query_id] = float(metric.value)
    scores |= {cutoff: hole_rates(run, judgments, cutoff) for cutoff in cutoffs}
    return {name: scores[measure] for name, measure in zip(names, measures, strict=True)}


def hole_rates(run, judgments, cutoff):
    """{query: share of its first `cutoff` results that have no judgment} (ANCE, Table 6: Hole@10); 0 without results.

    It is 1 - Judged@k of ir-measures, which divides by zero for an empty list.
    """
    tops = {query: run.get(query, [])[:cutoff] for query in judgments}
    return {q: sum(p not in judgments[q] for p in top) / max(len(top), 1) for q, top in tops.items()}
