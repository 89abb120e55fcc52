"""Packed chunks give the loss and gradients of one padded batch."""

import numpy as np
import pytest
import torch

from reference_encoder import reference_of
from teleport.encoder.batches import length_buckets
from teleport.encoder.tokens import padded
from teleport.training import forward, train, trainer
from teleport.training.data import read_training_set
from teleport.training.loss import false_negative_mask, softmax_loss
from training_world import World, on_cpu  # noqa: F401


def make(stages, training=None, **others):
    """A trainer without dropout and the batch of its second step."""
    world = World(stages, dropout=0.0, **others)
    job = world.job(training)
    data = read_training_set(job, 1)
    return train.make_trainer(job, data, 12, 1), data.batch(1)


def gradients(made, loss):
    made.encoders.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in made.encoders.named_parameters() if p.grad is not None}


def padded_vectors(side, rows):
    """All texts in one batch, padded to the longest."""
    return reference_of(side.encoder)(*padded(side.tokens, rows, side.max_tokens, side.special))


def padded_loss(made, batch, masked=None):
    vectors = padded_vectors(made.queries, batch.queries_Q), padded_vectors(made.passages, batch.passages_P)
    return softmax_loss(*vectors, torch.from_numpy(batch.positive_columns_Q), made.settings.scale, masked)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("budget", [1, 30, 100])
def test_step_in_chunks_equals_one_padded_batch(stages, monkeypatch, tied, budget):
    made, batch = make(stages, tied=tied)
    expected_loss = padded_loss(made, batch)
    expected = gradients(made, expected_loss)

    chunks = []

    def buckets(lengths, token_budget):
        chunks.append(length_buckets(lengths, token_budget))
        return chunks[-1]

    monkeypatch.setattr(forward, "length_buckets", buckets)
    monkeypatch.setitem(trainer.TOKEN_BUDGET, "cpu", budget)
    loss, _ = made.loss(batch)
    found = gradients(made, loss)

    assert len(chunks[1]) > 2, "the passages were not split: this test would show nothing"
    assert np.concatenate(chunks[1]).tolist() != list(range(16)), "in order already: this test would show nothing"
    assert loss.item() == pytest.approx(expected_loss.item(), rel=1e-6)
    assert found.keys() == expected.keys() and len(found) > 30
    largest = max(gradient.abs().max() for gradient in expected.values())
    for name, gradient in expected.items():
        assert (found[name] - gradient).abs().max() < 1e-5 * largest, name


def test_no_chunk_encodes_padding(stages, monkeypatch):
    made, batch = make(stages)
    real = made.queries.lengths[batch.queries_Q].sum() + made.passages.lengths[batch.passages_P].sum()
    for budget in (1, 100, 10_000):
        monkeypatch.setitem(trainer.TOKEN_BUDGET, "cpu", budget)
        assert made.loss(batch)[1] == real


def test_vectors_come_back_in_the_order_of_the_rows(stages, monkeypatch):
    made, _ = make(stages)
    rows = np.array([5, 40, 5, 0, 33])
    vectors, _ = made.passages.vectors(rows, 30)
    for row, vector in zip(rows, vectors, strict=True):
        torch.testing.assert_close(vector, padded_vectors(made.passages, [row])[0], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(vectors[0], vectors[1], atol=1e-2)


def test_masked_false_negatives_leave_the_loss(stages):
    """The first query's positive also stands among the second query's negatives: the switch leaves it out."""
    made, batch = make(stages, {"mask_false_negatives": True})
    batch.passages_P[5] = batch.passages_P[0]
    positives = [made.data.positives[row] for row in batch.queries_Q]
    mask = false_negative_mask(batch.passages_P, batch.positive_columns_Q, positives)
    assert mask.nonzero().tolist() == [[0, 5]]
    loss, _ = made.loss(batch)
    assert loss.item() == pytest.approx(padded_loss(made, batch, mask).item(), rel=1e-6)
    assert loss.item() < padded_loss(made, batch).item() - 1e-4
