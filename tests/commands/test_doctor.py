"""`teleport doctor`: a line and a verdict per check, the remedy in the same line, status 1 where something fails."""

import errno
import shutil
from collections import namedtuple

import pytest
import torch

from commands import doctor as module
from paths import REPOSITORY
from teleport.plan.plan import Plan
from teleport.running import devices, locks

STEP = "a training step and a search"
OLD = "The NVIDIA driver on your system is too old (found version 12020). Please update your GPU driver.\nMore"


@pytest.fixture
def doctor(tmp_path, monkeypatch, capsys):
    """A function: (status, {check: its line}) of the doctor on a machine without a GPU, in an empty folder; the check
    that takes seconds only where `whole` asks for it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    checks = module.checks

    def run(whole=False):
        monkeypatch.setattr(
            module, "checks", lambda plan: {n: check for n, check in checks(plan).items() if whole or n != STEP}
        )
        status = module.doctor(lambda: Plan.of_files([REPOSITORY / "config/config.yaml"]))
        lines = capsys.readouterr().out.splitlines()
        return status, {line[8:].partition(":")[0]: line for line in lines}

    return run


def test_a_sound_machine_has_a_line_per_check_and_nothing_is_left_behind(doctor, tmp_path):
    status, lines = doctor(whole=True)
    assert status == 0 and not [line for line in lines.values() if line.startswith("fails")]
    assert "no GPU" in lines["devices"] and "loss" in lines[STEP]
    assert len(lines) == 10 and list((tmp_path / "results").iterdir()) == []


def test_what_was_not_foreseen_fails_with_its_traceback(monkeypatch, capsys):
    monkeypatch.setattr(module, "checks", lambda make_plan: {"locks": lambda: int("bug")})
    assert module.doctor(None) == 1
    said = capsys.readouterr()
    assert said.out.startswith("fails   locks: ValueError: invalid literal") and "in doctor\n" in said.err


def test_results_that_cannot_be_written_to_fail_with_their_remedy(doctor, monkeypatch):
    def denied(**options):
        raise PermissionError(errno.EACCES, "Permission denied", "results/.lock-1")

    monkeypatch.setattr(module.tempfile, "NamedTemporaryFile", denied)
    status, lines = doctor()
    assert status == 1 and lines["locks"].startswith("fails   locks: access is refused") and "make " in lines["locks"]
    assert "results/.lock-1" in lines["locks"] and lines["disk"].startswith("ok")


def test_an_old_driver_fails_with_what_to_install(doctor, tmp_path, monkeypatch):
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n")
    monkeypatch.setattr(devices, "DRIVER", tmp_path / "version")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    ones = torch.ones

    def too_old(*sizes, device=None, **options):
        if device == "cuda":
            raise RuntimeError(OLD)
        return ones(*sizes, device=device, **options)

    monkeypatch.setattr(torch, "ones", too_old)
    status, lines = doctor()
    assert status == 1 and lines["torch"].startswith("fails") and "\n" not in lines["torch"]
    for said in ("too old (found version 12020)", "the driver is 535.104.05", "--index-url", "docs/gpu.md"):
        assert said in lines["torch"]
    for name in ("NCCL", "compiler"):  # one cause, one line that fails
        assert lines[name].startswith("warning") and "not tried: torch cannot use the GPU" in lines[name]


@pytest.mark.parametrize(("devices", "verdict"), [("", "warning"), ("0", "fails")])
def test_without_locks_gpus_cannot_be_shared_out(doctor, monkeypatch, devices, verdict):
    def none(file, operation):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(locks.fcntl, "flock", none)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    line = doctor()[1]["locks"]
    assert line.startswith(verdict) and "Function not implemented" in line and "put results on a file system" in line


def test_a_lock_that_two_can_have_fails(doctor, monkeypatch):
    monkeypatch.setattr(locks.fcntl, "flock", lambda file, operation: None)
    status, lines = doctor()
    assert status == 1 and "gives one lock to two at a time: put results on" in lines["locks"]


def test_a_compiler_is_tried(monkeypatch):
    """Triton's C code includes Python.h, which many machines with a compiler have not."""
    tried, ones = [], torch.ones

    def without_headers(function):
        tried.append(function(torch.ones(1)))
        raise RuntimeError("Command '['/usr/bin/gcc', '/tmp/main.c']' returned non-zero exit status 1.\n\nSet TORCH")

    monkeypatch.setattr("teleport.encoder.precision.pick_device", lambda: torch.device("cuda"))
    monkeypatch.setattr("teleport.running.devices.shutil.which", lambda name: name)
    monkeypatch.setattr(module, "find_spec", lambda name: True)
    monkeypatch.setattr(torch, "ones", lambda *sizes, device=None: ones(*sizes))
    monkeypatch.setattr(torch, "compile", without_headers)
    verdict, said = module.compiler()
    assert verdict == "warning" and "exit status 1.; install Python's headers" in said and "\n" not in said and tried
    monkeypatch.setattr(torch, "compile", lambda function: function)
    assert module.compiler()[0] == "ok"


def test_a_file_system_that_locks_only_what_is_open_to_write_has_locks(doctor, monkeypatch):
    """As NFS, which makes of flock(2) an exclusive lock of the server."""
    flock = locks.fcntl.flock

    def on_nfs(file, operation):
        if not file.writable():
            raise OSError(9, "Bad file descriptor")
        flock(file, operation)

    monkeypatch.setattr(locks.fcntl, "flock", on_nfs)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert doctor()[1]["locks"].startswith("ok")


def test_a_small_disk_fails_with_how_to_get_room(doctor, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: namedtuple("usage", "free")(5e8))
    status, lines = doctor()
    assert status == 1 and lines["disk"].startswith("fails")
    assert "needs 1.00 GB, but its disk has 0.50 GB free: free some space (`teleport prune" in lines["disk"]


@pytest.mark.ci(0)
def test_packages_that_a_borrowed_machine_lacks_are_said(doctor, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    status, lines = doctor(whole=True)
    assert status == 0 and "snakemake is not installed" in lines["forecast"]
    assert lines[STEP].startswith("ok"), "exact search needs no faiss"


def test_what_the_forecast_finds_too_small_is_said(doctor, monkeypatch):
    found = ["memory: encode needs about 9.0 GB, there are 8.0 GB. Use a larger machine."]
    monkeypatch.setattr("commands.forecast.printed.shortages", lambda plan: found)
    status, lines = doctor()
    assert status == 0 and lines["forecast"].startswith("warning") and found[0] in lines["forecast"]
    found.append("disk: 900.0 GB are needed below results/stages, 5.0 GB are free. Free some space.")
    status, lines = doctor()
    assert status == 1 and lines["forecast"].startswith("fails") and found[1] in lines["forecast"]
