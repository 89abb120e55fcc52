"""The train stage on a CUDA device: close to the CPU in float32, and resumable."""

import numpy as np
import pytest
import torch
from training_world import World, facts_of, losses_of

from teleport.encoder.precision import pick_device
from teleport.training import train
from teleport.training.trainer import Trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_float32_losses_are_close_to_the_cpu(stages, monkeypatch):
    world = World(stages, dropout=0.0)
    gpu = world.finished(world.job())
    assert facts_of(gpu)["device"] == "cuda"
    monkeypatch.setattr(train, "pick_device", lambda: torch.device("cpu"))
    cpu = world.finished(world.job())
    on_gpu, on_cpu = ([float(loss) for loss in losses_of(job)[1]] for job in (gpu, cpu))
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-3)


def test_bf16_trains(stages):
    world = World(stages)
    facts = facts_of(world.finished(world.job({"steps": 30, "precision": "bf16"})))
    assert facts["precision"] == "bfloat16" and facts["last_loss"] < 0.7 * facts["first_loss"]


def test_resumes_on_the_device(stages, monkeypatch):
    assert pick_device().type == "cuda"
    world = World(stages, dropout=0.0)
    whole = world.finished(world.job())
    job = world.job(save_every=0)
    whole_step = Trainer.step

    def step(self, step):
        if step == 6:
            raise KeyboardInterrupt
        return whole_step(self, step)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "step", step)
        train.run(job)
    resumed = world.finished(job)
    assert facts_of(resumed)["resumed_from"] == 6
    losses = [[float(loss) for loss in losses_of(done)[1]] for done in (resumed, whole)]
    np.testing.assert_allclose(*losses, rtol=1e-4)
