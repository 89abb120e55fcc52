"""The command that the page gives for a cell of its table, run as it stands in a fresh clone."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from toy import World

from paths import REPOSITORY

CELL = r'data-system="Zero-shot"\s+data-episode="0" data-column="RR@10".*?<code>(.*?)</code>'


def git(folder, *arguments):
    named = ["-c", "user.name=Somebody", "-c", "user.email=somebody@localhost"]
    subprocess.run(["git", *named, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.slow
def test_the_command_behind_a_cell_makes_the_same_bits_in_a_fresh_clone(tmp_path):
    world = World.create(tmp_path / "world")
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, world.folder)
    (world.folder / ".gitignore").write_text("results\n.snakemake\n__pycache__\n.venv\n")
    world.config |= {"bm25": None, "experiments": {"zero": {"episodes": []}}, "report": {}}
    world.command()  # writes the configuration
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "A method"]):
        git(world.folder, *arguments)
    world.snakemake()
    page = (world.folder / "results/report/_page/index.html").read_text()
    command = html.unescape(re.search(CELL, page, re.S)[1])
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", world.folder, clone)
    (clone / ".venv").mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):  # what `make .venv/installed` would take minutes for
        (clone / ".venv" / name).symlink_to(Path(sys.prefix) / name)
    (clone / ".venv/installed").touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    done = subprocess.run(
        ["bash", "-c", command], cwd=clone, env=environment | world.environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = re.search(r"results/stages/evaluate/\w+/manifest.json", command)[0]
    ours, again = (json.loads((folder / manifest).read_text()) for folder in (world.folder, clone))
    assert again["files"] == ours["files"] and again["facts"]["means"] == ours["facts"]["means"]
    assert again["provenance"]["git_commit"] == ours["provenance"]["git_commit"] in command
