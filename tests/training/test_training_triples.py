"""Triples: every negative makes a row of its own, those of a query one after another (ANCE, released)."""

import numpy as np
import pytest
import torch

from training_world import NUM_QUERIES, World, backward, facts_of, loss_of, losses_of, make_trainer, training_set


def rows_of(batch):
    """(query, positive, negative) of each row."""
    return list(zip(batch.queries_Q.tolist(), *batch.passages_P.reshape(-1, 2).T.tolist(), strict=True))


def test_a_row_is_a_query_its_positive_and_one_negative():
    data = training_set([3] * 4, triples=True, batch_queries=5)
    plain = training_set([3] * 4, batch_queries=4).batch(0)
    expected = [
        (query, block[0], negative)
        for query, block in zip(plain.queries_Q.tolist(), plain.passages_P.reshape(4, 4).tolist(), strict=True)
        for negative in block[1:]
    ]
    batches = [data.batch(step) for step in range(2)]
    assert rows_of(batches[0]) + rows_of(batches[1]) == expected[:10]  # 12 triples: the last two fill no batch
    assert data.steps_per_epoch == 2 and data.batch(2).queries_Q.tolist() != batches[0].queries_Q.tolist()
    assert batches[0].positive_columns_Q.tolist() == [0, 2, 4, 6, 8]
    assert batches[0].own_columns_QN.tolist() == [[1], [3], [5], [7], [9]]


def test_sixty_four_rows_of_twenty_negatives_hold_four_queries():
    """A step of ANCE on one device, where a pass uses every negative of every query once."""
    data = training_set([20] * 64, triples=True, batch_queries=64, negatives_per_query=20)
    batches = [data.batch(step) for step in range(data.steps_per_epoch)]
    assert len(batches) == 20 and {len(set(batch.queries_Q)) for batch in batches} == {4}
    rows = [row for batch in batches for row in rows_of(batch)]
    assert len({(query, negative) for query, _, negative in rows}) == len(rows) == 64 * 20
    changes = np.count_nonzero(np.diff([query for query, _, _ in rows]))
    assert changes == 63  # the rows of a query stand together


def make(stages, **training):
    job = World(stages, dropout=0.0).job({"loss": "nll", "negatives_per_query": 4} | training)
    return make_trainer(job)


def gradients(made, batch):
    loss = backward(made, batch)
    return loss, made.real_tokens(batch), torch.cat([p.grad.flatten() for p in made.encoders.parameters()])


def test_triples_of_whole_queries_are_the_mean_over_own_negatives(stages):
    """Without dropout: 3 queries with 4 negatives each, as 3 rows and as 12."""
    plain, triples = make(stages, batch_queries=3), make(stages, batch_queries=12, triples=True)
    batches = plain.data.batch(1), triples.data.batch(1)
    assert set(batches[0].queries_Q) == set(batches[1].queries_Q) and len(batches[1].queries_Q) == 12
    expected, found = gradients(plain, batches[0]), gradients(triples, batches[1])
    assert found[0] == pytest.approx(expected[0], rel=1e-6)
    assert (found[2] - expected[2]).norm() < 1e-5 * expected[2].norm()
    assert found[1] > 1.5 * expected[1]  # every copy of query and positive is encoded, as in the released code


def test_copies_of_a_query_draw_their_own_dropout(stages):
    job = World(stages, dropout=0.3).job({"loss": "nll", "triples": True})
    made = make_trainer(job)
    first, second = made.queries.vectors(np.array([0, 0]), 1024)
    assert not torch.equal(first, second)


def test_known_positives_are_masked_for_each_row(stages):
    """Pools that begin at row 20 hold further positives of queries; a masked triple makes no pair."""
    world = World(stages, dropout=0.0, first_negative=20)
    job = world.job({"loss": "nll", "triples": True, "masks": ["known_positives"], "batch_queries": 60})
    made = make_trainer(job)
    batch = made.data.batch(0)
    known = [negative in made.data.known_positives(query) for query, _, negative in rows_of(batch)]
    with torch.no_grad():
        loss = loss_of(made, batch)
        sides = (made.queries, batch.queries_Q), (made.passages, batch.passages_P.reshape(-1, 2).ravel())
        queries, passages = (side.vectors(rows, 1024) for side, rows in sides)
    passages = passages.reshape(60, 2, -1)
    margins = ((passages[:, 1] - passages[:, 0]) * queries).sum(1)
    kept = torch.nn.functional.softplus(margins)[~torch.tensor(known)]
    assert loss.item() == pytest.approx(kept.mean().item(), rel=1e-5) and 0 < sum(known) < 60


def test_an_epoch_of_the_stage_has_all_triples(stages):
    world = World(stages)
    training = {"loss": "nll", "triples": True, "steps": None, "epochs": 2, "batch_queries": 8}
    job = world.finished(world.job(training))
    assert facts_of(job)["steps"] == 2 * (NUM_QUERIES * 3 // 8) and len(losses_of(job)[1]) == 14
    halves = world.finished(world.job(training | {"accumulate": 2, "epochs": 1}))
    assert facts_of(halves)["steps"] == 7
