"""Every row of docs/methods.md is planned, with the draws, filters and scores that it names."""

import re

import pytest
import yaml

from paths import REPOSITORY
from teleport.plan.plan import Plan
from teleport.settings import read as config

ROWS = re.findall(r"^\| (.*?) \| `(\{.*\})` \|", (REPOSITORY / "docs/methods.md").read_text(), re.MULTILINE)
BASE = yaml.safe_load((REPOSITORY / "config/config.yaml").read_text())
SCORED = {"top", "around", "triangle", "stratified"}


def test_the_page_has_rows():
    assert len(ROWS) >= 15 and len({settings for _, settings in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("name", "settings"), ROWS, ids=[name.split(" (")[0] for name, _ in ROWS])
def test_a_method_is_planned_as_its_row_says(name, settings, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    given = yaml.safe_load(settings)
    plan = Plan(*config.load(config.merged(BASE, {"experiments": {"method": given}})))
    pool = plan.trajectories["method"][0].pools[-1]
    negatives = given["negatives"]
    if "counts" in negatives:
        assert {name: draw.count for name, draw in pool.settings.sources.items()} == negatives["counts"]
    filters = {key: value for key, value in negatives.get("filters", {}).items() if key != "positive_score"}
    assert pool.settings.filters == filters
    for source, draw in pool.settings.sources.items():
        wanted = negatives.get("draws", {}).get(source, negatives.get("draw", "uniform"))
        wanted = {"kind": wanted} if isinstance(wanted, str) else wanted
        assert wanted.items() <= draw.draw.model_dump().items()
    if "positive_score" in negatives.get("filters", {}):
        assert pool.settings.positive_score == negatives["filters"]["positive_score"]
    compares = {draw.draw.kind for draw in pool.settings.sources.values()} & {"around", "triangle"}
    compares |= filters.keys() - {"max_score", "min_score", "skip_ranks"}
    assert bool(compares) == ("scores.miner" in pool.inputs), "the positives' scores are in no retrieval"
