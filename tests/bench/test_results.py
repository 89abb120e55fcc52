"""Measured tables: between marks stands what the makers write from docs/measured; docs/results.md says the same."""

import importlib
import re
import subprocess
from types import SimpleNamespace

import pytest
from bench_world import bench_on_path  # noqa: F401

from paths import REPOSITORY

NAMES = ("demo", "forgetting")
STAMP = r"\*Commit ([0-9a-f]{7}(\+changes)?(, )?)+; \d+ cores of [^;]+; [^;]+; seeds? \d+(, \d+)*; [^*]+\.\*"


@pytest.fixture
def results():
    return importlib.import_module("results")


@pytest.fixture
def made(results, monkeypatch, tmp_path):
    """A page with one section called x and its maker, whose `measured` returns `maker.found`."""
    maker = SimpleNamespace(
        found={}, section=lambda data: "".join(f"{name} {part['rows']}\n" for name, part in data.items())
    )
    maker.measured = lambda: maker.found
    monkeypatch.setattr(results, "SECTIONS", {"x": "maker_of_x"})
    monkeypatch.setattr(results, "DATA", tmp_path / "measured")
    monkeypatch.setattr(results.importlib, "import_module", {"maker_of_x": maker}.get)
    begin = results.BEGIN.format(name="x")
    results.DATA.mkdir()
    results.page_of("x").write_text(f"before\n{begin}old\n{results.END}after\n")
    return maker


def between_marks(results, name):
    begin = results.BEGIN.format(name=name)
    (text,) = re.findall(
        re.escape(begin) + "(.*?)" + re.escape(results.END), results.page_of(name).read_text(), re.DOTALL
    )
    return text


@pytest.mark.parametrize("name", NAMES)
def test_a_section_is_what_its_data_say(results, name):
    maker, data = importlib.import_module(results.SECTIONS[name]), results.read_data(name)
    assert between_marks(results, name) == maker.section(data), f"python bench/{results.SECTIONS[name]}.py"
    stamps = re.findall(STAMP, between_marks(results, name).replace("\n", " "))
    assert len(stamps) == len(data), "each part says how it came about"
    if hasattr(maker, "figure") and maker.figure(data):
        assert f"]({name}.svg)" in between_marks(results, name)
        assert (results.DATA / f"{name}.svg").read_text().startswith("<svg")


def test_every_section_is_tested(results):
    assert tuple(results.SECTIONS) == NAMES


def rows_below(heading):
    """The rows of the first table below a heading of docs/results.md, as lists of cells."""
    section = (REPOSITORY / "docs/results.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return lines[0], lines[2:]


def test_the_page_says_what_the_data_of_forgetting_say(results):
    _, rows = rows_below("Forgetting")
    bench = importlib.import_module("forgetting")
    arms = {arm["label"]: bench.values_of(arm) for arm in results.read_data("forgetting")["forgetting"]["rows"]}
    for label, *cells in rows:
        values = arms[label]
        assert cells == [results.plus_minus(values[name].mean(), values[name].std()) for name in ("forgotten", "RR@10")]
    assert len(rows) == 4


@pytest.mark.parametrize("name", NAMES)
def test_the_commits_of_the_data_lead_to_this_one(results, name):
    git = ["git", "rev-parse", "--is-shallow-repository"]
    if subprocess.check_output(git, cwd=REPOSITORY, text=True).strip() == "true":
        pytest.skip("the history is not here")
    for part in results.read_data(name).values():
        for commit in part["made"]["commits"]:
            commit = commit.removesuffix("+changes")  # which the page names
            subprocess.run(["git", "merge-base", "--is-ancestor", commit, "HEAD"], cwd=REPOSITORY, check=True)


def test_a_section_is_written_and_stays_where_results_are_absent(results, made):
    made.found = {"a": {"rows": [{"row": "q", "seeds": 3}]}}
    assert results.write_section("x") == "a [{'row': 'q', 'seeds': 3}]\n"
    page = results.page_of("x").read_text()
    assert page.startswith("before\n<!-- made by python bench/results.py from docs/measured/x.json -->\na [")
    assert page.endswith("3}]\n<!-- until here -->\nafter\n")
    made.found = {}
    results.write_section("x")
    assert results.page_of("x").read_text() == page


@pytest.mark.parametrize(
    ("new", "taken"),
    [
        ([("q", 3), ("r", 1)], True),
        ([("r", 2), ("q", 4), ("s", 1)], True),
        ([("q", 2), ("r", 1)], False),
        ([("q", 8)], False),
        ([], False),
    ],
)
def test_a_part_is_replaced_where_no_row_and_no_seed_is_lost(results, new, taken):
    def part(rows):
        return {"rows": [{"row": row, "seeds": seeds} for row, seeds in rows]}

    old, other = {"a": part([("q", 3), ("r", 1)])}, {"b": part([("z", 1)])}
    assert results.joined(old, {"a": part(new)} | other) == {"a": part(new) if taken else old["a"]} | other


def test_a_page_without_the_marks_is_a_defect(results, made):
    page = results.page_of("x")
    page.write_text("nothing\n")
    with pytest.raises(ValueError, match="<!-- made by python bench/results.py .* 0 times"):
        results.replace_section(page, results.BEGIN.format(name="x"), "text")
    assert page.read_text() == "nothing\n"


def test_a_stamp_says_commit_machine_time_seeds_and_budget(results):
    commits = [40 * "a", f"{40 * 'b'}+changes"]
    facts = {"machine": "2 cores of X", "time": "9 stages, 1 minutes of 1 core", "seeds": [7], "budget": "10 steps"}
    text = results.made_text(facts | {"commits": commits})
    assert text == (
        "*Commit aaaaaaa, bbbbbbb+changes; 2 cores of X; 9 stages, 1 minutes of 1 core; seed 7; 10 steps.*\n"
    )
    assert re.fullmatch(STAMP, text.strip())
