"""run_stage.py: what is unchanged is taken and what is forced is made; and whose environment."""

import fcntl
import itertools
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paths import REPOSITORY
from stages import spec_file
from teleport.running.artefact import Artefact
from teleport.running.code import stage_code
from teleport.running.job import Job
from teleport.running.run import FINISHED, run, take
from teleport.search import index


@pytest.fixture
def indexed(stages, monkeypatch):
    """A function that runs the stage `index` over eight vectors in an attempt, on a day of its own."""

    def write(job):
        with open(job.output("passages.npy"), "wb") as file:
            np.save(file, np.ones((8, 2), np.float32))
        return {"dim": 2}

    encode = stages.run(write, "encode")
    job, days = stages.make("index", {}, {"passages": encode}), itertools.count()

    def attempt(code="test", since=0.0):
        job.code, day = code, next(days)
        (job.folder / "manifest.json").unlink(missing_ok=True)  # as Snakemake does before a job
        monkeypatch.setattr("time.time", lambda: 4102488000.0 + 86400.0 * day)  # from noon of 2100-01-01 on
        take(job, since) or run(job)
        manifest = json.loads((job.folder / "manifest.json").read_text())
        return int(manifest["provenance"]["started"][8:10]) - 1  # the day on which it was made

    attempt.job = job
    return attempt


def test_an_unchanged_stage_is_taken_as_it_is(indexed, caplog):
    caplog.set_level("INFO")
    assert [indexed(), indexed(), indexed()] == [0, 0, 0]
    assert caplog.text.count("is unchanged") == 2 and not indexed.job.resume.exists()


def test_what_is_taken_leaves_nothing_of_a_kill_after_the_manifest(indexed):
    indexed()
    indexed.job.resume.mkdir(parents=True)
    (indexed.job.resume / "history.log").touch()
    assert indexed() == 0 and not indexed.job.resume.exists()


def test_what_is_forced_is_made_anew(indexed):
    assert [indexed(), indexed(since=math.inf), indexed()] == [0, 1, 1]


def test_what_was_made_since_it_was_forced_is_taken_by_the_next_attempt(indexed):
    """A cluster's second attempt must make what the first could not, and need not make what it finished."""
    indexed()
    finished = indexed.job.folder / FINISHED
    asked = finished.stat().st_mtime + 1.0
    assert indexed(since=asked) == 1
    os.utime(finished, (asked + 1.0, asked + 1.0))  # as if a second had passed
    assert indexed(since=asked) == 1


def test_what_an_earlier_run_finished_is_not_taken_after_a_forced_one_that_fails(indexed, monkeypatch):
    def fails(job):
        raise RuntimeError("out of memory")

    indexed()
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="out of memory"):
        patch.setattr(index, "run", fails)
        indexed(since=math.inf)
    assert indexed() == 2


def test_what_was_made_while_a_clock_was_ahead_is_made_anew_too(indexed):
    indexed()
    os.utime(indexed.job.folder / FINISHED, (5e9, 5e9))
    assert [indexed(), indexed(since=4e9)] == [0, 2]


def test_a_clock_that_is_set_back_changes_no_duration(indexed, monkeypatch):
    readings = itertools.count(4102444800.0, -3600.0)
    monkeypatch.setattr("time.time", lambda: next(readings))
    run(indexed.job)
    made = json.loads((indexed.job.folder / "manifest.json").read_text())["provenance"]
    assert all(0 <= seconds < 60 for seconds in (made["wall_seconds"], *made["seconds"].values()))


def test_what_other_code_made_is_not_taken(indexed):
    assert [indexed(), indexed("other"), indexed("other"), indexed()] == [0, 1, 1, 3]


def test_inputs_of_equal_content_are_the_same_inputs(indexed):
    """Whatever their manifests say besides: an edit further up that changes no file costs nothing."""
    indexed()
    encode = indexed.job.inputs["passages"]
    encode.manifest["provenance"] = {"wall_seconds": 9.0}
    encode.manifest["facts"]["texts_per_second"] = 7.0
    assert indexed() == 0
    encode.manifest["facts"]["num_passages"] = 12345
    assert not take(indexed.job), "a fact that stages read"
    del encode.manifest["facts"]["num_passages"]
    assert take(indexed.job)
    encode.manifest["files"]["passages.npy"]["sha256"] = "0" * 64
    assert not take(indexed.job)


