"""Gradient caching gives the gradients of the direct step, with dropout too, in the memory of one bucket."""

import weakref

import numpy as np
import pytest
import torch

from teleport.training import dual_encoder
from training_world import World, backward, gradients_of, make_trainer, require_close

CPU = torch.device("cpu")


def make(stages, dropout=0.0, tied=True, budget=60, precision="fp32", projection=None, **training):
    """Two trainers of the same job, direct and caching, and a batch; several buckets a side."""
    world = World(stages, dropout=dropout, tied=tied, projection=projection)
    made = []
    for caches in (False, True):
        job = world.job({"gradient_caching": caches, "precision": precision} | training, projection=projection)
        made.append(make_trainer(job, budget))
    return *made, made[0].data.batch(1)


def gradients(made, batch, seed=5):
    """Loss and {name: gradient} of a batch, and the generator's state after it."""
    torch.manual_seed(seed)
    made.encoders.zero_grad()
    loss = backward(made, batch)
    return loss, gradients_of(made.encoders), torch.get_rng_state()


@pytest.mark.ci(4)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("budget", [1, 60, 10_000])
def test_cached_equals_direct(stages, dropout, tied, budget):
    direct, cached, batch = make(stages, dropout, tied, budget)
    expected, found = gradients(direct, batch), gradients(cached, batch)
    assert found[0] == pytest.approx(expected[0], rel=1e-6)
    require_close(found[1], expected[1])
    assert torch.equal(found[2], expected[2]), "what is drawn next differs"


def test_guard_dropout_matters_in_this_test(stages, monkeypatch):
    """Other draws in the second pass, or another seed, give gradients that differ by far more than rounding."""
    direct, cached, batch = make(stages, dropout=0.3)
    expected = gradients(direct, batch)[1]
    other_seed = gradients(direct, batch, seed=6)[1]
    monkeypatch.setattr(dual_encoder, "set_generator_state", lambda state: None)
    other_draws = gradients(cached, batch)[1]
    for other in (other_seed, other_draws):
        with pytest.raises(AssertionError):
            require_close(other, expected, tolerance=1e-2)


def test_masked_false_negatives_are_masked_in_the_cached_step_too(stages):
    direct, cached, batch = make(stages, masks=["known_positives"])
    unmasked = gradients(cached, batch)[0]
    batch.passages_P[5] = batch.passages_P[0]
    expected, found = gradients(direct, batch), gradients(cached, batch)
    assert found[0] == pytest.approx(expected[0], rel=1e-6) != unmasked
    require_close(found[1], expected[1])


def test_in_bfloat16_the_gradients_agree_as_far_as_bfloat16_does(stages):
    """The weights' copies in bfloat16 collect gradients over one bucket, not over all: not equal to the last digit."""
    direct, cached, batch = make(stages, dropout=0.3, precision="bf16")
    expected, found = gradients(direct, batch), gradients(cached, batch)
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    require_close(found[1], expected[1], tolerance=2e-2)


def test_in_bfloat16_the_head_has_the_gradient_of_a_head_in_float32(stages):
    """The head computes in float32, forwards and backwards; with one bucket a side nothing else is rounded."""
    direct, cached, batch = make(stages, precision="bf16", projection=16, budget=10_000)
    (_, expected, _), (_, found, _) = gradients(direct, batch), gradients(cached, batch)
    for name in ("0.head.0.weight", "0.head.0.bias", "0.head.1.weight"):
        assert (found[name] - expected[name]).norm() <= 1e-5 * expected[name].norm(), name


def test_whole_steps_end_in_nearly_the_same_weights(stages):
    """AdamW divides by the size of the gradients, so rounding shows where they are nearly zero: compare the losses."""
    direct, cached, _ = make(stages, dropout=0.1)
    losses = np.array([[made.finish(made.step(number))[0] for number in range(8)] for made in (direct, cached)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)
    assert abs(losses[0] - losses[0, 0]).max() > 0.1, "nothing was learnt: this test would show nothing"


class SavedBytes:
    """The bytes that autograd keeps for the backward pass at any moment, parameters aside, and their peak."""

    def __init__(self, parameters):
        self.known = {p.untyped_storage().data_ptr() for p in parameters}
        self.now = self.peak = 0

    def pack(self, tensor):
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address not in self.known:
            self.known.add(address)
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self.release, address, storage.nbytes())
        return storage, tensor.storage_offset(), tensor.size(), tensor.stride(), tensor.dtype

    def release(self, address, num_bytes):
        self.known.discard(address)
        self.now -= num_bytes

    @staticmethod
    def unpack(packed):
        storage, offset, size, stride, dtype = packed
        return torch.empty(0, dtype=dtype).set_(storage, offset, size, stride)


def peak_saved_bytes(made, batch):
    saved = SavedBytes(made.encoders.parameters())
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
        backward(made, batch)
    return saved.peak


def test_peak_of_what_autograd_keeps_is_that_of_one_bucket(stages):
    direct, cached, batch = make(stages, dropout=0.1, budget=60)
    side, rows = cached.passages, batch.passages_P
    alone = []
    for bucket in side.buckets(rows, 60):
        saved = SavedBytes(cached.encoders.parameters())
        with torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
            vectors = side.encode(rows[bucket])
        alone.append(saved.peak)
        del vectors
    assert len(alone) > 4, "too few buckets: this test would show nothing"
    peaks = [peak_saved_bytes(made, batch) for made in (direct, cached)]
    assert peaks[0] > 0.9 * sum(alone)
    assert peaks[1] < 1.2 * max(alone)
    assert peaks[1] < peaks[0] / 3
