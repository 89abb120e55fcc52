"""An experiment with more links than the 128 KiB that one argument of a program may have could name."""

import os

import pytest

from teleport.plan.plan import Plan
from teleport.report.links import experiment_folders
from teleport.running.artefact import MANIFEST, STAGES

MAX_ARG_STRLEN = 128 * 1024  # of Linux


@pytest.mark.slow
def test_the_index_of_200_seeds(world, monkeypatch):
    """The stages only look finished: the rule of the index and its command are the real ones."""
    monkeypatch.chdir(world.folder)
    world.config |= {"name": "many", "seeds": list(range(200)), "episodes": [{}]}
    world.command()
    plan = Plan.of_files(["toy.yaml"])
    for name in plan.stages:
        path = STAGES / name / MANIFEST
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1, 1))
    ((folder, trajectories),) = experiment_folders(plan).items()
    assert sum(len(row.link) for trajectory in trajectories for row in trajectory.rows) > MAX_ARG_STRLEN
    world.snakemake(f"{folder}/plan.tsv")
    rows = (world.folder / folder / "plan.tsv").read_text().splitlines()[1:]
    assert len(rows) == len(plan.trajectories["tele"][0].rows) * 200
    assert (world.folder / folder / "seed-199/episode-1/train/manifest.json").is_file()
