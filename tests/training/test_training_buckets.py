"""Packed buckets give the loss and gradients of one padded batch."""

import numpy as np
import pytest
import torch

from reference_encoder import padded_vectors
from teleport.encoder.model import Encoder
from teleport.training import train
from teleport.training.data import read_training_set
from teleport.training.losses import hardest, nll, ranknet, softmax
from teleport.training.masks import known_positives
from training_world import World, facts_of, gradients_of, loss_of, make_trainer, require_close


def make(stages, training=None, **others):
    """A trainer without dropout and the batch of its second step."""
    world = World(stages, dropout=0.0, **others)
    job = world.job(training)
    data = read_training_set(job, 1)
    return train.make_trainer(job, data, 12, 1), data.batch(1)


def gradients(made, loss):
    made.encoders.zero_grad()
    loss.backward()
    return gradients_of(made.encoders)


def padded_loss(made, batch, masked=None, loss=softmax.loss):
    """From the definition: scaled inner products of all queries and passages, masked ones at minus infinity."""
    queries_QD, passages_PD = (
        padded_vectors(made.queries, batch.queries_Q),
        padded_vectors(made.passages, batch.passages_P),
    )
    scores_QP = queries_QD @ passages_PD.T * made.scale
    if masked is not None:
        scores_QP = scores_QP.masked_fill(masked, float("-inf"))
    return loss(scores_QP, *map(torch.from_numpy, (batch.positive_columns_Q, batch.own_columns_QN)))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("budget", [1, 30, 100])
def test_step_in_buckets_equals_one_padded_batch(stages, tied, budget):
    made, batch = make(stages, tied=tied)
    expected_loss = padded_loss(made, batch)
    expected = gradients(made, expected_loss)

    buckets = made.passages.buckets(batch.passages_P, budget)
    made.token_budget = budget
    loss = loss_of(made, batch)
    assert len(buckets) > 2, "the passages were not split: this test would show nothing"
    assert np.concatenate(buckets).tolist() != list(range(16)), "in order already: this test would show nothing"
    assert loss.item() == pytest.approx(expected_loss.item(), rel=1e-6)
    require_close(gradients(made, loss), expected, tolerance=1e-5)


def test_no_bucket_encodes_padding(stages, monkeypatch):
    made, batch = make(stages)
    real = made.queries.lengths[batch.queries_Q].sum() + made.passages.lengths[batch.passages_P].sum()
    forward = Encoder.forward

    def counting(self, ids_T, lengths_B):
        counts.append(len(ids_T))
        return forward(self, ids_T, lengths_B)

    monkeypatch.setattr(Encoder, "forward", counting)
    for budget in (1, 100, 10_000):
        counts, made.token_budget = [], budget
        loss_of(made, batch)
        assert sum(counts) == real and (len(counts) == 2) == (budget == 10_000)  # a bucket a side


def test_vectors_come_back_in_the_order_of_the_rows(stages, monkeypatch):
    made, _ = make(stages)
    rows = np.array([5, 40, 5, 0, 33])
    vectors = made.passages.vectors(rows, 30)
    for row, vector in zip(rows, vectors, strict=True):
        torch.testing.assert_close(vector, padded_vectors(made.passages, [row])[0], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(vectors[0], vectors[1], atol=1e-2)


def test_masked_false_negatives_leave_the_loss(stages):
    """The first query's positive also stands among the second query's negatives: the switch leaves it out."""
    made, batch = make(stages, {"masks": ["known_positives"]})
    batch.passages_P[5] = batch.passages_P[0]
    mask = torch.from_numpy(known_positives.mask(batch, made.data))
    assert mask.nonzero().tolist() == [[0, 5]]
    loss = loss_of(made, batch)
    assert loss.item() == pytest.approx(padded_loss(made, batch, mask).item(), rel=1e-6)
    assert loss.item() < padded_loss(made, batch).item() - 1e-4


@pytest.mark.parametrize("name", ["nll", "ranknet", "hardest"])
def test_the_stage_takes_the_loss_that_its_settings_name(stages, name):
    """With scale and mask, which the trainer applies: the second query knows the first one's negative as relevant."""
    world = World(stages, dropout=0.0)
    job = world.job({"loss": name, "masks": ["known_positives"]}, scale=0.5)
    made = make_trainer(job)
    batch = made.data.batch(1)
    batch.passages_P[1] = made.data.positives[batch.queries_Q[1]][0]
    mask = torch.from_numpy(known_positives.mask(batch, made.data))
    assert mask[1, 1]
    function = {"nll": nll, "ranknet": ranknet, "hardest": hardest}[name].loss
    loss = loss_of(made, batch)
    assert loss.item() == pytest.approx(padded_loss(made, batch, mask, function).item(), rel=1e-6)
    assert loss.item() != pytest.approx(padded_loss(made, batch, mask).item(), rel=1e-2)


@pytest.mark.parametrize("name", ["softmax", "ranknet", "hardest"])
def test_a_step_without_own_negatives(stages, name):
    world = World(stages, dropout=0.0)
    job = world.job({"loss": name, "negatives_per_query": 0}, inputs={"negatives": None})
    made = make_trainer(job)
    batch = made.data.batch(1)
    function = {"softmax": softmax, "ranknet": ranknet, "hardest": hardest}[name].loss
    assert batch.own_columns_QN.shape == (4, 0) and len(batch.passages_P) == 4
    assert loss_of(made, batch).item() == pytest.approx(padded_loss(made, batch, loss=function).item(), rel=1e-6)
    assert facts_of(world.finished(job))["steps"] == 12
