"""Mixed negatives: which pairs, with which shares, and the loss that sees them, against a loop."""

import math

import numpy as np
import pytest
import torch

from teleport.settings.training import Training
from teleport.training.data import Batch
from teleport.training.mixing import draw_mixtures, mix
from training_world import World, backward, die_at, losses_of, make_trainer, weights

MIXED = {"mixed_negatives": 5, "batch_queries": 8}


def batch_of(queries, own, first=0):
    columns = np.arange(queries * (1 + own)).reshape(queries, -1)
    return Batch(np.arange(queries), first + columns.ravel(), columns[:, 0], columns[:, 1:])


def test_pairs_are_two_of_a_query_all_equally_often_and_shares_are_uniform():
    numbers, shares = draw_mixtures(batch_of(200, 4), 60, 7)
    assert numbers.shape == (200, 60, 2) and shares.shape == (200, 60) and shares.dtype == np.float32
    counts = np.zeros((4, 4))
    np.add.at(counts, (numbers[..., 0], numbers[..., 1]), 1)
    assert (np.diag(counts) == 0).all()
    off = counts[~np.eye(4, dtype=bool)]
    assert ((off - 1000) ** 2 / 1000).sum() < 31, "chi-square of 11 degrees of freedom, p = 0.001"
    assert np.abs(np.histogram(shares, 10, (0, 1))[0] - 1200).max() < 140


def test_the_draw_is_a_function_of_seed_and_batch():
    first, *others = (draw_mixtures(*of) for of in (
        (batch_of(3, 4), 6, 1), (batch_of(3, 4), 6, 1), (batch_of(3, 4), 6, 2), (batch_of(3, 4, first=1), 6, 1)
    ))  # fmt: skip
    same = [all(np.array_equal(a, b) for a, b in zip(first, other, strict=True)) for other in others]
    assert same == [True, False, False]


def test_a_mixture_literal():
    vectors = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    shares = torch.tensor([[0.25]])
    assert mix(vectors, shares, False).tolist() == [[[0.25, 0.75]]]
    expected = [0.25 / math.sqrt(0.625), 0.75 / math.sqrt(0.625)]
    assert mix(vectors, shares, True)[0, 0].tolist() == pytest.approx(expected, rel=1e-6)


def make(stages, normalize):
    job = World(stages, dropout=0.0).job(MIXED | {"max_grad_norm": 1e9}, scale=5.0)
    made = make_trainer(job, double=True)
    made.queries.encoder.normalize = normalize  # the only encoder
    return made


def with_mixtures(made, batch, masked_QP, normalize):
    """[[score]] of all passages of the batch, -inf where masked, and of each query's mixtures, by a loop in float64."""
    queries, passages = (side.detach().numpy() for side in made.encoded(batch)[:2])
    numbers, shares = draw_mixtures(batch, 5, made.seed)
    rows = (5 * queries @ passages.T).tolist()
    for i, row in enumerate(rows):
        row[:] = [-math.inf if masked_QP[i][j] else score for j, score in enumerate(row)]
        for (a, b), share in zip(numbers[i], shares[i].tolist(), strict=True):
            columns = batch.own_columns_QN[i, [a, b]]
            vector = share * passages[columns[0]] + (1 - share) * passages[columns[1]]
            vector = vector / math.sqrt(vector @ vector) if normalize else vector
            row.append(-math.inf if any(masked_QP[i][j] for j in columns) else 5 * float(queries[i] @ vector))
    return rows


@pytest.mark.parametrize(("normalize", "share"), [(True, 0), (False, 0), (True, 0.3)])
def test_a_step_is_a_loop(stages, normalize, share):
    """share: of the passages that a mask leaves out"""
    made = make(stages, normalize)
    batch = made.data.batch(1)
    masked = np.random.default_rng(0).random((8, len(batch.passages_P))) < share
    masked[np.arange(8), batch.positive_columns_Q] = False
    made.masks = [lambda batch: masked]
    rows = with_mixtures(made, batch, masked.tolist(), normalize)
    left_out = sum(score == -math.inf for row in rows for score in row[-5:])
    assert (0 < left_out < 40) == (share > 0), "a mixture with a passage that is left out is none"
    terms = [math.log(sum(map(math.exp, row))) - row[p] for row, p in zip(rows, batch.positive_columns_Q, strict=True)]
    assert backward(made, batch) == pytest.approx(sum(terms) / 8, rel=1e-7)  # shares are float32


def test_gradients_reach_both_vectors_of_a_pair():
    vectors = torch.randn(2, 3, 2, 4, dtype=torch.float64, requires_grad=True)
    shares = torch.rand(2, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda of: mix(of, shares, True), [vectors])


def test_a_killed_training_ends_with_the_same_bits(stages, monkeypatch):
    world = World(stages)
    whole, killed = (world.job(MIXED, save_every=0) for _ in range(2))
    world.finished(whole)
    die_at(killed, 7, monkeypatch)
    world.finished(killed)
    assert losses_of(whole) == losses_of(killed)
    assert all(torch.equal(tensor, weights(killed)[name]) for name, tensor in weights(whole).items())


@pytest.mark.parametrize("changes", [{"negatives_per_query": 1}, {"triples": True}])
def test_two_own_negatives_are_needed(changes):
    with pytest.raises(ValueError, match="mixed_negatives .*two own"):
        Training(loss={"kind": "softmax"}, steps=3, mixed_negatives=2, **changes)
