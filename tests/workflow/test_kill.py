"""Jobs killed at random moments and run again leave the same bits as jobs that nobody disturbed."""

import os
import re
import signal
import subprocess
import time

import pytest
from killer import SAVE_OFTEN, Killer, durations_of, running_stages
from toy import World

pytestmark = pytest.mark.slow  # stages that are killed alone: tests/faults/test_stages_disturbed.py


@pytest.fixture(scope="module", params=["last episode", "all"])
def disturbed(finished, tmp_path_factory, request):
    """A second run, of the last episode or from scratch, in which every stage is killed once: (world, the stages that
    ran again, those that were killed)."""
    folder = tmp_path_factory.mktemp("killed") / "world"
    world = World.create(folder) if request.param == "all" else finished.copy(folder)
    again = set(finished.manifests()) if request.param == "all" else world.forget(3)
    killer = Killer(world.folder, durations_of(finished))
    killer.start()
    command = world.command("--retries", "2", "--set-resources", *SAVE_OFTEN)
    result = subprocess.run(command, cwd=world.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    killer.over = True
    killer.join()
    assert result.returncode == 0, result.stdout[-3000:]
    return world, again, set(killer.killed)


def test_killed_jobs_leave_the_same_bits(finished, disturbed):
    world, again, killed = disturbed
    assert {name.split("/")[0] for name in killed} == {name.split("/")[0] for name in again}
    assert world.digests() == finished.digests()
    assert len(world.digests()) > 100 and {"merge", "train", "encode"} <= {name.split("/")[0] for name in again}


def test_killed_training_really_continued(disturbed):
    world, again, killed = disturbed
    trained = {name: m for name, m in world.manifests().items() if name.startswith("train/") and name in again}
    assert trained and set(trained) <= killed
    assert all(m["facts"]["resumed_from"] > 0 and m["provenance"]["attempt"] == 2 for m in trained.values())


def test_the_tables_are_the_same(finished, disturbed):
    for suffix in ("csv", "md", "tex"):
        texts = [(w.folder / f"results/tables/main.{suffix}").read_text() for w in (finished, disturbed[0])]
        texts = [re.sub(r"; [\d,]+ s of mining and training", "", text) for text in texts]  # which are measured
        assert texts[0] == texts[1] and "ANCE-Tele" in texts[0]


def test_nothing_is_left_to_resume(disturbed):
    assert list((disturbed[0].folder / "results/resume").glob("*/*")) == []


def wait_for(condition):
    """Poll until `condition()` gives something, for at most two minutes; returns it."""
    limit = time.monotonic() + 120
    while not (found := condition()):
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.02)
    return found


def test_a_training_that_outlives_snakemake_is_waited_for_and_taken(world):
    """Snakemake alone is killed; the second process of the stage must not write the files of the first."""

    def start():
        return subprocess.Popen(command, cwd=world.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def waiting():
        logs = world.folder.glob(f"results/logs/{name}.log")  # Snakemake removes it in between
        return f"process {training}); wait for it" in "".join(path.read_text(errors="replace") for path in logs)

    world.config["training"]["steps"], world.config["episodes"] = 30, [{}]
    command = world.command("--until", "train", "--set-resources", "train:save_every=0")
    first = start()
    (state,) = wait_for(lambda: list(world.folder.glob("results/resume/train/*/state.safetensors")))
    ((name, training),) = running_stages(world.folder).items()
    os.kill(training, signal.SIGSTOP)
    first.kill()
    first.wait()
    world.snakemake("--unlock")
    second = start()
    try:
        wait_for(waiting)
    finally:
        os.kill(training, signal.SIGCONT)
    assert second.wait(120) == 0
    manifest = world.manifests()[name]
    assert manifest["provenance"]["process"] == training and manifest["facts"]["attempts"] == 1
    assert not state.exists() and "total 0" in " ".join(world.snakemake("-n", "--until", "train").split())
