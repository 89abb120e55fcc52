"""Gradients are exchanged in chunks, in one order, while the backward pass goes on, and each of them once."""

from types import SimpleNamespace

import pytest
import torch

from teleport.training import gradient_sum
from teleport.training.gradient_sum import GradientSum, chunks_of
from teleport.training.parallel import ALONE, Processes

LAYERS, WIDTH = 4, 3


@pytest.fixture
def layers(monkeypatch):
    """Layers of which each is a chunk."""
    torch.manual_seed(0)
    monkeypatch.setattr(gradient_sum, "CHUNK", WIDTH * (WIDTH + 1))
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


@pytest.fixture
def exchanged(layers, monkeypatch):
    """[layers that have gradients] at each exchange; another process always has twice our gradients."""
    found = []

    def all_reduce(flat, async_op):
        assert async_op
        found.append([number for number, layer in enumerate(layers) if layer.weight.grad is not None])
        return SimpleNamespace(wait=lambda: flat.mul_(3))

    monkeypatch.setattr(gradient_sum.distributed, "all_reduce", all_reduce)
    return found


def backward(layers):
    """Add gradients, as a micro-batch does; returns them (list)."""
    inputs = torch.arange(2.0 * WIDTH).view(2, WIDTH)
    (layers(inputs) ** 2).sum().backward()
    return [parameter.grad.clone() for parameter in layers.parameters()]


def test_a_chunk_is_on_its_way_before_earlier_layers_have_gradients(layers, exchanged):
    total = GradientSum(layers.parameters(), Processes(0, 2))
    total.begin()
    own = backward(layers)
    assert exchanged == [[3], [2, 3], [1, 2, 3], [0, 1, 2, 3]]
    total.finish()
    assert len(exchanged) == LAYERS
    for parameter, gradient in zip(layers.parameters(), own, strict=True):
        assert gradient.any() and torch.equal(parameter.grad, 3 * gradient)


def test_nothing_is_exchanged_before_the_last_backward_pass_of_a_step(layers, exchanged):
    total = GradientSum(layers.parameters(), Processes(0, 2))
    for _ in range(2):  # two steps
        exchanged.clear()
        layers.zero_grad()
        backward(layers)
        assert not exchanged
        total.begin()
        own = backward(layers)
        assert len(exchanged) == LAYERS
        total.finish()
        assert all(torch.equal(p.grad, 3 * gradient) for p, gradient in zip(layers.parameters(), own, strict=True))


def test_what_was_not_begun_is_exchanged_at_the_end(layers, exchanged):
    total = GradientSum(layers.parameters(), Processes(0, 2))
    own = backward(layers)
    total.finish()
    assert exchanged == [[0, 1, 2, 3]] * LAYERS
    assert all(torch.equal(p.grad, 3 * gradient) for p, gradient in zip(layers.parameters(), own, strict=True))


def test_a_parameter_without_a_gradient_stays_so_and_others_wait_for_their_turn(layers, exchanged):
    unused = torch.nn.Parameter(torch.ones(WIDTH * (WIDTH + 1)))
    total = GradientSum([*layers.parameters(), unused], Processes(0, 2))
    total.begin()
    own = backward(layers)
    assert not exchanged  # the first chunk is never complete
    total.finish()
    assert exchanged == [[0, 1, 2, 3]] * LAYERS and unused.grad is None
    assert all(torch.equal(p.grad, 3 * gradient) for p, gradient in zip(layers.parameters(), own, strict=True))


def test_one_process_exchanges_nothing(layers, exchanged):
    total = GradientSum(layers.parameters(), ALONE)
    total.begin()
    own = backward(layers)
    total.finish()
    assert not exchanged
    assert all(torch.equal(p.grad, gradient) for p, gradient in zip(layers.parameters(), own, strict=True))


def test_chunks_go_from_the_last_parameter_to_the_first_and_a_large_one_is_alone(monkeypatch):
    monkeypatch.setattr(gradient_sum, "CHUNK", 10)
    sizes = [50, 4, 3, 3, 5, 10]
    chunks = chunks_of([torch.nn.Parameter(torch.zeros(size)) for size in sizes])
    assert [[p.numel() for p in chunk] for chunk in chunks] == [[10], [5, 3], [3, 4], [50]]
