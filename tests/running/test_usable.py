"""A leased GPU that torch cannot use ends a stage before any work, in one sentence that says what to install."""

import os
import subprocess
import sys

import pytest
import torch

from paths import REPOSITORY
from stages import spec_file
from teleport.refusal import Refusal
from teleport.running import devices
from teleport.running.code import stage_code
from teleport.running.devices import require_usable

OLD = "The NVIDIA driver on your system is too old (found version 12020). Please update your GPU driver.\nMore"
NO_KERNEL = "CUDA error: no kernel image is available for execution on the device\nCompile with ..."
VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function: on a machine with one leased GPU torch of a build computes, or ends with an error."""
    (tmp_path / "version").write_text(VERSION)
    monkeypatch.setattr(devices, "DRIVER", tmp_path / "version")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-aaaa")

    def set_up(error=None, cuda="13.0", seen=1):
        def ones(*_, device):
            assert device == "cuda"
            if error is not None:
                raise error
            return 1.0

        monkeypatch.setattr(torch, "ones", ones)
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch, "__version__", "2.13.0+cu130")
        monkeypatch.setattr(torch.cuda, "device_count", lambda: seen)

    return set_up


@pytest.mark.parametrize(
    ("error", "cuda", "seen", "said"),
    [
        (RuntimeError(OLD), "13.0", 0, ["too old (found version 12020)", "is built for CUDA 13.0"]),
        (RuntimeError(NO_KERNEL), "13.0", 1, ["no kernel image is available", "no Volta"]),
        (
            AssertionError("Torch not compiled with CUDA enabled"),
            None,
            0,
            ["not compiled with", "is built without CUDA"],
        ),
        (None, "13.0", 2, ["sees 2 of them"]),
    ],
)
def test_what_torch_cannot_use_is_refused_with_driver_build_and_remedy(machine, error, cuda, seen, said):
    machine(error, cuda, seen)
    with pytest.raises(Refusal) as refused:
        require_usable()
    message = str(refused.value)
    common = ["(GPU-aaaa)", "the driver is 535.104.05", "torch==2.13.0 --index-url https", "--resources gpu=0"]
    assert [text for text in said + common if text not in message] == [] and "\n" not in message


def test_of_slices_that_nobody_has_leased_cuda_shows_one(machine, monkeypatch):
    """The user guide of MIG: a process can enumerate a single MIG device, however many there are."""
    machine(seen=1)
    monkeypatch.setattr(devices, "visible_devices", lambda: ["MIG-1111", "MIG-2222"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1111,MIG-2222")
    with pytest.raises(Refusal, match="sees 1 of them"):
        require_usable()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    require_usable()


def test_a_driver_of_unknown_version_is_said(machine, tmp_path):
    machine(RuntimeError(OLD))
    (tmp_path / "version").unlink()
    with pytest.raises(Refusal, match="not known"):
        require_usable()


def test_what_computes_passes_and_lack_of_memory_is_left_to_the_stage(machine):
    machine()
    require_usable()
    machine(torch.OutOfMemoryError("CUDA out of memory."))
    require_usable()


def test_that_the_cpu_is_meant_can_be_said(machine, monkeypatch):
    machine(RuntimeError(OLD))
    monkeypatch.setenv("TELEPORT_CPU", "1")
    require_usable()


UNUSABLE, NOT_GIVEN = "torch cannot compute on the leased", "this cluster job needs CUDA devices"
GOES_ON = "the settings of the"


@pytest.mark.ci(0)
@pytest.mark.parametrize(
    ("visible", "options", "cpu_meant", "said"),
    [
        ("77", "--gpus 1", "", UNUSABLE),
        pytest.param("77", "--gpus 0", "", GOES_ON, marks=pytest.mark.slow),  # those that go on load transformers
        pytest.param("", "--gpus 1", "", GOES_ON, marks=pytest.mark.slow),
        ("", "--gpus 1 --attempt 1", "", NOT_GIVEN),
        ("", "--gpus 1 --attempt 1", "1", GOES_ON),
        pytest.param("", "--gpus 0 --attempt 1", "", GOES_ON, marks=pytest.mark.slow),
    ],
)
def test_a_stage_ends_before_any_work(tmp_path, visible, options, cpu_meant, said):
    """On device 77, which no torch finds, and in a job of a cluster (it has an attempt) that was given no device. Else
    the stage goes on, as far as to its settings."""
    spec = {"kind": "encode", "key": "a" * 12, "settings": {}, "inputs": {}}
    command = [sys.executable, REPOSITORY / "workflow_scripts/run_stage.py", spec_file(tmp_path, spec)]
    command += ["--code", stage_code("encode", {}), *options.split()]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": visible, "TELEPORT_CPU": cpu_meant}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 1 and f"error: {said}" in result.stderr and "Traceback" not in result.stderr
    assert not list(tmp_path.glob("results/resume/*/*"))


@pytest.mark.ci(0)
def test_a_workflow_warns_before_its_first_job(tmp_path):
    """On device 77, which no torch finds."""
    target = "results/experiments/ance-tele/plan.tsv"
    command = [sys.executable, "-m", "snakemake", "-s", REPOSITORY / "Snakefile", "--cores", "1", target]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "77"}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    warning = "stages on a GPU will fail at once: torch cannot compute on the leased CUDA devices (77)"
    assert result.returncode == 0 and result.stderr.count(warning) == 1
    assert result.stderr.index(warning) < result.stderr.index("links of the experiments")
