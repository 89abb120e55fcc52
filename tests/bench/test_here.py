"""Stages without Snakemake: their order, and that several processes make the same files as one."""

import importlib
import json
from types import SimpleNamespace

import pytest
from bench_world import bench_on_path  # noqa: F401
from test_arms import SMALL

from paths import REPOSITORY
from teleport.plan.plan import Plan
from teleport.running.artefact import STAGES
from teleport.settings.read import merged_files


@pytest.fixture
def here():
    return importlib.import_module("here")


def test_what_is_read_comes_first(here):
    corpus = SimpleNamespace(name="corpus", inputs={})
    tokens = SimpleNamespace(name="tokens", inputs={"corpus": corpus})
    train = SimpleNamespace(name="train", inputs={"tokens": tokens, "corpus": corpus})
    assert list(here.needed([train, tokens])) == ["corpus", "tokens", "train"]


def test_the_longest_way_counts_the_stages_that_wait(here):
    waiting = {"corpus": (None, set()), "bm25": (None, {"corpus"}), "tokens": (None, {"corpus"})}
    waiting |= {"train": (None, {"tokens"}), "encode": (None, {"train", "tokens"})}
    assert here.longest_ways(waiting) == {"corpus": 4, "bm25": 1, "tokens": 3, "train": 2, "encode": 1}


@pytest.mark.ci(0)
def test_processes_make_the_files_of_one(here, monkeypatch, tmp_path):
    """The warm-up and its evaluation, of config/arms.yaml at toy size."""
    monkeypatch.syspath_prepend(REPOSITORY / "tests/workflow")
    from toy import make_checkpoint, make_data

    from collection_world import WORDS

    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        make_data(tmp_path / name / "toy")
        make_checkpoint(tmp_path / name / "bert", WORDS)
        raw = merged_files([str(REPOSITORY / "config/arms.yaml")]) | {"ablations": {}}
        small = {key: value for key, value in SMALL.items() if key != "ablations"}
        for file, content in (("arms.yaml", raw), ("small.yaml", small)):
            (tmp_path / name / file).write_text(json.dumps(content))
        plan = Plan.of_files(["arms.yaml", "small.yaml"])
        here.make(plan.stages.values()) if name == "one" else here.make_together(plan.stages.values(), 2)
        manifests = {path: json.loads(path.read_text()) for path in STAGES.glob("*/*/manifest.json")}
        found.append({str(path): manifest["files"] for path, manifest in manifests.items()})
    assert found[0] == found[1] and len(found[0]) > 8
