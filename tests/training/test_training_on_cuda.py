"""Training processes on CUDA devices: SIGTERM and resume, and what several exchange; here the same on the CPU."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from test_training_processes import MANY, StageRuns

from teleport.running.launch import launch
from training_world import World

CARDS = torch.cuda.device_count()
GPU = [pytest.mark.gpu, pytest.mark.skipif(CARDS < 1, reason="no CUDA device")]
TWO = [pytest.mark.gpu, pytest.mark.skipif(CARDS < 2, reason="no two CUDA devices")]
SLOW = pytest.mark.slow  # loading torch for every process takes its time


class RunsOnDevice(StageRuns):
    """As the rule starts a training: with GPUs, where there are some."""

    def command(self, processes, *arguments):
        return super().command(processes, "--gpus", str(processes), *arguments)


def numbers(runs):
    return [float(loss) for loss in runs.losses()]


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=SLOW), pytest.param("cuda", marks=GPU)])
def test_sigterm_saves_the_state_and_the_training_goes_on(stages, monkeypatch, device):
    if device == "cpu":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    killed, whole = (RunsOnDevice(stages, World(stages, dropout=0.0).job(MANY)) for _ in range(2))
    whole.finish(1)
    process = killed.start_and_wait_for_state(1)
    process.terminate()
    log = process.communicate(timeout=120)[0]
    assert process.returncode == 143 and log.count("SIGTERM: state saved after step") == 1, log
    killed.finish(1)
    facts = killed.manifest["facts"]
    assert facts["device"] == device and facts["attempts"] == 2
    assert facts["resumed_from"] == int(re.search(r"saved after step (\d+)", log)[1]) > 0
    # On a GPU sums go in any order, and training carries it on.
    np.testing.assert_allclose(numbers(killed)[:50], numbers(whole)[:50], rtol=0 if device == "cpu" else 1e-3)
    assert len(numbers(killed)) == len(numbers(whole)) == MANY["steps"]


@pytest.mark.parametrize("cards", [pytest.param(2, marks=TWO)])
def test_a_training_by_two_cards_has_the_losses_of_one(stages, cards):
    """Over NCCL, as the rule starts it."""
    world = World(stages, dropout=0.0)
    two, one = (RunsOnDevice(stages, world.job({"steps": 12, "learning_rate": 1e-4})) for _ in range(2))
    two.finish(cards)
    one.finish(1)
    assert two.manifest["facts"]["processes"] == 2 and two.manifest["facts"]["device"] == "cuda"
    np.testing.assert_allclose(numbers(two), numbers(one), rtol=1e-3)


@pytest.mark.parametrize(
    ("processes", "backend", "device"),
    [
        pytest.param(2, "gloo", "cpu", marks=SLOW),
        pytest.param(1, "cpu:gloo,cuda:nccl", "cuda", marks=GPU),  # NCCL loads and finds its card
        pytest.param(2, "gloo", "cuda", marks=GPU),  # of one card: NCCL takes no two processes there
        pytest.param(2, "cpu:gloo,cuda:nccl", "cuda", marks=TWO),
    ],
)
def test_processes_exchange_vectors_gradients_and_totals(processes, backend, device):
    script = str(Path(__file__).with_name("exchange_process.py"))
    assert launch(processes, [sys.executable, script, backend, device]) == 0
