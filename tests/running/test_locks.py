"""A stage is made by one process at a time; one that waited takes what the other has made meanwhile."""

import fcntl
import os
import signal
import subprocess
import sys
import time

import pytest

from paths import REPOSITORY
from stages import spec_file
from teleport.running import locks
from teleport.running.devices import lease_devices
from teleport.running.job import Job
from teleport.running.locks import sole_process
from teleport.running.run import begin_attempt, run
from teleport.settings.section import Section


def job_of(stages, shard=None, **options):
    """A job of a stage `index`, or of a shard of it."""
    spec = {"kind": "index", "key": "a" * 12, "code": "test", "settings": {}, "inputs": {}}
    return Job(spec | {"shard": shard} | options, root=stages.root)


def make(job, text="vectors", code=None):
    """Finish the stage of `job` as run_stage does, with one file."""

    def write(job):
        job.output("a.txt").write_text(text)
        return {}

    module = type("Module", (), {"run": staticmethod(write), "Settings": Section})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "module", module, raising=False)
        patch.setattr(job, "code", code or job.code)
        run(job)


@pytest.fixture
def job(stages):
    return job_of(stages)


@pytest.fixture
def held(monkeypatch):
    """A function: another process holds a job's lock until it has done `last`, while this one sleeps for the first
    time. Returns the list of times slept."""

    def hold(job, last):
        job.lock.parent.mkdir(parents=True, exist_ok=True)
        file, sleeps = os.open(job.lock, os.O_CREAT | os.O_RDWR), []
        fcntl.flock(file, fcntl.LOCK_EX)

        def sleep(seconds):
            sleeps.append(seconds)
            if len(sleeps) == 2:
                last()
                os.close(file)

        monkeypatch.setattr(locks, "time", type("Clock", (), {"sleep": staticmethod(sleep)}))
        return sleeps

    return hold


def test_the_lock_is_held_within_the_block_alone(job):
    with sole_process(job) as finished, open(job.lock) as other:
        assert not finished and not locks.try_lock(other)
    with open(job.lock) as other:
        assert locks.try_lock(other)


def test_what_the_other_process_made_meanwhile_is_taken(job, held, caplog):
    caplog.set_level("INFO")
    begin_attempt(job)
    sleeps = held(job, lambda: make(job))
    with sole_process(job) as finished:
        assert finished and len(sleeps) == 2
    message = f"waiting: another process works on index/{job.key} ("
    assert [r.getMessage().startswith(message) for r in caplog.records if "waiting" in r.getMessage()] == [True]
    assert f" host {os.uname().nodename} process {os.getpid()}); wait for it" in caplog.text


def tear(job):
    make(job)
    (job.folder / "a.txt").write_text("vectorS")


@pytest.mark.parametrize("last", [lambda job: None, lambda job: make(job, code="other"), tear])
def test_nothing_other_or_torn_is_not_taken(job, held, last):
    sleeps = held(job, lambda: last(job))
    with sole_process(job) as finished:
        assert not finished and len(sleeps) == 2


@pytest.mark.parametrize("gpus", [0, 1])
def test_what_was_made_inside_a_lease_is_taken_by_one_that_has_none_yet(stages, held, monkeypatch, gpus):
    """On a machine with two GPUs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    job, other = (job_of(stages, gpus=gpus) for _ in range(2))

    def leased():
        with lease_devices(gpus, stages.root / "leases"):
            make(other)
            helper = job_of(stages, gpus=gpus)  # started inside the lease
            assert helper.stamp() == other.stamp() == {"code": "test", "inputs": {}}

    sleeps = held(job, leased)
    with sole_process(job) as finished:
        assert finished and len(sleeps) == 2


@pytest.mark.parametrize("waits", [True, False])
def test_what_was_there_before_is_made_anew(job, held, waits):
    make(job)
    sleeps = held(job, lambda: None) if waits else []
    with sole_process(job) as finished:
        assert not finished and len(sleeps) == 2 * waits


def test_shards_do_not_wait_for_each_other(stages):
    with sole_process(job_of(stages, "1-of-2")) as first, sole_process(job_of(stages, "2-of-2")) as second:
        assert not first and not second


def test_a_shard_is_not_finished_with_its_stage(stages, job, held):
    shard = job_of(stages, "1-of-2")
    sleeps = held(shard, lambda: make(job))
    with sole_process(shard) as finished:
        assert not finished and len(sleeps) == 2


def test_without_locks_in_the_file_system_it_is_said_and_goes_on(job, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with sole_process(job) as finished:
        assert not finished
    assert caplog.text.count("cannot be locked ([Errno 38] Function not implemented)") == 1


@pytest.fixture
def waiting(job, stages):
    """(process of run_stage.py that waits for a stage, the file whose lock it waits for)."""
    job.lock.parent.mkdir(parents=True)
    spec = {"kind": job.kind, "key": job.key, "settings": job.raw_settings, "inputs": {}}
    script = str(REPOSITORY / "workflow_scripts/run_stage.py")
    command = [sys.executable, script, spec_file(stages.root, spec), "--code", job.code]
    with open(job.lock, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = subprocess.Popen(command, cwd=stages.root, stderr=subprocess.PIPE, text=True)
        line = process.stderr.readline()
        assert f"waiting: another process works on index/{job.key} (it has just started or is about to end)" in line
        yield process, file
        process.kill()
        process.wait()


def test_sigterm_ends_a_process_that_waits(waiting):
    process, _ = waiting
    started = time.monotonic()
    process.terminate()
    assert process.wait(20) == -signal.SIGTERM and time.monotonic() - started < 5


def test_the_command_takes_what_it_waited_for(job, waiting):
    process, file = waiting
    make(job)
    job.resume.mkdir(parents=True)  # as it is left by a kill after the manifest
    (job.resume / "history.log").touch()
    before = (job.folder / "manifest.json").read_bytes()
    file.close()
    log = process.communicate(timeout=20)[1]
    assert process.returncode == 0 and f"index/{job.key} is finished: another process" in log
    assert (job.folder / "manifest.json").read_bytes() == before and not job.resume.exists()
