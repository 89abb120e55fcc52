"""How many CUDA graphs a training has room for, counted on a CPU."""

import pytest

from training_world import World, make_trainer


@pytest.mark.parametrize("tied", [True, False])
def test_every_encoder_has_its_graphs(stages, tied):
    made = make_trainer(World(stages, tied=tied).job())
    encoders = 1 if tied else 2
    gradients = sum(p.nbytes for p in made.encoders.parameters())
    assert made.graphs_within(1e12) == 16 // encoders
    least = 2 * gradients + 2 * made.step_bytes + gradients  # the moments, a step twice, a graph of every encoder
    assert (made.graphs_within(1.001 * least), made.graphs_within(0.999 * least)) == (1, 0)


def test_frozen_weights_have_no_gradients(stages):
    world = World(stages)
    made = make_trainer(world.job({"trains": ["query"]}, inputs=world.frozen("passage")))
    assert made.graphs_within(1e12) == 16


def test_a_model_without_layers_has_a_budget(stages, monkeypatch):
    """Its vectors are word vectors: the backward pass keeps nothing of a token."""
    from teleport.training import step

    monkeypatch.setattr(step, "require_room_to_train", lambda *_: 10**9)
    monkeypatch.setattr(step, "kept_bytes", lambda *_: 0)
    made = make_trainer(World(stages).job())
    assert made.token_budget > 0 and made.step_bytes == made.token_budget
