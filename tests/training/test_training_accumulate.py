"""A step of several micro-batches: the mean of their losses, each over its own passages alone."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from reference_encoder import padded_vectors
from teleport.settings.training import Training
from teleport.training.data import Batch
from teleport.training.losses import hardest
from training_world import World, backward, facts_of, gradients_of, losses_of, make_trainer, require_close


def make(stages, **training):
    """A trainer without dropout."""
    job = World(stages, dropout=0.0).job(training)
    return make_trainer(job)


def written_out(made, batch):
    """(sum over micro-batches of two queries) / 2, from the definition: a query's four passages and its neighbour's."""
    losses = []
    for first in (0, 2):
        queries_QD = padded_vectors(made.queries, batch.queries_Q[first : first + 2])
        passages_PD = padded_vectors(made.passages, batch.passages_P[4 * first : 4 * first + 8])
        for query, positive in zip(queries_QD, (0, 4), strict=True):
            scores_P = passages_PD @ query
            losses.append(torch.logsumexp(scores_P, 0) - scores_P[positive])
    return (losses[0] + losses[1]) / 2 / 2 + (losses[2] + losses[3]) / 2 / 2


@pytest.mark.parametrize("caches", [False, True])
def test_step_is_the_mean_of_the_micro_batches_losses(stages, caches):
    made = make(stages, accumulate=2, gradient_caching=caches, max_grad_norm=1e9)
    made.encoders.double()  # all but the pooled vectors and their scores, of up to 18
    expected_loss = written_out(made, made.data.batch(1))
    expected_loss.backward()
    expected = gradients_of(made.encoders)
    made.encoders.zero_grad()
    made.optimizer.step = made.optimizer.zero_grad = lambda: None
    outcome = made.step(1)
    assert made.finish(outcome)[0] == pytest.approx(expected_loss.item(), rel=1e-6)
    require_close(gradients_of(made.encoders), expected, tolerance=2e-5)  # ten roundings of the largest score


def test_the_hardest_pairs_are_those_of_queries_that_have_one():
    counted_QP = np.array([[True, False, True], [False, True, False]])
    assert hardest.num_pairs(counted_QP, np.array([0, 1]), np.zeros((2, 0), np.int64)) == 1


@pytest.mark.parametrize("loss", ["nll", "ranknet"])
def test_a_mean_over_pairs_weighs_all_pairs_of_the_step_alike(stages, loss):
    """Micro-batches of which one has fewer pairs, as negatives of its queries are masked."""
    training = {"loss": loss, "masks": ["known_positives"], "max_grad_norm": 1e9}
    whole, split = make(stages, **training), make(stages, **training, accumulate=2)
    batch = whole.data.batch(1)
    for query in (0, 1):  # a positive of the query, in the place of two of its own negatives
        batch.passages_P[batch.own_columns_QN[query, :2]] = batch.passages_P[batch.positive_columns_Q[query]]
    encoded = whole.encoded(batch)
    scores_QP = encoded.products(encoded.queries_QD).detach().requires_grad_()
    halves = np.arange(4) // 2  # of the queries
    counted_QP = torch.from_numpy(halves[:, None] == np.repeat(halves, 4))
    for masked_QP in whole.micro_batches(batch)[0][1]:
        counted_QP &= ~torch.from_numpy(masked_QP)
    columns = map(torch.from_numpy, (batch.positive_columns_Q, batch.own_columns_QN))
    expected = split.objective.terms[0].loss(scores_QP.masked_fill(~counted_QP, float("-inf")), *columns)
    found = backward(split, batch)
    assert found == pytest.approx(expected.item(), rel=2e-6)
    weights = [weight for *_, (weight,) in split.micro_batches(batch)]
    assert abs(weights[0] - weights[1]) > 0.1 and sum(weights) == pytest.approx(1), "not vacuous"
    if loss == "nll":  # whose passages are those of one batch
        assert backward(whole, batch) == pytest.approx(found, rel=2e-6)
        require_close(gradients_of(whole.encoders), gradients_of(split.encoders), tolerance=2e-5)


def test_micro_batches_without_a_pair_do_not_divide_by_zero(stages):
    made = make(stages, loss="nll", masks=["known_positives"], accumulate=2)
    batch = made.data.batch(1)
    batch.passages_P[:] = np.repeat(batch.passages_P[batch.positive_columns_Q], 4)
    assert backward(made, batch) == 0 and all((g == 0).all() for g in gradients_of(made.encoders).values())


def test_negatives_of_other_micro_batches_do_not_count(stages):
    """The same queries in one batch have more negatives, so their loss is higher."""
    losses = [made.finish(made.step(1))[0] for made in (make(stages), make(stages, accumulate=2))]
    assert losses[0] > losses[1] + 0.1


def test_a_split_batch_keeps_its_queries_with_their_passages():
    passages, columns = np.array([10, 11, 20, 21, 30, 31, 40, 41]), np.arange(8).reshape(4, 2)
    batch = Batch(np.array([7, 8, 9, 4]), passages, columns[:, 0], columns[:, 1:])
    parts = batch.split(2)
    assert [part.queries_Q.tolist() for part in parts] == [[7, 8], [9, 4]]
    assert [part.passages_P.tolist() for part in parts] == [[10, 11, 20, 21], [30, 31, 40, 41]]
    assert [part.passages_P[part.positive_columns_Q].tolist() for part in parts] == [[10, 20], [30, 40]]
    assert [part.passages_P[part.own_columns_QN].tolist() for part in parts] == [[[11], [21]], [[31], [41]]]


def test_training_counts_all_micro_batches(stages):
    world = World(stages, dropout=0.0)
    whole, split = (world.finished(world.job({"accumulate": number})) for number in (1, 4))
    counts = [facts_of(job)["real_tokens"] for job in (whole, split)]
    assert counts[0] == counts[1]
    assert len(losses_of(split)[1]) == 12 and losses_of(split)[1] != losses_of(whole)[1]


def test_a_batch_that_does_not_split_is_refused_with_the_remedy():
    with pytest.raises(ValidationError, match="batch_queries 8 .* 3 .*accumulate"):
        Training(loss={"kind": "softmax"}, steps=1, batch_queries=8, accumulate=3)
    assert Training(loss={"kind": "softmax"}, steps=1, batch_queries=9, accumulate=3).accumulate == 3
