"""Several positives a row (`positive: all`): the batch, and the equation by a loop, cached and in micro-batches."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from teleport.arrays import Ragged, offsets_of
from teleport.settings.training import Training
from teleport.training import train
from teleport.training.data import TrainingSet, other_positives
from training_world import World, backward, make_trainer

NUMBERS = [3, 1, 2, 4, 1, 2]


def data_of(numbers, **training):
    """A set whose query i has numbers[i] positives 100 * (i + 1), ..., and a pool of five passages 1000 * i, ..."""
    settings = {"batch_queries": 3, "negatives_per_query": 2, "positive": "all", "max_positives": 8, "triples": False}
    settings |= {"distinct_positives": False} | training
    positives = np.concatenate([100 * (i + 1) + np.arange(n) for i, n in enumerate(numbers)])
    pools = np.concatenate([1000 * (i + 10) + np.arange(5) for i in range(len(numbers))])
    positives, pools = Ragged(offsets_of(numbers), positives), Ragged(offsets_of([5] * len(numbers)), pools)
    ids = [f"id{i}" for i in range(len(numbers))]
    return TrainingSet(ids, positives, pools, SimpleNamespace(**settings), seed=42)


def rows_of(batch):
    """[(query, positive, its own negatives)] of the rows of a batch."""
    positives, own = batch.passages_P[batch.positive_columns_Q], batch.passages_P[batch.own_columns_QN]
    return list(zip(batch.queries_Q.tolist(), positives.tolist(), map(tuple, own.tolist()), strict=True))


def test_a_query_has_a_row_for_each_positive_and_its_negatives_once():
    data = data_of(NUMBERS)
    for step in range(2):
        batch = data.batch(step)
        queries = data.order(0)[3 * step : 3 * step + 3].tolist()
        negatives = {query: tuple(data.passages(query, 0)[-2:].tolist()) for query in queries}
        expected = [(query, p, negatives[query]) for query in queries for p in data.positives[query].tolist()]
        assert rows_of(batch) == expected and len(expected) > 3
        assert len(set(batch.passages_P.tolist())) == len(batch.passages_P) == len(expected) + 2 * 3
        masked = other_positives(batch)
        for row, (query, positive, _) in enumerate(expected):
            others = set(data.positives[query].tolist()) - {positive}
            assert set(batch.passages_P[masked[row]].tolist()) == others
        assert masked.any()


def test_parts_of_a_batch_are_whole_queries():
    data = data_of(NUMBERS, batch_queries=6)
    batch = data.batch(0)
    parts = batch.split(3)
    assert sum(map(rows_of, parts), []) == rows_of(batch) and len({len(part.queries_Q) for part in parts}) > 1
    assert np.concatenate([part.passages_P for part in parts]).tolist() == batch.passages_P.tolist()
    assert [len(set(part.queries_Q.tolist())) for part in parts] == [2, 2, 2]
    again = parts[1].split(2)
    assert sum(map(rows_of, again), []) == rows_of(parts[1])
    assert [len(set(part.queries_Q.tolist())) for part in again] == [1, 1]


def test_of_many_positives_the_next_ones_come_in_every_epoch():
    data = data_of([7, 3, 2], max_positives=3)
    drawn = [p for epoch in range(7) for p in data.drawn_positives(0, epoch)]
    assert len(drawn) == 21 and {(after - before) % 7 for before, after in zip(drawn, drawn[1:], strict=False)} == {1}
    assert data.drawn_positives(1, 5) == data.positives[1].tolist()


def test_distinct_batches_look_at_all_positives_of_a_query():
    """Two queries share their second positive: they are in one batch only where nobody looks."""
    together = {}
    for distinct in (True, False):
        data = data_of([2, 2, 2, 2], batch_queries=2, distinct_positives=distinct)
        data.positives.values[[1, 3]] = 9
        batches = [set(data.batch(step).queries_Q.tolist()) for step in range(40)]
        together[distinct] = {0, 1} in batches
        assert all(len(queries) == 2 for queries in batches)
    assert together == {True: False, False: True}


# The equation. In these worlds every second query has two positives.
def made_of(stages, **training):
    training = {"batch_queries": 8, "positive": "all"} | training
    job = World(stages, dropout=0.0, first_negative=0).job(training, scale=5.0)
    made = make_trainer(job, budget=60, double=True)
    return made


def gradients(made):
    loss = backward(made, made.data.batch(1))
    return loss, torch.cat([p.grad.flatten() for p in made.encoders.parameters() if p.grad is not None])


def loop(made, batch):
    """Mean over all pairs of a query and a positive of it of -log(e^s(q, p) / (e^s(q, p) + sum of e^s(q, d))), d of all
    passages of the batch in columns that bring no positive of this query."""
    with torch.no_grad():
        encoded = made.encoded(batch)
    scores_QP = 5.0 * (encoded.queries_QD @ encoded.passages_CD.T).numpy()
    assert scores_QP.dtype == np.float64
    columns, terms = {query: [] for query in batch.queries_Q}, []
    for query, column in zip(batch.queries_Q, batch.positive_columns_Q, strict=True):
        columns[query].append(column)
    for row, query in enumerate(batch.queries_Q):
        own = np.exp(scores_QP[row, batch.positive_columns_Q[row]])
        others = [np.exp(s) for column, s in enumerate(scores_QP[row]) if column not in columns[query]]
        terms.append(-np.log(own / (own + sum(others))))
    assert max(map(len, columns.values())) == 2 and len(terms) > 8, "not vacuous"
    return float(np.mean(terms))


def test_the_softmax_is_the_mean_over_positives_without_the_others(stages):
    made = made_of(stages)
    loss, _ = gradients(made)
    assert loss == pytest.approx(loop(made, made.data.batch(1)), rel=1e-10)


@pytest.mark.parametrize("loss", ["softmax", "ranknet", "nll"])
def test_cached_equals_direct(stages, loss):
    made = (made_of(stages, loss=loss, gradient_caching=caches) for caches in (False, True))
    (plain, expected), (cached, found) = map(gradients, made)
    assert cached == pytest.approx(plain, rel=1e-10)
    assert (found - expected).norm() <= 1e-9 * expected.norm() > 0


@pytest.mark.parametrize("loss", ["softmax", "ranknet"])
def test_micro_batches_weigh_by_their_terms(stages, loss):
    """The step's loss is the mean over all terms of the micro-batches, however many each has."""
    made = made_of(stages, loss=loss, accumulate=4)
    batch, terms, total = made.data.batch(1), 0, 0.0
    parts = batch.split(4)
    for part in parts:
        masked = other_positives(part)
        number = int((~masked).sum()) - len(masked) if loss == "ranknet" else len(part.queries_Q)
        (value,), _ = made.forward(part, [masked])
        terms, total = terms + number, total + number * value.item()
    assert len({len(part.queries_Q) for part in parts}) > 1, "not vacuous"
    shares = [float(*made.backward(*micro)[0]) for micro in made.micro_batches(batch)]
    assert sum(shares) == pytest.approx(total / terms, rel=1e-10)


def test_a_whole_training_learns(stages):
    job = World(stages).job({"positive": "all", "masks": ["known_positives"], "distinct_positives": True})
    facts = train.run(job)
    assert facts["last_loss"] < facts["first_loss"] and facts["steps"] == 12


@pytest.mark.parametrize(
    ("training", "says"),
    [
        ({"triples": True}, "positive: all makes a row per positive"),
        ({"positive": "first"}, "max_positives works only"),
    ],
)
def test_what_does_not_go_with_it_is_refused(training, says):
    given = {"loss": {"kind": "nll"}, "epochs": 1, "positive": "all", "max_positives": 3}
    assert Training(**given).max_positives == 3
    with pytest.raises(ValueError, match=says):
        Training(**given | training)


def test_what_it_adds_is_in_no_key_of_another_training():
    plain = Training(loss={"kind": "nll"}, epochs=1).model_dump(mode="json")
    assert "max_positives" not in plain
    assert Training(loss={"kind": "nll"}, epochs=1, positive="all", max_positives=2).model_dump()["max_positives"] == 2
