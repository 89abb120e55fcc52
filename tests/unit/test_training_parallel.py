"""Two processes that train together do what one does: loss, gradients, files, resuming, and dying."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from paths import REPOSITORY
from training_process import gradients_of
from training_world import World, on_cpu  # noqa: F401

from teleport.launch import launch
from teleport.stage import sha256_file
from teleport.training import train
from teleport.training.data import read_training_set
from teleport.training.parallel import ALONE, Processes

RUN_STAGE = str(REPOSITORY / "workflow_scripts/run_stage.py")
VARIANTS = {
    "plain": ({}, {}),
    "masked": ({"mask_false_negatives": True}, {}),
    "gradient caching": ({"gradient_caching": True}, {}),
    "two micro-batches": ({"accumulate": 2}, {}),
    "micro-batches with gradient caching": ({"accumulate": 2, "gradient_caching": True}, {}),
    "cosine": ({}, {"scale": 20.0}),
    "untied": ({}, {}),
}


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch):
    """The processes started here compute on the CPU even where there is a GPU; they inherit this environment."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def spec_of(job):
    """The specification of a job, as run_stage.py takes it."""
    inputs = {role: f"{a.manifest['kind']}/{a.manifest['key']}" for role, a in job.inputs.items()}
    return {"kind": job.kind, "key": job.key, "settings": job.raw_settings, "inputs": inputs, "code": job.code}


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """{(variant, in float64): [gradients of one process, of the first of two, of the second]}; dropout is off."""
    from conftest import Stages

    root = tmp_path_factory.mktemp("parallel")
    tied, untied = World(Stages(root), dropout=0.0), World(Stages(root / "untied"), dropout=0.0, tied=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr(train, "pick_device", lambda: torch.device("cpu"))
        jobs = {name: tied.job(training, **others) for name, (training, others) in VARIANTS.items() if name != "untied"}
        found = together(jobs, root)
        found |= together({"untied": untied.job()}, root / "untied")
    return found


def together(jobs, root):
    script = str(Path(__file__).with_name("training_process.py"))
    specs = json.dumps([spec_of(job) for job in jobs.values()])
    assert launch(2, [sys.executable, script, str(root), specs, str(root / "found")]) == 0
    ranks = [np.load(root / f"found.{rank}.npz") for rank in (0, 1)]
    assert [int(rank["rank"]) for rank in ranks] == [0, 1]
    assert ranks[0]["totals"].tolist() == ranks[1]["totals"].tolist() == [2, 1, 10]
    torch.set_num_threads(1)
    found = {}
    for number, (name, job) in enumerate(jobs.items()):
        for double, prefix in ((False, f"{number}/"), (True, f"{number}d/")):
            alone = gradients_of(job, ALONE, double)
            found[name, double] = [alone, *({key: rank[prefix + key] for key in alone} for rank in ranks)]
    return found


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("double", "tolerance"), [(True, 1e-7), (False, 2e-6)])
def test_two_processes_equal_one_in_loss_and_gradients(steps, variant, double, tolerance):
    """The two in float32 differ by its rounding: their chunks hold other texts, so sums go in another order."""
    alone, *both = steps[variant, double]
    assert len(alone) > 30
    for found in both:
        assert found["loss"] == pytest.approx(alone["loss"], rel=1e-6)
        names = [name for name in alone if name != "loss"]
        error, whole = (
            np.sqrt(sum(np.square(array, dtype=float).sum() for array in arrays))
            for arrays in ([found[name] - alone[name] for name in names], [alone[name] for name in names])
        )
        assert error <= tolerance * whole
    assert all(np.array_equal(both[0][name], both[1][name]) for name in alone)


def test_guard_variants_are_different_steps(steps):
    losses = {name: float(found[0]["loss"]) for (name, _), found in steps.items() if "gradient caching" not in name}
    del losses["masked"]  # nothing to mask in this batch
    assert len(set(losses.values())) == len(losses)
