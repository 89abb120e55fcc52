"""Grades of judgments in the place of a teacher's scores: what a loss sees of them, and what is refused."""

import math

import numpy as np
import pytest

import collection_world
from teleport.refusal import Refusal
from teleport.settings.registry import LOSSES, own_settings
from teleport.training import train
from teleport.training.objective import grades_of, read_grades
from training_world import NUM_PASSAGES, NUM_QUERIES, World, backward, make_trainer


def judged(stages, grades):
    """The inputs of a job with other judgments. grades: {(query, passage): grade}"""
    lists = [(*pair, grade) for pair, grade in grades.items()]
    splits = {"train": [(f"query-{i:02d}", "") for i in range(NUM_QUERIES)]}
    made = collection_world.make_collection(stages, NUM_PASSAGES, splits, {"train": lists}, positive_grade=2)
    return {"collection": made}


def test_grades_are_shares_of_the_highest_and_0_without_a_judgment(stages):
    grades = {(2, 9): 1, (0, 7): 4, (0, 3): 2, (2, 5): -2, (1, 1): 0}
    table = read_grades(World(stages).job(inputs=judged(stages, grades)), NUM_QUERIES)
    rows, passages = np.array([[0, 7], [0, 3], [0, 9], [1, 1], [2, 5], [2, 9], [3, 7], [19, 0]]).T
    found = grades_of(table, rows, passages)
    assert found.dtype == np.float32 and found.tolist() == [1, 0.5, 0, 0, 0, 0.25, 0, 0]


@pytest.mark.parametrize("grade", [0, 1, 2])
def test_judgments_of_one_grade_are_refused(stages, grade):
    job = World(stages).job(inputs=judged(stages, {(0, 7): grade, (1, 3): grade}))
    with pytest.raises(Refusal, match="training.loss learns .*`scores: judgments`.* all 2 judgments"):
        read_grades(job, NUM_QUERIES)


def test_a_training_by_judgments_of_one_grade_is_refused(stages):
    job = World(stages).job({"loss": by_judgments("listmle")}, inputs=judged(stages, {(i, i): 2 for i in range(20)}))
    with pytest.raises(Refusal, match="same one"):
        train.run(job)


def by_judgments(kind, **settings):
    return {"kind": kind} | own_settings(LOSSES[kind].module)().model_dump() | {"scores": "judgments"} | settings


def plain_bixse(scores, grades, columns):
    """Binary cross-entropy of all passages of the batch, each with its grade for the query, 0 for those of others."""
    total = 0.0
    for i, row in enumerate(scores):
        for j, score in enumerate(row):
            grade, share = grades[i][j] if j in columns[i] else 0.0, 1 / (1 + math.exp(-score))
            total -= grade * math.log(share) + (1 - grade) * math.log(1 - share)
    return total / len(scores)


def test_a_step_by_judgments_is_a_loop(stages):
    """In float64, over a pool that has judged passages of a lower grade. Every such loss sees the same grades."""
    grades = {(i, i): 2 + i % 2 for i in range(NUM_QUERIES)}
    grades |= {(i, j): (i + j) % 2 for i in range(NUM_QUERIES) for j in range(40, 59) if (i + j) % 3}
    world = World(stages, dropout=0.0)
    job = world.job({"loss": by_judgments("bixse"), "max_grad_norm": 1e9}, inputs=judged(stages, grades))
    made = make_trainer(job, double=True)
    batch = made.data.batch(1)
    queries_QD, passages_PD = (side.detach().numpy() for side in made.encoded(batch)[:2])
    shares = [
        [np.float32(grades.get((q, p), 0) / 3).item() for p in batch.passages_P.tolist()]
        for q in batch.queries_Q.tolist()
    ]
    columns = np.column_stack([batch.positive_columns_Q, batch.own_columns_QN]).tolist()
    own = {shares[i][j] for i, of_query in enumerate(columns) for j in of_query}
    assert len(own) == 4, "positives of two grades, judged negatives, and others"
    expected = plain_bixse((queries_QD @ passages_PD.T).tolist(), shares, columns)
    assert backward(made, batch) == pytest.approx(expected, rel=1e-9)
