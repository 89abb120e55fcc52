"""Training one side: what is frozen stays as it was, is read and not computed, and the checkpoint is complete."""

import numpy as np
import pytest
import torch
from safetensors import safe_open

from teleport.encoder.load import load_encoders
from teleport.encoder.side import Frozen, Side
from teleport.training import resume, train
from teleport.training.data import read_training_set
from training_world import (
    World,
    backward,
    die_at,
    facts_of,
    gradients_of,
    losses_of,
    make_trainer,
    require_close,
    texts,
    weights,
)

OTHER = {"query": "passage", "passage": "query"}
FILES = {"query": "queries.train.npy", "passage": "passages.npy"}


def equal(ours, theirs):
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.ci(1)
@pytest.mark.parametrize("trained", ["query", "passage"])
@pytest.mark.parametrize("tied", [True, False])
def test_only_the_trained_side_changes_and_the_checkpoint_is_complete(stages, tied, trained):
    world, frozen = World(stages, tied=tied), OTHER[trained]
    job = world.finished(world.job({"trains": [trained], "steps": 30}, inputs=world.frozen(frozen)))
    start = {side: weights(world.inputs["checkpoint"], "." if tied else side) for side in OTHER}
    assert equal(weights(job, frozen), start[frozen]) and not equal(weights(job, trained), start[trained])
    assert not (job.folder / "checkpoint/model.safetensors").exists()
    facts = facts_of(job)
    assert facts["last_loss"] < 0.8 * facts["first_loss"]
    query, passage = load_encoders(job.folder / "checkpoint")
    assert query is not passage and query.dim == passage.dim == 32


@pytest.mark.parametrize("trained", ["query", "passage"])
def test_only_the_trained_side_is_optimised_and_saved(stages, trained):
    world = World(stages)
    job = world.job({"trains": [trained]}, inputs=world.frozen(OTHER[trained]), save_every=0)
    made = make_trainer(job)
    sides = {"query": made.queries, "passage": made.passages}
    assert isinstance(sides[trained], Side) and isinstance(sides[OTHER[trained]], Frozen)
    own = {id(p) for p in sides[trained].encoder.parameters()}
    assert {id(p) for group in made.optimizer.param_groups for p in group["params"]} == own
    assert not own & {id(p) for p in sides[OTHER[trained]].encoder.parameters()}
    train.run(job)
    with safe_open(job.resume / resume.FILE, framework="pt") as file:
        names = {name.split("/")[1] for name in file.keys() if "/" in name}  # noqa: SIM118 - not a dict
    assert names == set(made.encoders.state_dict()) and all(name.startswith("0.") for name in names)


@pytest.mark.parametrize("trained", ["query", "passage"])
@pytest.mark.parametrize("caches", [False, True])
def test_a_step_with_a_frozen_side_has_the_gradients_of_one_with_both(stages, trained, caches):
    """Without dropout, and untied, so that each side's gradient can be told apart; the frozen side's is none."""
    world = World(stages, dropout=0.0, tied=False)
    both = world.job()
    half = world.job({"trains": [trained], "gradient_caching": caches}, inputs=world.frozen(OTHER[trained]))
    found = []
    for job in (both, half):
        made = make_trainer(job)
        loss = backward(made, batch := made.data.batch(1))
        side = {"query": made.queries, "passage": made.passages}[trained]
        found.append((loss, gradients_of(side.encoder), made.real_tokens(batch)))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-6) and 0 < found[1][2] < found[0][2]
    require_close(found[1][1], found[0][1], tolerance=1e-5)
    frozen = {"query": made.passages, "passage": made.queries}[trained].encoder
    assert all(p.grad is None for p in frozen.parameters())


def test_vectors_of_a_frozen_side_are_those_of_the_file(stages):
    world = World(stages)
    inputs = world.frozen("passage")
    job = world.job({"trains": ["query"]}, inputs=inputs)
    made, rows = make_trainer(job), np.array([5, 40, 5, 0])
    vectors = made.passages.vectors(rows, 4096)
    expected = np.load(inputs["passages"].folder / FILES["passage"])[rows]
    assert vectors.dtype == torch.float32 and not vectors.requires_grad
    assert vectors.numpy().tobytes() == expected.tobytes()


def test_only_encoded_tokens_are_counted(stages):
    world = World(stages)
    facts = train.run(world.job({"trains": ["query"], "steps": 1}, inputs=world.frozen("passage")))
    job = world.job({"trains": ["query"], "steps": 1}, inputs=world.frozen("passage"))
    rows = read_training_set(job, train.derive_seed(42, "train", 1)).batch(0).queries_Q
    assert facts["real_tokens"] == sum(min(len(texts()[0][row]) + 2, 8) for row in rows)


def test_a_killed_training_of_one_side_continues_with_the_same_bits(stages, monkeypatch):
    world = World(stages)
    inputs = world.frozen("passage")
    whole = world.finished(world.job({"trains": ["query"]}, inputs=inputs))
    job = world.job({"trains": ["query"]}, inputs=inputs, save_every=0)
    die_at(job, 6, monkeypatch)
    resumed = world.finished(job)
    assert facts_of(resumed)["resumed_from"] == 6 and losses_of(resumed) == losses_of(whole)
    assert all(equal(weights(resumed, side), weights(whole, side)) for side in OTHER)


def test_more_tokens_than_positions_is_a_sentence_here_too(stages):
    """An episode on negatives that nobody mined trains before anything is encoded."""
    job = World(stages).job(max_passage_tokens=65)
    with pytest.raises(ValueError, match="encoder.max_passage_tokens is 65, .* 64 positions"):
        train.run(job)
