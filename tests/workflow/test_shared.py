"""A shared experiment in another clone with an empty results folder: nothing is planned for its stages."""

import shutil
import subprocess
import sys

import pytest
import yaml
from toy import World

from teleport.running.artefact import MANIFEST


def teleport(world, *arguments):
    """A command in the folder of a world; returns its standard output."""
    command = [sys.executable, "workflow_scripts/manage.py", *map(str, arguments)]
    done = subprocess.run(command, cwd=world.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def clone(finished, tmp_path):  # noqa: F811
    """Another clone, with the data and without results."""
    world = World(tmp_path / "elsewhere/clone")
    World.copy_repository(world.folder)
    shutil.copytree(finished.folder / "data", world.folder / "data")
    world.config["report"] = None
    (world.folder / "toy.yaml").write_text(yaml.safe_dump(world.config))
    return world


@pytest.mark.ci(0)
def test_the_plan_has_no_stage_to_make_after_a_fetch(finished, clone, tmp_path):
    archive, number = tmp_path / "tele.tar", len(finished.manifests())
    assert teleport(finished, "share", "tele", "--to", archive).startswith(f"{number} stages, ")
    said = teleport(clone, "fetch", archive, "toy.yaml")
    assert said.startswith(f"Arrived from {archive}: {number} stages, ")
    assert f"Finished: {number} of {number} stages of the conf" in said
    counts, _ = clone.would_run()
    assert counts and set(counts) <= {"all", "configuration", "experiments", "tables"}


@pytest.mark.slow
def test_a_job_asks_the_places_of_the_configuration_and_the_table_is_the_same(finished, clone, tmp_path):
    teleport(finished, "share", "tele", "--to", tmp_path / "shared", "--without", "vectors")
    clone.config["artefacts"] = ["../../shared"]
    assert clone.would_run()[0]["train"] == 3, "a place is no part of the plan"
    clone.snakemake()
    table = "results/tables/main.csv"
    assert (clone.folder / table).read_bytes() == (finished.folder / table).read_bytes()
    assert clone.digests() == finished.digests()
    logs = [path.read_text() for path in (clone.folder / "results/logs/train").glob("*.log")]
    assert len(logs) == 3 and all("was copied from ../../shared" in log and "step" not in log for log in logs)
    assert not list((clone.folder / "results/stages/encode").glob("*/*.npy"))
    assert clone.would_run() == ({}, []), "what has arrived is finished for Snakemake too"
    clone.config["training"] = clone.config["training"] | {"steps": 7}
    assert clone.would_run()[0]["train"], "a place holds nothing up that it does not have"
    first = next((tmp_path / "shared/stages/train").glob("*/losses.tsv"))
    text = first.read_text()
    first.write_text(text.replace("4", "5", 1))
    (clone.folder / "results/stages/train" / first.parent.name / MANIFEST).unlink()
    (clone.folder / "results/stages/train" / first.parent.name / "finished.json").unlink()
    clone.config["training"] = clone.config["training"] | {"steps": 6}
    said = clone.snakemake(f"results/stages/train/{first.parent.name}/{MANIFEST}", check=False)
    assert f"stages/train/{first.parent.name}/losses.tsv does not match the size and SHA-256" in said
