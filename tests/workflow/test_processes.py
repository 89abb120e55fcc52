"""The workflow with a training job of two processes: how many there are is no setting, so nothing runs again."""

import re

import pytest

pytestmark = pytest.mark.slow

TWO = ["--set-resources", "train:processes=2"]


def test_two_processes_train_and_nothing_reruns_with_one(world):
    used = {"gradient_caching": True, "accumulate": 2, "optimizer": "lamb"}
    world.config["training"] |= used
    world.config["episodes"] = [{}]
    before = set(world.manifests())
    world.snakemake(*TWO)
    trained = [m for name, m in world.manifests().items() if name.startswith("train/") and name not in before]
    assert len(trained) == 1 and trained[0]["facts"]["processes"] == 2 and trained[0]["facts"]["steps"] == 6
    assert used.items() <= trained[0]["settings"]["training"].items()
    assert world.would_run()[0] == {}


def test_a_batch_that_two_processes_cannot_share_says_so(world):
    world.config["training"]["batch_queries"] = 3
    text = world.snakemake(*TWO, check=False)
    said = "training.batch_queries 3 with accumulate 1 is 3 queries at a time, which 2 processes"
    assert re.search(rf"failed: train.*: {said} .* a multiple of 2", text), text
    (log,) = (log for log in (world.folder / "results/logs/train").glob("*.log") if said in log.read_text())
    assert "the others were stopped too" in log.read_text()
