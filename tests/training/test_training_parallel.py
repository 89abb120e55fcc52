"""Two processes that train together do what one does: loss, gradients, files, resuming, and dying."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from training_process import gradients_of

from teleport.encoder import encode
from teleport.running.launch import launch
from teleport.training import parallel, train
from teleport.training.data import read_training_set
from teleport.training.parallel import ALONE, Processes
from training_world import World

VARIANTS = {
    "plain": ({}, {}),
    "positives in the pools": ({"batch_queries": 10}, {}),
    "masked": ({"batch_queries": 10, "masks": ["known_positives"]}, {}),
    "gradient caching": ({"gradient_caching": True}, {}),
    "two micro-batches": ({"accumulate": 2}, {}),
    "micro-batches with gradient caching": ({"accumulate": 2, "gradient_caching": True}, {}),
    "cosine": ({}, {"scale": 20.0}),
    "all positives": ({"batch_queries": 10, "positive": "all"}, {}),
    "all positives in chunks": (
        {"batch_queries": 10, "positive": "all", "accumulate": 5, "gradient_caching": True},
        {"max_passage_tokens": 8, "chunks": 3},
    ),
    "untied": ({}, {}),
    "ranknet": ({"loss": "ranknet"}, {}),
    "nll": ({"loss": "nll"}, {}),
    "no own negatives": ({"negatives_per_query": 0}, {}),
    "frozen passages": ({"trains": ["query"]}, {"scale": 5.0}),
    "frozen queries with gradient caching": ({"trains": ["passage"], "gradient_caching": True}, {}),
    "chunks": ({"accumulate": 2}, {"max_passage_tokens": 8, "chunks": 3}),
    "chunks with gradient caching": ({"gradient_caching": True}, {"max_passage_tokens": 8, "chunks": 3}),
}
LIVE = {
    "live search": {},
    "live search with micro-batches and gradient caching": {"accumulate": 2, "gradient_caching": True},
}
FROZEN = {"frozen passages": "passage", "frozen queries with gradient caching": "query"}


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch):
    """The processes started here compute on the CPU even where there is a GPU; they inherit this environment."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def spec_of(job):
    """The specification of a job, as run_stage.py takes it."""
    inputs = {role: f"{a.manifest['kind']}/{a.manifest['key']}" for role, a in job.inputs.items()}
    spec = {"kind": job.kind, "key": job.key, "settings": job.raw_settings, "inputs": inputs, "code": job.code}
    return spec | {"loads": job.loads}


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """{(variant, in float64): [gradients of one process, of the first of two, of the second]}; dropout is off."""
    from stages import Stages

    root = tmp_path_factory.mktemp("parallel")
    script = str(Path(__file__).with_name("training_process.py"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        patch.setenv("OMP_NUM_THREADS", "1")
        for module in (train, encode):
            patch.setattr(module, "pick_device", lambda: torch.device("cpu"))
        jobs = variants(root, Stages)
        pairs = json.dumps([[str(job.resume.parents[3]), spec_of(job)] for job in jobs.values()])
        assert launch(2, [sys.executable, script, pairs, str(root / "found")]) == 0
        return {
            name: found for number, item in enumerate(jobs.items()) for name, found in compared(root, number, *item)
        }


def variants(root, stages_class):
    """{variant: its train job}, without dropout and clipping."""
    world = World(stages_class(root), dropout=0.0)
    mixed = World(stages_class(root / "mixed"), dropout=0.0, first_negative=0)
    worlds = {"untied": World(stages_class(root / "untied"), dropout=0.0, tied=False)}
    worlds |= dict.fromkeys(("positives in the pools", "masked"), mixed)
    frozen = {name: world.frozen(side) for name, side in FROZEN.items()}
    pooled = {
        name: worlds.get(name, world).job({"max_grad_norm": 1e9} | changes, inputs=frozen.get(name), **settings)
        for name, (changes, settings) in VARIANTS.items()
    }
    live = {name: world.live(training={"max_grad_norm": 1e9} | changes) for name, changes in LIVE.items()}
    return pooled | {name: world.job(**options) for name, options in live.items()}


def compared(root, number, name, job):
    """((variant, in float64), [gradients of one process, of the first of two, of the second]) for both precisions."""
    ranks = [np.load(root / f"found.{rank}.npz") for rank in (0, 1)]
    assert [int(rank["rank"]) for rank in ranks] == [0, 1]
    assert ranks[0]["totals"].tolist() == ranks[1]["totals"].tolist() == [2, 1, 10]
    torch.set_num_threads(1)
    for double, prefix in ((False, f"{number}/"), (True, f"{number}d/")):
        alone = gradients_of(job, ALONE, double)
        yield (name, double), [alone, *({key: rank[prefix + key] for key in alone} for rank in ranks)]


@pytest.mark.ci(6)
@pytest.mark.parametrize("variant", [*VARIANTS, *LIVE])
@pytest.mark.parametrize(("double", "tolerance"), [(True, 1e-12), (False, 2e-6)])
def test_two_processes_equal_one_in_loss_and_gradients(steps, variant, double, tolerance):
    """They differ by rounding alone: their buckets hold other texts, and other texts of equal length go through the
    attention together, so sums go in another order (1.03e-6 was measured).

    The bounds are on the norm of the difference, relative to that of the gradient.
    """
    alone, *both = steps[variant, double]
    assert len(alone) > 30
    for found in both:
        assert found["loss"] == pytest.approx(alone["loss"], rel=tolerance)
        names = [name for name in alone if name != "loss"]
        error, whole = (
            np.sqrt(sum(np.square(array, dtype=float).sum() for array in arrays))
            for arrays in ([found[name] - alone[name] for name in names], [alone[name] for name in names])
        )
        assert error <= tolerance * whole
    assert all(np.array_equal(both[0][name], both[1][name]) for name in alone)


def test_gradients_are_exchanged_once_and_parameters_without_one_stay_so(monkeypatch):
    """The other process always has twice our gradients."""
    module = torch.nn.ModuleList([torch.nn.Linear(2, 3), torch.nn.Linear(3, 1), torch.nn.Linear(4, 4)])
    (module[1](module[0](torch.ones(5, 2))) ** 2).sum().backward()
    own, exchanged = [None if p.grad is None else p.grad.clone() for p in module.parameters()], []
    monkeypatch.setattr(parallel.distributed, "all_reduce", lambda flat: exchanged.append(flat.mul_(3).numel()))
    Processes(0, 2).sum_gradients(module)
    assert exchanged == [13] and all(gradient is None for gradient in own[4:])
    assert all(p.grad is g is None or torch.equal(p.grad, 3 * g) for p, g in zip(module.parameters(), own, strict=True))


def test_guard_variants_are_different_steps(steps):
    losses = {name: float(found[0]["loss"]) for (name, _), found in steps.items() if "gradient caching" not in name}
    assert len(set(losses.values())) == len(losses)


def test_a_batch_that_the_processes_cannot_share_is_refused_with_the_remedy(stages):
    job = World(stages).job({"batch_queries": 4, "accumulate": 2})
    data = read_training_set(job, 1)
    with pytest.raises(ValueError, match="2 queries .* 3 processes.*multiple of 6"):
        train.make_trainer(job, data, 12, 1, Processes(0, 3))
    train.make_trainer(job, data, 12, 1, Processes(1, 2))
    assert [part.queries_Q.size for part in data.batch(0).split(2)] == [2, 2]