def test_a_shard_of_an_unchanged_stage_has_nothing_to_make(indexed, stages):
    indexed()
    spec = indexed.job.spec | {"shard": "1-of-2"}
    shard = Job(spec, root=stages.root)
    assert take(shard) and (shard.resume / "manifest.json").exists()
    assert indexed() == 0 and not shard.resume.exists()
    assert not take(Job(spec | {"code": "other"}, root=stages.root))


@pytest.mark.parametrize("name", ["index.json", FINISHED])
def test_what_is_torn_is_not_taken(indexed, name):
    indexed()
    path = indexed.job.folder / name
    path.write_text(path.read_text()[:-3])
    assert indexed() == 1


def test_a_result_whose_facts_were_edited_is_not_taken(indexed):
    indexed()
    path = indexed.job.folder / FINISHED
    path.write_text(path.read_text().replace('"facts": {', '"facts": {"edited": 1, '))
    assert "edited" in json.loads(path.read_text())["facts"]
    assert not take(indexed.job)


def test_vectors_that_were_deleted_on_purpose_need_not_be_there(indexed):
    indexed()
    Artefact(indexed.job.folder).delete_files()
    assert indexed() == 0
    (indexed.job.folder / "deleted.json").unlink()
    assert indexed() == 2


def command(job):
    """What runs a job of the stage `index` from the folder of its results."""
    inputs = {role: f"{a.manifest['kind']}/{a.manifest['key']}" for role, a in job.inputs.items()}
    spec = spec_file(job.root, {"kind": "index", "key": job.key, "settings": {}, "inputs": inputs})
    program = str(REPOSITORY / "workflow_scripts/run_stage.py")
    return [sys.executable, program, spec, "--code", stage_code("index", {})]


def test_ctrl_c_ends_a_stage_as_sigterm_does(indexed, tmp_path):
    indexed.job.lock.parent.mkdir(parents=True)
    with open(indexed.job.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # so that it waits
        heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # a job in the background is deaf
        process = subprocess.Popen(command(indexed.job), cwd=tmp_path, stderr=subprocess.PIPE, text=True, **heard)
        assert "waiting: another process" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGTERM and process.stderr.read() == ""


@pytest.mark.parametrize("size", ["2", "0", "many"])
def test_what_another_launcher_left_in_the_environment_decides_nothing(indexed, tmp_path, size):
    """torchrun, MPI and Slurm scripts export such variables; a stage that took them for its own wrote no manifest."""
    left = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "nowhere"}
    result = subprocess.run(command(indexed.job), cwd=tmp_path, env=os.environ | left, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert (indexed.job.folder / "manifest.json").exists()


def test_a_kill_while_saved_work_is_removed_has_nobody_go_on_with_the_rest(indexed, monkeypatch):
    def killed(folder, **options):
        (folder / "rows.npy").unlink()
        raise KeyboardInterrupt

    saved = indexed.job.resume / "rows.json"
    saved.write_text('{"done": 8}')
    (indexed.job.resume / "rows.npy").write_text("")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("shutil.rmtree", killed)
        indexed(0)
    assert saved.exists() and indexed.job.open_resume() is False and not saved.exists()


def test_only_saved_work_is_spoken_of(indexed, caplog, monkeypatch):
    def fails(job):
        raise RuntimeError("out of memory")

    caplog.set_level("INFO")
    with monkeypatch.context() as patch:
        patch.setattr(index, "run", fails)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                indexed(0)
        assert "attempt 2" in caplog.text and "resume state kept" not in caplog.text
        (indexed.job.resume / "rows.npy").write_text("")
    indexed(0)
    assert "attempt 3, resume state kept" in caplog.text


def test_the_manifest_is_on_the_disk_after_the_files_that_it_lists(indexed, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", lambda number: synced.append(Path(os.readlink(f"/proc/self/fd/{number}")).name))
    indexed()
    files = json.loads((indexed.job.folder / "manifest.json").read_text())["files"]
    assert files and set(synced[:-2]) == {Path(name).name for name in files}
    assert synced[-2:] == [FINISHED, "manifest.json"]
