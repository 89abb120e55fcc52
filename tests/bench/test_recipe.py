"""The recipe beside in-batch training alone: what the variant plans, and that the page follows from its data."""

import importlib
from pathlib import Path

import pytest
from bench_world import bench_on_path  # noqa: F401

from paths import REPOSITORY
from teleport.plan.plan import Plan
from teleport.settings.read import load, merged_files


@pytest.fixture
def recipe():
    return importlib.import_module("recipe")


@pytest.fixture
def plan(recipe, monkeypatch, tmp_path):
    """The plan of the variant after the template of `teleport new`, over passages that are installed."""
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    files = recipe.files_of(REPOSITORY / "config/own-data.yaml")
    collection = merged_files([str(REPOSITORY / "config/scipy.yaml")])["collection"]
    return Plan(*load(merged_files(files) | {"collection": collection}, files))


def passages(trains):
    """How many passages some train stages read."""
    read = [train.settings.training for train in trains]
    return sum(each.steps * each.batch_queries * (1 + each.negatives_per_query) for each in read)


def test_both_rows_share_the_first_episode_and_read_as_many_passages(recipe, plan):
    for ours, alone in zip(*(plan.trajectories[row] for row in (recipe.RECIPE, recipe.ALONE)), strict=True):
        assert ours.trains[0].name == alone.trains[0].name
        assert (len(ours.trains), len(alone.trains)) == (2, 3)
        assert passages(ours.trains) == passages(alone.trains)
        assert ours.episodes[-1].pool and not alone.episodes[-1].pool
    assert plan.experiments[recipe.ALONE].seeds == plan.experiments[recipe.RECIPE].seeds == [1, 2, 3, 4, 5]


def test_the_page_is_computed_from_its_scores(recipe, monkeypatch, tmp_path):
    page = (recipe.DATA / "recipe.md").read_text()
    for name in ("recipe.json", "recipe.parquet"):
        (tmp_path / name).write_bytes((recipe.DATA / name).read_bytes())
    monkeypatch.setattr(recipe, "DATA", tmp_path)
    recipe.write({})
    assert (tmp_path / "recipe.md").read_text() == page
    assert page.count(recipe.CONTRAST["name"] + ": ") >= 3, "three collections"


def test_the_page_of_results_says_what_the_scores_are(recipe):
    scores, data = recipe.read_scores(recipe.DATA / "recipe.parquet"), recipe.read_saved(recipe.DATA / "recipe.json")
    text = (REPOSITORY / "docs/results.md").read_text()
    for name in ("cloud", "foldoc", "functions"):
        (line,) = [line for line in text.split("\n") if line.startswith(f"| {name}, ")]
        _, queries, *means, difference = [cell.strip() for cell in line.strip("|").split("|")]
        own = {row: scores[f"own-{name}"][row, recipe.MEASURE] for row in recipe.LABELS}
        shown = [f"{own[row].values_QR.mean():.3f}"[1:] for row in ("bm25", "start", recipe.ALONE, recipe.RECIPE)]
        assert (int(queries), means) == (len(own["start"].values_QR), shown)
        contrast = recipe.contrast_text(own[recipe.RECIPE], own[recipe.ALONE]).replace("0.", ".")
        same = difference == "0: the same checkpoints"
        assert ("the same score" if same else difference.replace(", ", ", 95 % interval ")) in contrast
        assert not same or set(data[f"own-{name}"]["kept"].values()) == {5}
    kept = sum(part["kept"][recipe.RECIPE] for part in data.values())
    assert f"In {kept} of {5 * len(data)} trainings dev kept" in text
