"""docs/papers.md is made from docs/papers.yaml, which has every table and figure of the papers, each once."""

import importlib

import pytest
import yaml
from bench_world import bench_on_path  # noqa: F401

from paths import REPOSITORY
from teleport.report.page.write import NAVIGATION


@pytest.fixture
def bench():
    return importlib.import_module("papers")


@pytest.fixture
def data(bench):
    return yaml.safe_load(bench.DATA.read_text())


def entries(data):
    return [entry for paper in data["papers"] for entry in paper["entries"].values()]


def test_the_page_is_what_the_data_say(bench, data):
    assert bench.PAGE.read_text() == bench.write_page(data), "python bench/papers.py"


def test_all_51_are_there(data):
    numbers = {"ANCE": (7, 9), "STAR and ADORE": (6, 5), "ANCE-Tele": (10, 10), "Rank segments": (4, 0)}
    for paper, (figures, tables) in zip(data["papers"], numbers.values(), strict=True):
        names = [f"Figure {number + 1}" for number in range(figures)]
        assert list(paper["entries"]) == names + [f"Table {number + 1}" for number in range(tables)]
    assert len(entries(data)) == 51


def test_every_published_table_is_named_once(data):
    named = [entry["table"] for entry in entries(data) if "table" in entry] + list(data["others"])
    assert sorted(named) == sorted(path.stem for path in (REPOSITORY / "config/published").glob("*.yaml"))


def test_what_is_made_says_where_and_with_what(bench, data):
    for entry in entries(data):
        made = {"table", "page", "settings", "figures"} & entry.keys()
        assert bench.state(entry) == "cited" or (made and entry["with"]), entry
        assert sum(reason in entry for reason in ("cited", "lacks", "unlike")) <= 1, entry
        assert all((REPOSITORY / file).is_file() for file in entry.get("with", []))


def test_a_cited_table_has_no_figure_of_ours_and_a_generated_one_has(bench, data):
    for entry in entries(data):
        if "table" in entry:
            assert bench.filled(entry["table"]).startswith("0/") == (bench.state(entry) == "cited"), entry


def test_only_what_lacks_nothing_is_generated_and_what_lacks_something_says_why(bench, data):
    for entry in entries(data):
        if "table" in entry and bench.state(entry) == "generated":
            ours, printed = bench.filled(entry["table"]).split("/")
            assert ours == printed, entry
        assert (bench.state(entry) == "partial") == ("lacks" in entry), entry


def test_sections_of_the_report_page_are_there(data):
    assert {entry["page"] for entry in entries(data) if "page" in entry} <= set(NAVIGATION.values())


@pytest.mark.ci(0)
def test_figures_are_those_of_the_configurations(data):
    """Each is an entry of `figures` in a file that its line names, and each entry of a paper's file has a line."""
    asked, there = set(), set()
    for entry in entries(data):
        in_files = [
            yaml.safe_load((REPOSITORY / file).read_text()).get("figures", {}) for file in entry.get("with", [])
        ]
        there |= {name for figures in in_files for name in figures}
        for name in entry.get("figures", []):
            asked.add(name)
            assert any(name in figures for figures in in_files), name
    files = [yaml.safe_load(path.read_text()) for path in (REPOSITORY / "config").rglob("*.yaml")]
    assert asked == there == {name for file in files if file for name in file.get("figures", {})}


def test_enough_of_the_papers_is_generated(bench, data):
    states = [bench.state(entry) for entry in entries(data)]
    assert states.count("generated") >= 34 and states.count("cited") <= 7
