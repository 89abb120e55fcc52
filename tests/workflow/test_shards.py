"""Passages encoded by several jobs of the real workflow: same bits, distinct devices, resumed at the shard."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from paths import REPOSITORY

pytestmark = pytest.mark.slow  # shards joined without the workflow: tests/encoder/test_encoder_shards.py

SHARDS = ["--set-scatter", "encode=3", "--set-threads", "encode_shard=1", "--resources", "gpu=2"]


def small_blocks(world):
    """The same world after an edit by which its 240 passages are four blocks."""
    path = world.folder / "workflow_scripts/teleport/encoder/encode.py"
    text = path.read_text()
    assert text.count('BLOCK_TEXTS = {"cpu": 2048') == 1
    path.write_text(text.replace('BLOCK_TEXTS = {"cpu": 2048', 'BLOCK_TEXTS = {"cpu": 64'))
    return world


@pytest.fixture(scope="module")
def target(finished):
    """The manifest of the encoding by the pretrained model."""
    made = {name: m for name, m in finished.manifests().items() if m["settings"].get("of") == "passages"}
    (name,) = [name for name, m in made.items() if m["inputs"].get("checkpoint", "").startswith("pretr")]
    return f"results/stages/{name}/manifest.json"


@pytest.fixture(scope="module")
def two_devices(tmp_path_factory):
    """A machine that says it has two CUDA devices; torch still finds none."""
    folder = tmp_path_factory.mktemp("bin")
    listing = "".join(f"GPU {n}: NVIDIA (UUID: GPU-{n})\n" for n in range(2))
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'END'\n{listing}END\n")
    (folder / "nvidia-smi").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("TELEPORT_CPU", "1")
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        yield


def with_small_blocks(finished, folder):
    """A copy of the finished world whose 240 passages are four blocks."""
    return small_blocks(finished.copy(folder))


def kill_second_shard(folder, workflow):
    """SIGKILL the job of shard 2-of-3 once it and another shard have a device."""
    while workflow.poll() is None:
        histories = {path.parent.name: path for path in (folder / "results/shards").rglob("history.log")}
        second = histories["2-of-3"].read_text() if len(histories) > 1 and "2-of-3" in histories else ""
        if process := re.search(r"process (\d+)", second):  # else it is being written
            os.kill(int(process[1]), signal.SIGKILL)
            return
        time.sleep(0.02)
    raise AssertionError("shard 2-of-3 never ran beside another one")


@pytest.fixture(scope="module")
def sharded(finished, target, two_devices, tmp_path_factory):
    """A world encoded in three shards, of which the second was killed in a first run of the workflow."""
    world = with_small_blocks(finished, tmp_path_factory.mktemp("sharded") / "world")
    command = world.command(target, "--keep-going", *SHARDS)
    with open(world.folder / "first.log", "w") as log:
        workflow = subprocess.Popen(command, cwd=world.folder, stdout=log, stderr=log)
        kill_second_shard(world.folder, workflow)
        assert workflow.wait() != 0
    logs = (world.folder / "results/logs/encode_shard").glob("*/*.log")
    world.devices = [re.search(r"CUDA devices: (\S+)", path.read_text())[1] for path in logs]
    world.left = world.would_run(arguments=[target, *SHARDS])[0]
    world.snakemake(target, *SHARDS)
    return world


def test_joined_is_whole(finished, sharded, target, tmp_path):
    whole = with_small_blocks(finished, tmp_path / "world")
    whole.snakemake(target)
    name = target.split("/", 2)[2].removesuffix("/manifest.json")
    assert "shards" not in whole.manifests()[name]["facts"]
    assert whole.digests() == sharded.digests()
    shards = sharded.manifests()[name]["facts"]["shards"]
    assert [shard["rows"] for shard in shards] == [[0, 64], [64, 128], [128, 240]]
    assert len({shard["process"] for shard in shards}) == 3, "each shard was a job of its own"


def test_a_killed_refresh_goes_on_at_the_shard(sharded):
    assert sharded.left == {"encode_shard": 1, "encode": 1}


def test_concurrent_shards_had_a_device_each(sharded):
    """Two of the three ran at a time: alone each would have taken the first device."""
    assert len(sharded.devices) == 3 and set(sharded.devices) == {"GPU-0", "GPU-1"}


@pytest.mark.parametrize("count", [1, 2])
def test_another_number_of_shards_reruns_nothing(sharded, target, count):
    assert sharded.would_run(arguments=[target, "--set-scatter", f"encode={count}"])[0] == {}


def test_nothing_of_the_shards_is_left(sharded):
    assert [path for path in (sharded.folder / "results/shards").rglob("*") if path.is_file()] == []
    assert list((sharded.folder / "results/resume").glob("*/*")) == []


def test_a_search_in_shards_has_the_bits_of_the_whole(finished, tmp_path):
    world = finished.copy(tmp_path / "world")
    again = {name for name in world.forget(3) if name.startswith("retrieve/")}
    assert again
    world.snakemake("--set-scatter", "retrieve=3")
    assert world.digests() == finished.digests()
    assert all(len(world.manifests()[name]["facts"]["shards"]) == 3 for name in again)
    assert world.would_run() == ({}, [])


PROFILE = "set-scatter: {encode: 3000000}"
TOO_MANY = {
    "the command line": ("--set-scatter encode=3000000", {}, None),
    "the command line, one of two": ("--set-scatter retrieve=2 encode=3000000 --quiet", {}, None),
    "a profile": ("--profile mine", {}, "mine/profile.yaml"),
    "a file of a profile": ("--profile mine.yaml", {}, "mine.yaml"),
    "the profile of a workflow": ("--workflow-profile mine", {}, "mine/config.yaml"),
    "the environment's profile": ("", {"SNAKEMAKE_PROFILE": "mine"}, "mine/config.yaml"),
    "profiles/default": ("", {}, "profiles/default/config.yaml"),
}


@pytest.mark.parametrize("where", TOO_MANY)
def test_so_many_shards_that_snakemake_would_never_come_to_an_end_are_refused(tmp_path, where):
    line, environment, profile = TOO_MANY[where]
    if profile:
        (tmp_path / profile).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / profile).write_text(PROFILE)
    command = [sys.executable, "-m", "snakemake", "-n", "-s", str(REPOSITORY / "Snakefile"), *line.split()]
    options = {"cwd": tmp_path, "env": os.environ | environment, "capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run(command, **options)
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 1 and "encode=3000000: at most 1000 shards" in error
    assert "Traceback" not in done.stderr
