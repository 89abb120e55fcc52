"""Devices leased by real processes, on a machine whose `nvidia-smi` is a script of the test."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from paths import REPOSITORY
from teleport.running import devices, locks
from teleport.running.devices import lease_devices, parse_devices, visible_devices

TWO = """GPU 0: NVIDIA H200 (UUID: GPU-aaaa)
GPU 1: NVIDIA H200 (UUID: GPU-bbbb)
"""
PATTERN = os.path.basename(devices.DEVICE_FILES)
# Leases, says what it got, and holds it until its standard input is closed.
JOB = """
import os, sys
from teleport.running.devices import lease_devices
from teleport.running.log import configure_logging
configure_logging()
with lease_devices(int(sys.argv[1])):
    print(os.environ.get("CUDA_VISIBLE_DEVICES"), "torch" in sys.modules, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", *devices.JOB_IDS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(devices, "DEVICE_FILES", "no such file")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Starts jobs on a machine with two devices; every job that still runs at the end is ended."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin/nvidia-smi"
    script.write_text(f"#!/bin/sh\n[ \"$1\" = -L ] && cat <<'END'\n{TWO}END\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "workflow_scripts"))
    monkeypatch.chdir(tmp_path)
    started = []

    def start(count=1, **variables):
        path, command = tmp_path / f"log{len(started)}", [sys.executable, "-c", JOB, str(count)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with open(path, "w") as log:
            process = subprocess.Popen(command, env=os.environ | variables, stderr=log, **pipes)
        process.log = path
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def got(process):
    """The devices that a job sees, once it has them."""
    names, torch_loaded = process.stdout.readline().split()
    assert torch_loaded == "False"
    return names


def waits_for(process, text):
    """Wait until the job's log has `text`."""
    limit = time.monotonic() + 20
    while text not in process.log.read_text():
        assert time.monotonic() < limit and process.poll() is None, process.log.read_text()
        time.sleep(0.02)


def test_concurrent_jobs_have_distinct_devices_and_a_third_waits(machine):
    first, second = machine(), machine()
    assert {got(first), got(second)} == {"GPU-aaaa", "GPU-bbbb"}
    third, fourth = machine(), machine()
    for process, text in [(third, "waiting: "), (fourth, "waiting: ")]:
        waits_for(process, text)
    logs = [process.log.read_text() for process in (third, fourth)]
    assert sorted("1 of the CUDA devices GPU-aaaa, GPU-bbbb, which other jobs use" in log for log in logs) == [
        False,
        True,
    ]
    assert sorted("other jobs are ahead of this one in the queue for CUDA devices" in log for log in logs) == [
        False,
        True,
    ]
    first.stdin.close()
    second.stdin.close()
    assert {got(third), got(fourth)} == {"GPU-aaaa", "GPU-bbbb"}


def test_a_killed_job_gives_its_device_back(machine):
    first, second = machine(), machine()
    devices = got(first), got(second)
    third = machine()
    waits_for(third, "waiting: ")
    second.send_signal(signal.SIGKILL)
    assert got(third) == devices[1]
    assert first.poll() is None


def test_one_job_has_all_devices_and_two_such_jobs_do_not_block_each_other(machine):
    small = machine()
    assert got(small) == "GPU-aaaa"
    large, other = machine(2), machine(2)
    waits_for(large, "waiting: ")
    waits_for(other, "waiting: ")
    small.stdin.close()
    large_first = "2 of the CUDA devices" in large.log.read_text()
    jobs = [large, other] if large_first else [other, large]
    assert got(jobs[0]) == "GPU-aaaa,GPU-bbbb"
    assert jobs[1].poll() is None
    jobs[0].stdin.close()
    assert got(jobs[1]) == "GPU-aaaa,GPU-bbbb"


def test_more_than_there_are_is_an_error(machine):
    process = machine(3)
    assert process.wait(20) == 1
    error = process.log.read_text()
    assert "the stage needs 3 CUDA devices" in error and "--set-resources train:gpu=2" in error


def test_a_given_list_is_leased_from(machine):
    jobs = [machine(CUDA_VISIBLE_DEVICES="5,7") for _ in range(2)]
    assert {got(job) for job in jobs} == {"5", "7"}


@pytest.mark.parametrize("variable", devices.JOB_IDS)
def test_the_list_of_a_clusters_job_is_its_own(machine, variable):
    """Each job sees a device 0 of its own: nothing to wait for, and no file of a lease."""
    jobs = [machine(**{"CUDA_VISIBLE_DEVICES": "0", variable: name}) for name in ("11.server", "12[3].server")]
    assert [got(job) for job in jobs] == ["0", "0"]
    assert not devices.LEASES.exists()


@pytest.mark.parametrize("variable", devices.JOB_IDS)
def test_a_workflow_inside_one_clusters_job_leases_from_its_list(machine, variable):
    jobs = [machine(**{"CUDA_VISIBLE_DEVICES": "0,1", variable: "13"}) for _ in range(2)]
    others = [machine(**{"CUDA_VISIBLE_DEVICES": "0,1", variable: "14"}) for _ in range(2)]
    assert {got(job) for job in jobs} == {got(job) for job in others} == {"0", "1"}


def test_jobs_of_a_cluster_that_see_all_devices_lease_them(machine):
    """No list was given, so nvidia-smi names those of the machine. Slurm hides what is not the job's."""
    jobs = [machine(PBS_JOBID=name) for name in ("15", "16")]
    assert {got(job) for job in jobs} == {"GPU-aaaa", "GPU-bbbb"}
    slurm = [machine(2, SLURM_JOB_ID=name) for name in ("17", "18")]
    assert [got(job) for job in slurm] == ["GPU-aaaa,GPU-bbbb"] * 2


def test_without_a_driver_nothing_is_done(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with lease_devices(1):
        assert "CUDA_VISIBLE_DEVICES" not in os.environ
    assert list(tmp_path.iterdir()) == []


def test_without_nvidia_smi_devices_are_counted_by_their_files(tmp_path, monkeypatch):
    """A container may have the devices 3 and 10 of its host: CUDA numbers those that it sees from 0."""
    for name in ("nvidia3", "nvidia10", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setattr(devices, "DEVICE_FILES", f"{tmp_path}/{PATTERN}")
    monkeypatch.setenv("PATH", str(tmp_path))
    with lease_devices(1, tmp_path / "leases"):
        first = os.environ.pop("CUDA_VISIBLE_DEVICES")
        with lease_devices(1, tmp_path / "leases"):
            assert [first, os.environ["CUDA_VISIBLE_DEVICES"]] == ["0", "1"]


@pytest.mark.parametrize(("status", "told"), [(9, True), (6, False), (0, False)])
def test_a_driver_that_does_not_answer_is_told_of_where_no_device_is_seen(tmp_path, monkeypatch, caplog, status, told):
    """As after its update; a machine without a GPU may have the program, too, and goes on."""
    monkeypatch.setattr(devices, "DEVICE_FILES", f"{tmp_path}/{PATTERN}")
    result = subprocess.CompletedProcess([], status, "" if status == 0 else "no talk with the driver\n", "")
    monkeypatch.setattr(devices.shutil, "which", lambda name: name)
    monkeypatch.setattr(devices.subprocess, "run", lambda *_, **__: result)
    monkeypatch.setattr(devices.log, "propagate", True)
    with lease_devices(1, tmp_path / "leases"):
        assert ("ended with status 9 (no talk with the driver)" in caplog.text) == told
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert devices.silent_driver() is None


@pytest.mark.parametrize(
    ("status", "number", "found"),
    [(9, 1, None), (18, 2, None), (9, 0, []), (6, 2, []), (0, 1, ["GPU-aaaa", "GPU-bbbb"])],
)
def test_nvidia_smi_that_fails_is_an_error_where_devices_are(tmp_path, monkeypatch, status, number, found):
    for name in range(number):
        (tmp_path / f"nvidia{name}").touch()
    monkeypatch.setattr(devices, "DEVICE_FILES", f"{tmp_path}/{PATTERN}")
    result = subprocess.CompletedProcess([], status, TWO if status == 0 else "no talk with the driver\n", "")
    monkeypatch.setattr(devices.shutil, "which", lambda name: name)
    monkeypatch.setattr(devices.subprocess, "run", lambda *_, **__: result)
    if found is not None:
        assert visible_devices() == found
        return
    message = rf"status {status} \(no talk with the driver\).*nvidia0.*CUDA_VISIBLE_DEVICES"
    with pytest.raises(ValueError, match=message):
        visible_devices()


def test_a_job_without_devices_sees_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with lease_devices(0):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1" and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("listed", "names"),
    [("", []), ("-1", []), ("NoDevFiles", []), ("2", ["2"]), ("0, GPU-ab", ["0", "GPU-ab"]), ("0,-1,1", ["0"])],
)
def test_the_variable_is_read_as_cuda_reads_it(monkeypatch, listed, names):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert visible_devices() == names


def test_a_device_that_is_listed_twice_is_one(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,3,5")
    assert visible_devices() == ["3", "5"]
    with pytest.raises(ValueError, match="needs 3 CUDA devices .* 2 are available: 3, 5"), lease_devices(3, tmp_path):
        pass


def test_slices_stand_for_their_device():
    listing = """GPU 0: NVIDIA A100 (UUID: GPU-aaaa)
  MIG 3g.20gb     Device  0: (UUID: MIG-1111)
  MIG 3g.20gb     Device  1: (UUID: MIG-2222)
GPU 1: NVIDIA A100 (UUID: GPU-bbbb)
"""
    assert parse_devices(listing) == ["MIG-1111", "MIG-2222", "GPU-bbbb"]
    assert parse_devices("No devices were found\n") == []


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(ValueError, match="locked .*Function not implemented.*`results`"), lease_devices(1, tmp_path):
        pass


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no CUDA driver on this machine")
def test_torch_sees_the_leased_device_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "workflow_scripts"))
    code = (
        "from teleport.running.devices import lease_devices\n"
        "with lease_devices(1):\n"
        "    import torch\n"
        "    print(torch.cuda.device_count(), float(torch.ones(3, device='cuda').sum()))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["1", "3.0"]
