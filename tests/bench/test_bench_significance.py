"""How often systems that do not differ are marked: between 3 and 7 %, give or take two standard errors."""

import importlib

import pytest
from bench_world import bench_on_path  # noqa: F401

CASES = [(way, seeds, queries) for way in ("same seeds", "other seeds") for seeds in (3, 5) for queries in (43, 200)]
CASES += [pytest.param(way, seeds, 6980, marks=pytest.mark.slow) for way, seeds, _ in CASES[::2]]


@pytest.fixture
def bench():
    return importlib.import_module("significance")


def assert_right(share, trials):
    error = (0.05 * 0.95 / trials) ** 0.5
    assert 0.03 - 2 * error < share < 0.07 + 2 * error


@pytest.mark.ci(4)
@pytest.mark.parametrize("deviation", [0.0, 0.01, 0.02])
@pytest.mark.parametrize(("way", "seeds", "queries"), CASES)
def test_queries_and_seeds(bench, way, seeds, queries, deviation):
    assert_right(bench.share(1000, way, seeds, deviation, queries), 1000)


@pytest.mark.ci(1)
@pytest.mark.parametrize("deviation", [0.0, 0.02])
@pytest.mark.parametrize("queries", [43, pytest.param(200, marks=pytest.mark.slow), 6980])
def test_one_seed_within_its_claim(bench, queries, deviation):
    """Of 6,980 queries the t-test."""
    assert_right(bench.share(400, "same seeds", 1, deviation, queries, same_shift=True), 400)


@pytest.mark.ci(0)
def test_what_the_test_over_queries_alone_would_say_of_systems(bench):
    """Checks the simulation itself: with seeds that deviate, it marks a quarter of what is nothing."""
    assert bench.share(400, "means", 3, 0.02, 200) > 0.12
    assert bench.share(100, "means", 3, 0.02, 6980) > 0.5


def test_a_difference_is_found_the_more_seeds_there_are(bench):
    few, many = (bench.share(300, "same seeds", seeds, 0.01, 200, bench.EFFECT) for seeds in (3, 5))
    assert 0.1 < few < many


def test_the_page_has_a_line_for_each_case_and_deviation(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "QUERIES", (10, 20))
    monkeypatch.setattr("sys.argv", ["significance.py", "--trials", "2", "--page", str(tmp_path / "page.md")])
    bench.main()
    lines = (tmp_path / "page.md").read_text().splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| ") and line.endswith("0 |")]
    assert len(rows) >= 1 and all(len(row) == 8 for row in rows)
    assert sum(line.startswith("| ") for line in lines) == 2 + 3 * len(bench.cases())


def test_the_page_on_marks_says_what_the_table_says(bench):
    """docs/significance.md has four rows of it: a deviation of 0.01, 6,980 queries."""
    rows = {tuple(line.strip("| ").split(" | ")) for line in bench.PAGE.read_text().splitlines() if line[:2] == "| "}
    of = {(what, tested, seeds): cells for what, tested, seeds, deviation, *cells in rows if deviation == "0.01"}
    page = (bench.PAGE.parents[1] / "significance.md").read_text()
    for row, key in {
        "queries | 1": ("1 seed, of the systems", "queries", "1"),
        "queries, mean of seeds | 3": ("mean of 3 seeds, of the systems", "queries", "3"),
        "queries and seeds, same seeds | 3": ("same seeds", "queries and seeds", "3"),
        "queries and seeds, same seeds | 5": ("same seeds", "queries and seeds", "5"),
    }.items():
        assert f"| {row} | {of[key][2]} | {of[key][5]} |" in page
