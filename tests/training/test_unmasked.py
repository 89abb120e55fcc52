"""Known positives among the passages of a batch: counted and warned of, if no mask leaves them out."""

import logging
from functools import partial
from types import SimpleNamespace

import pytest

from teleport.seed import derive_seed
from teleport.training import train, unmasked
from teleport.training.data import read_training_set
from training_world import World

FACTS = ("known_positives_in_batch", "queries_with_known_positives_in_batch", "counted_batches")
GUIDE = {"kind": "guide", "scores": "miner", "margin": 0.0}


def known_to(query, grade):
    """The known positives of a query (set), by what `training_world.make_collection` judges."""
    return {query} | ({query + 20} if query % 2 == 0 else set()) | ({59} if grade == 1 else set())


def brute_force(job, steps):
    """The values of FACTS, pair by pair."""
    training, numbers = job.settings.training, []
    data = read_training_set(job, derive_seed(job.settings.seed, "train", 1))
    for step in steps:
        batch = data.batch(step)
        size = len(batch.passages_P) // training.accumulate  # of a micro-batch
        for query, own in zip(batch.queries_Q, batch.positive_columns_Q, strict=True):
            left_out = [own]
            if training.positive == "all":
                left_out = batch.positive_columns_Q[batch.queries_Q == query]
            columns = [at for at in range(len(batch.passages_P)) if at // size == own // size and at not in left_out]
            known = known_to(query, job.settings.relevant_grade)
            numbers.append((query, sum(batch.passages_P[at] in known for at in columns)))
    some, queries = {query for query, number in numbers if number}, {query for query, _ in numbers}
    return sum(number for _, number in numbers) / len(numbers), len(some) / len(queries), len(steps)


@pytest.mark.parametrize(
    ("training", "grade"),
    [
        ({}, 1),
        ({}, 2),
        ({"accumulate": 2}, 2),
        ({"positive": "all"}, 2),
        ({"loss": "hardest", "masks": [GUIDE]}, 1),
        ({"loss": ["nll", "softmax"]}, 2),
    ],
)
def test_known_positives_in_a_batch_are_counted_and_warned_of(stages, caplog, training, grade):
    world = World(stages, first_negative=0)  # pools have positives of others, and the query's own
    job = world.job({"batch_queries": 8, "steps": 4} | training, inputs=world.taught(), relevant_grade=grade)
    facts = train.run(job)
    expected = brute_force(job, range(4))
    assert tuple(facts[name] for name in FACTS) == pytest.approx(expected) and expected[1] > unmasked.WARNED
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert f"{100 * expected[1]:.1f} %" in warning and f"{expected[0]:.2f} a query" in warning
    assert "known_positives" in warning and "training.masks" in warning


@pytest.mark.parametrize(
    "training", [{"masks": ["known_positives"]}, {"loss": "nll"}, {"loss": {"kind": "distill", "scores": "miner"}}]
)
def test_nothing_is_counted_if_a_mask_leaves_them_out_or_none_is_a_negative(stages, caplog, training):
    world = World(stages, first_negative=0)
    facts = train.run(world.job({"batch_queries": 8, "steps": 1} | training, inputs=world.taught()))
    assert not set(FACTS) & facts.keys() and "known positives" not in caplog.text


def test_few_are_not_warned_of(stages, caplog):
    """The pools have nobody's positives, and the queries of a batch no common one."""
    facts = train.run(World(stages).job({"batch_queries": 8, "steps": 1}, relevant_grade=2))
    assert [facts[name] for name in FACTS] == [0, 0, 1] and "known positives" not in caplog.text


def test_batches_are_those_that_the_training_begins_with_and_fewer_if_they_are_large(stages, monkeypatch):
    """With several collections, each batch is judged by those of its own."""
    real, taken = read_training_set(World(stages).job({"batch_queries": 8}), 1), []

    def known(number, row):
        taken.append((number, row))
        return real.known_positives(row)

    data = [
        SimpleNamespace(training=real.training, batch=real.batch, known_positives=partial(known, number))
        for number in range(2)
    ]
    trainer = SimpleNamespace(
        training=real.training, turn=lambda step: (step % 2, step // 2), data_of=lambda step: data[step % 2]
    )
    assert unmasked.count(trainer, 5, 8)["counted_batches"] == 3
    assert taken == [(step % 2, row) for step in (5, 6, 7) for row in real.batch(step // 2).queries_Q]
    for most, batches in ((20, 2), (4, 1)):
        monkeypatch.setattr(unmasked, "QUERIES", most)
        assert unmasked.count(trainer, 0, 10**6)["counted_batches"] == batches
