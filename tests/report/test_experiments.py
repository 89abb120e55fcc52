"""The folder of an experiment: links, index, and what it never removes."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from teleport.plan.experiment import Row
from teleport.report.links import link_experiment

pytestmark = pytest.mark.usefixtures("empty_folder")

SCRIPT = Path(__file__).resolve().parents[2] / "workflow_scripts" / "manage.py"
FOLDER = Path("results/experiments/tele")


class Named(NamedTuple):
    name: str


def row(link, stage, episode=0):
    return Row(Named(stage), 42, episode, link)


ROWS = [
    row("collection", "collection/c0"),
    row("episode-1/retrieve-queries", "retrieve/r1", 1),
    row("episode-1/train", "train/t1", 1),
]


def links():
    return {str(p.relative_to(FOLDER)): os.readlink(p) for p in FOLDER.rglob("*") if p.is_symlink()}


def test_links_are_relative_and_lead_to_the_stages():
    Path("results/stages/train/t1").mkdir(parents=True)
    Path("results/stages/train/t1/manifest.json").write_text("here")
    link_experiment(ROWS, FOLDER)
    assert links() == {
        "collection": "../../stages/collection/c0",
        "episode-1/retrieve-queries": "../../../stages/retrieve/r1",
        "episode-1/train": "../../../stages/train/t1",
    }
    assert (FOLDER / "episode-1/train/manifest.json").read_text() == "here"
    deeper = FOLDER / "more"
    link_experiment([row("seed-7/episode-1/train", "train/t1", 1)], deeper)
    assert (deeper / "seed-7/episode-1/train/manifest.json").read_text() == "here"


def test_plan_tsv_literally():
    link_experiment(ROWS, FOLDER)
    assert (FOLDER / "plan.tsv").read_text() == (
        "seed\tepisode\tstage\tkind\tkey\tfolder\n"
        "42\t0\tcollection\tcollection\tc0\tresults/stages/collection/c0\n"
        "42\t1\tretrieve-queries\tretrieve\tr1\tresults/stages/retrieve/r1\n"
        "42\t1\ttrain\ttrain\tt1\tresults/stages/train/t1\n"
    )


def test_a_new_plan_replaces_links_and_removes_stale_ones_only():
    Path("results/stages/train/t1").mkdir(parents=True)
    Path("results/stages/train/t1/inner").symlink_to("nowhere")
    link_experiment(ROWS, FOLDER)
    (FOLDER / "notes.txt").write_text("mine")
    (FOLDER / "episode-1" / "kept").mkdir()
    link_experiment([row("collection", "collection/c9")], FOLDER)
    assert links() == {"collection": "../../stages/collection/c9"}
    assert (FOLDER / "notes.txt").read_text() == "mine"
    assert (FOLDER / "episode-1" / "kept").is_dir()
    assert Path("results/stages/train/t1/inner").is_symlink()  # links are not followed
    link_experiment([row("collection", "collection/c9")], FOLDER)
    assert links() == {"collection": "../../stages/collection/c9"}


def test_experiments_in_folders_below_keep_their_links():
    """The experiment `tele` without a configuration's name, and the experiments of a configuration `tele`."""
    link_experiment(ROWS, FOLDER / "ance")
    (FOLDER / "mine").symlink_to("elsewhere")
    link_experiment(ROWS, FOLDER)
    link_experiment(ROWS[:1], FOLDER)
    below = {f"ance/{row.link}" for row in ROWS}
    assert set(links()) == {"collection", "mine"} | below
    (FOLDER / "plan.tsv").unlink()
    link_experiment(ROWS[1:2], FOLDER / "ance")
    assert set(links()) == {"collection", "mine", "ance/episode-1/retrieve-queries"}


@pytest.mark.parametrize("make", [lambda p: p.mkdir(parents=True), lambda p: p.write_text("mine")])
def test_a_real_file_or_folder_in_the_way_is_never_replaced(make):
    FOLDER.mkdir(parents=True)
    make(FOLDER / "collection")
    with pytest.raises(ValueError, match="tele/collection is not a link"):
        link_experiment(ROWS, FOLDER)
    assert (FOLDER / "collection").exists() and not (FOLDER / "collection").is_symlink()
    assert links() == {}
