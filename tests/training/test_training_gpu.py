"""The train stage on a CUDA device: close to the CPU in float32, and resumable."""

import numpy as np
import pytest
import torch

from teleport.encoder.precision import pick_device
from teleport.encoder.side import Side
from teleport.training import train
from training_world import World, backward, die_at, facts_of, losses_of, make_trainer

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def test_float32_losses_are_close_to_the_cpu(stages, monkeypatch):
    world = World(stages, dropout=0.0)
    gpu = world.finished(world.job())
    assert facts_of(gpu)["device"] == "cuda"
    monkeypatch.setattr(train, "pick_device", lambda: torch.device("cpu"))
    cpu = world.finished(world.job())
    on_gpu, on_cpu = ([float(loss) for loss in losses_of(job)[1]] for job in (gpu, cpu))
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-3)


def test_a_live_search_on_the_device_finds_what_the_processor_finds(stages, monkeypatch):
    world = World(stages, dropout=0.0)
    options = world.live(training={"learning_rate": 1e-4})
    gpu = world.finished(world.job(**options))
    monkeypatch.setattr(train, "pick_device", lambda: torch.device("cpu"))
    cpu = world.finished(world.job(**options))
    assert facts_of(gpu)["engine"] == "exact x 1"
    on_gpu, on_cpu = ([float(loss) for loss in losses_of(job)[1]] for job in (gpu, cpu))
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-3)


def test_dev_queries_are_ranked_on_the_device(stages):
    world = World(stages, dropout=0.0)
    options = world.watched(training={"select": "dev", "average_with_start": 0.5, "learning_rate": 1e-4})
    job = world.finished(world.job(**options))
    curve = [line.split("\t") for line in (job.folder / "dev.tsv").read_text().splitlines()[1:]]
    best = max(curve, key=lambda point: float(point[1]))
    assert [step for step, _ in curve] == ["0", "3", "6", "9", "12"] and float(best[1]) > 0
    assert facts_of(job)["selected_step"] == int(best[0])
    again = world.finished(world.job(**world.watched(inputs={"checkpoint": job})))
    assert (again.folder / "dev.tsv").read_text().splitlines()[1] == f"0\t{best[1]}"


def test_bf16_trains(stages):
    world = World(stages)
    facts = facts_of(world.finished(world.job({"steps": 30, "precision": "bf16"})))
    assert facts["precision"] == "bfloat16" and facts["last_loss"] < 0.7 * facts["first_loss"]


def test_resumes_on_the_device(stages, monkeypatch):
    assert pick_device().type == "cuda"
    world = World(stages, dropout=0.0)
    whole = world.finished(world.job())
    job = world.job(save_every=0)
    die_at(job, 6, monkeypatch)
    resumed = world.finished(job)
    assert facts_of(resumed)["resumed_from"] == 6
    losses = [[float(loss) for loss in losses_of(done)[1]] for done in (resumed, whole)]
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_gradient_caching_draws_the_dropout_of_the_direct_step(stages, precision):
    world, losses, gradients = World(stages, dropout=0.3), [], []
    for caches in (False, True):
        job = world.job({"gradient_caching": caches, "precision": precision})
        made = make_trainer(job)
        made.replays = False  # a graph encodes queries and passages together, and so draws other dropout
        torch.manual_seed(5)
        losses.append(backward(made, made.data.batch(1)))
        gradients.append(torch.cat([p.grad.flatten() for p in made.encoders.parameters() if p.grad is not None]))
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    assert (gradients[1] - gradients[0]).norm() < 2e-2 * gradients[0].norm()


@pytest.mark.usefixtures("no_fallback")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_both_compiled_passes_of_gradient_caching_draw_the_same_dropout(stages, monkeypatch, precision):
    """They are two programs, without a graph and with one, and each has an order of its random operators."""
    monkeypatch.setattr(train, "compiles", lambda *_: True)
    vectors, encode = {True: [], False: []}, Side.encode

    def recorded(side, rows):
        made = encode(side, rows)
        vectors[torch.is_grad_enabled()].append(made.detach().float())
        return made

    monkeypatch.setattr(Side, "encode", recorded)
    made = make_trainer(World(stages, dropout=0.3).job({"gradient_caching": True, "precision": precision}))
    backward(made, made.data.batch(1))
    first, again = (torch.cat(sorted(each, key=len)) for each in (vectors[False], vectors[True]))
    assert len(first) and first.shape == again.shape
    assert (again - first).norm() < 2e-2 * first.norm()


CHANGES = [
    {}, {"optimizer": "lamb"}, {"loss": "nll"}, {"loss": "ranknet"}, {"loss": "hardest"}, {"precision": "bf16"},
    {"memory": 8, "memory_queries": True},
]  # fmt: skip


@pytest.mark.parametrize("trains", [["query", "passage"], ["query"]])
@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_a_step_does_not_wait_for_the_device(stages, changes, trains):
    """Torch raises an error at every wait that it knows of. In bfloat16 a CUDA graph encodes both sides, or the one
    that is trained."""
    world, training = World(stages), {"trains": trains, "masks": ["known_positives"]} | changes
    frozen = world.frozen("passage") if len(trains) == 1 else {}
    made = make_trainer(world.job(training, inputs=frozen))
    batch = made.data.batch(1)
    made.data.batch = lambda step: batch
    for step in (0, 1):  # they set up the optimiser, capture the graph, and fill the memory
        made.step(step)
    assert bool(made.graphs) == ("precision" in changes)
    torch.cuda.set_sync_debug_mode("error")
    try:
        metrics = made.step(2)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert np.isfinite(made.finish(metrics)[:2]).all()
