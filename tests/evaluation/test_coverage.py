"""Answer coverage as a measure of the stage `evaluate`, counted by hand."""

import pyarrow.parquet as pq
import pytest

from collection_world import make_collection, make_run
from teleport.evaluation import evaluate
from teleport.running.artefact import Artefact
from teleport.settings.measures import coverage_cutoffs

TEXTS = ["in Paris", "in Rome", "Paris, France", "nowhere", "in ROME"]


def make_inputs(stages, ids, rows, qrels, answers):
    """Questions qa, qb, qc, qd over TEXTS, and a run; `answers` {query id: answers}, or None for no file."""
    passages = [(doc_id, "Rome Paris", text) for doc_id, text in zip("vwxyz", TEXTS, strict=True)]
    queries = [(query_id, "text") for query_id in ("qa", "qb", "qc", "qd")]
    answers = None if answers is None else {"test": answers}
    collection = make_collection(stages, passages, {"test": queries}, {"test": qrels}, answers)
    return {"collection": collection, "run": make_run(stages, ids, rows=rows)}


ANSWERS = {"qa": ["Rome", "Roma"], "qc": ["France"], "qd": ["Paris"]}
IDS = [[0, 3, 4], [0, 1, 2], [2, 1, 3]]
ROWS = [0, 1, 2]  # qd is not in the run


def evaluate_run(stages, measures, ids=IDS, rows=ROWS, qrels=((0, 4, 1), (1, 2, 1)), answers=ANSWERS):
    inputs = make_inputs(stages, ids, rows, qrels, answers)
    job = stages.run(evaluate.run, "evaluate", {"split": "test", "measures": measures}, inputs)
    return Artefact(job.folder).facts, pq.read_table(job.folder / "per_query.parquet").to_pydict()


def test_names():
    assert coverage_cutoffs(["RR@10", "Cov@5", "Cov@100"]) == {"Cov@5": 5, "Cov@100": 100}
    assert coverage_cutoffs(["Cov", "Cov@", "Cov@0", "cov@5", "Cov@5x", "Cov@-1", "Cov(x=1)@5", "R@5"]) == {}


def test_coverage_beside_measures_of_judgments(stages):
    facts, scores = evaluate_run(stages, ["Cov@1", "RR@10", "Cov@2", "Cov@3"])
    # qa finds Rome at rank 3, qc France at rank 1, qd is not in the run, qb has no answers but a judgment.
    assert scores == {
        "query_id": ["qa", "qc", "qd", "qa", "qb", "qa", "qc", "qd", "qa", "qc", "qd"],
        "measure": ["Cov@1"] * 3 + ["RR@10"] * 2 + ["Cov@2"] * 3 + ["Cov@3"] * 3,
        "value": pytest.approx([0, 1, 0, 1 / 3, 1 / 3, 0, 1, 0, 1, 1, 0]),
    }
    means = {"Cov@1": 1 / 3, "RR@10": 1 / 3, "Cov@2": 1 / 3, "Cov@3": 2 / 3}
    assert facts == {"means": pytest.approx(means), "num_queries": 2, "num_questions": 3}


def test_a_split_without_judgments(stages):
    facts, scores = evaluate_run(stages, ["Cov@100"], qrels=())
    assert scores["value"] == [1, 1, 0]
    assert facts == {"means": {"Cov@100": pytest.approx(2 / 3)}, "num_queries": 3, "num_questions": 3}


def test_lines_in_any_order_and_empty_slots(stages):
    shuffled = evaluate_run(stages, ["Cov@1", "Cov@3"], [IDS[2], [-1, -1, -1], IDS[0]], [2, 3, 0])
    assert shuffled[1]["value"] == [0, 1, 0, 1, 1, 0]


def test_without_answers_there_is_no_coverage(stages):
    with pytest.raises(ValueError, match=r"'test' .*answers.test.jsonl"):
        evaluate_run(stages, ["Cov@5"], answers=None)
