"""The kit for machines without a network: what is packed, and that wheels come out of it as they went in."""

import importlib
import importlib.util
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata

import pytest
from bench_world import bench_on_path  # noqa: F401

from paths import REPOSITORY

IN_KIT = REPOSITORY / "bench/in_kit"


@pytest.fixture
def kit():
    return importlib.import_module("kit")


@pytest.fixture
def prepare():
    spec = importlib.util.spec_from_file_location("prepare", IN_KIT / "prepare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel(folder, name, **files):
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as packed:
        for path, content in files.items():
            packed.writestr(f"lib/{path}", content)


def test_what_is_packed_is_pinned_by_the_lock_and_without_torch(kit):
    pins = kit.pins()
    assert len(pins) == len(set(pins)) == len(kit.PACKED) and all("==" in pin for pin in pins)
    assert not [pin for pin in pins if pin.startswith(("torch=", "snakemake=", "numba=", "faiss"))]


OF_TORCH = ["torch", "sympy", "mpmath", "networkx", "setuptools"]  # with what it needs besides


@pytest.mark.slow
def test_the_packed_packages_are_enough_for_the_benchmarks_and_the_tests_of_a_gpu(kit, tmp_path):
    """In a Python that sees these alone."""
    for package in [*kit.PACKED, *OF_TORCH]:
        found = metadata.distribution(package)
        for top in {file.parts[0] for file in found.files} - {"..", "__pycache__"}:
            (tmp_path / top).exists() or (tmp_path / top).symlink_to(found.locate_file(top))
    campaign = importlib.import_module("gpu_campaign")
    paths = [tmp_path, REPOSITORY / "bench", REPOSITORY / "workflow_scripts"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    code = "import importlib.util; assert not importlib.util.find_spec('snakemake')\n"
    code += "import calibrate, encode, gpu_campaign, live, pipelined, search, step, train"
    for arguments in (["-c", code], ["-m", "pytest", "-m", "gpu", "--collect-only", "-q", *campaign.gpu_tests()]):
        command = [sys.executable, "-S", *arguments]
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_kit_that_fails_in_its_midst_leaves_nothing(kit, tmp_path, monkeypatch):
    """Nor does it touch the one that was there."""
    output = tmp_path / "kits/kit.tar.xz"
    output.parent.mkdir()
    output.write_bytes(b"the one before")

    def fail(archive, folder):
        assert any(path.name.endswith(".part") for path in output.parent.iterdir()), "nothing was begun"
        raise KeyboardInterrupt

    monkeypatch.setattr(kit, "download", lambda folder: None)
    monkeypatch.setattr(kit, "add_wheels", fail)
    with pytest.raises(KeyboardInterrupt):
        kit.make_kit(output)
    assert [path.name for path in output.parent.iterdir()] == [
        "kit.tar.xz"
    ] and output.read_bytes() == b"the one before"


def test_a_file_that_two_wheels_share_is_packed_once_and_both_come_out_whole(kit, prepare, tmp_path):
    wheel(tmp_path, "lib-1-cp311-cp311-any.whl", big=b"b" * 9000, own=b"11", **{"tests/data": b"t"})
    wheel(tmp_path, "lib-1-cp312-cp312-any.whl", big=b"b" * 9000, own=b"12")
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w|") as archive:
        kit.add_wheels(archive, tmp_path)
    made.seek(0)
    with tarfile.open(fileobj=made) as archive:
        assert len(archive.getnames()) == 4  # without the tests
        assert [entry.islnk() for entry in archive if entry.name.endswith("/big")] == [False, True]
        archive.extractall(tmp_path, filter="data")
    for tag in (b"11", b"12"):
        name = f"lib-1-cp3{tag.decode()}-cp3{tag.decode()}-any.whl"
        with zipfile.ZipFile(prepare.pack(tmp_path / "kit/wheels" / name, tmp_path)) as packed:
            assert packed.read("lib/big") == b"b" * 9000 and packed.read("lib/own") == tag


def test_wheels_of_another_python_are_left_out(prepare):
    here = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    named = [f"a-1-{here}-{here}-manylinux.whl", "a-1-cp310-abi3-manylinux.whl", "a-1-py3-none-any.whl"]
    assert [prepare.fits(name) for name in [*named, "a-1-cp39-cp39-manylinux.whl"]] == [True, True, True, False]


def test_the_repository_goes_along_with_its_commit(kit):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w|") as archive:
        kit.add_repository(archive)
    made.seek(0)
    with tarfile.open(fileobj=made) as archive:
        commit = archive.extractfile("kit/COMMIT").read().decode().strip()
        assert "kit/repository/bench/gpu_campaign.py" in archive.getnames()
    assert commit == subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, text=True).strip()


@pytest.mark.parametrize(
    ("pretend", "said"),
    [
        ("sys.version_info = (3, 9, 1)", "the kit has wheels for 3.11 and 3.12"),
        ("sys.modules['torch'] = None", "has no torch that loads"),
        ("sys.modules['torch'] = type('t', (), {'__version__': '2.10.0+cu128'})", "the kit needs 2.11 or newer"),
    ],
)
def test_a_python_or_torch_that_does_not_fit_is_refused_in_a_sentence(tmp_path, pretend, said):
    python = tmp_path / "python"
    program = f"import sys; {pretend}; exec(sys.stdin.read())"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{program}"\n')
    python.chmod(0o755)
    done = subprocess.run(["sh", IN_KIT / "run.sh", python], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr
    assert {path.name for path in IN_KIT.iterdir() if path.is_dir()} <= {"__pycache__"}
