"""Thirty numbers of a page drawn at random are those of the artefacts: of the toy, of runs alone, of own data."""

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from page_numbers import charts_of, numbers, thirty
from runs_world import runs_world
from toy import World, finished, make_checkpoint  # noqa: F401

from collection_world import WORDS, random_passages, write_lines
from teleport.plan.plan import Plan
from teleport.report.paper import write
from teleport.report.rows import measured_tables
from teleport.report.table import write_table

ONE = {"means", "scores", "dots"}  # kinds of numbers that any evaluation gives
TRAINED = ONE | {"times", "costs", "losses", "rates"}


def check(folder, report, experiments, kinds):
    """Every number of a page is that of the artefacts, thirty of them by name."""
    results = folder / "results"
    links = {label: results / "experiments" / name for label, name in experiments.items()}
    found = numbers(results, results / report / "_page", links)
    assert set(found) == kinds
    drawn = thirty(found)
    assert len(drawn) == 30 and {kind for kind, *_ in drawn} == kinds
    for kind, what, shown, true in drawn:
        assert shown == pytest.approx(true, rel=1e-4, abs=1e-4), (kind, what)
    most = sum(min(30 / len(found), len({what for what, *_ in of})) for of in found.values())
    assert len({(kind, what) for kind, what, *_ in drawn}) > 2 / 3 * most


@pytest.mark.ci(0)
def test_the_toy(finished):  # noqa: F811
    check(finished.folder, "report", {"ANCE-Tele": "tele"}, TRAINED | {"sources", "first"})


def test_page_and_table_say_the_same_cost(finished, monkeypatch, tmp_path):  # noqa: F811
    """In their verdicts, in the page's table of costs, and in the column of seconds of a table."""
    monkeypatch.chdir(finished.folder)
    page = Path("results/report/_page/index.html").read_text()
    said = next(line[2:] for line in Path("results/tables/main.md").read_text().splitlines() if line.startswith("* "))
    assert f"<li>{html.escape(said)}</li>" in page and said.endswith(" s of mining and training.")
    Path("toy.yaml").write_text(yaml.safe_dump(finished.config))
    spec = measured_tables(Plan.of_files(["toy.yaml"]))["main"]
    (row,) = (each for each in spec["rows"] if each.get("cost") and each["episode"] == 3)
    (cost,) = re.findall(r'data-system="ANCE-Tele">.*?</tr>', page.partition('class="costs"')[2], re.S)
    spec |= {"columns": ["seconds"], "rows": [row | {"columns": {"seconds": row["cost"]}}], "significance": None}
    write_table(spec, Path("."), tmp_path)
    seconds = (tmp_path / "main.csv").read_text().splitlines()[1].split(",")[2]
    together = re.findall(r"<td>(.*?)</td>", cost)[2]
    assert together == f"{float(seconds):,.0f} s" and f"; {together} of mining" in said


def test_figures_for_a_paper_have_the_rows_of_the_page(finished, monkeypatch, tmp_path):  # noqa: F811
    monkeypatch.chdir(finished.folder)
    Path("toy.yaml").write_text(yaml.safe_dump(finished.config))
    plan, drawn = Plan.of_files(["toy.yaml"]), {}
    monkeypatch.setattr(write, "write_figure", lambda figure, path: drawn.update({path.name: figure}))
    names = write.write_figures(plan, Path("."), tmp_path)
    assert set(names) == {"episodes", "forgetting", "loss-tele", "sources-tele", "first-tele", "mined-tele"}
    page = Path("results/report/_page")
    shown = {
        name: charts_of((page / f"{name}.html").read_text()) for name in ("index", "experiment-tele", "experiments")
    }
    of = {"episodes": "index", "forgetting": "experiments"}
    for name, figure in drawn.items():
        rows = json.loads(json.dumps(figure.rows, default=np.generic.item))
        assert (figure.title, rows) in shown[of.get(name, "experiment-tele")] and rows, name


@pytest.mark.slow
def test_runs_alone(tmp_path):
    """Two runs and judgments, without texts."""
    world = runs_world(tmp_path / "world", ["A", "B"])
    world.snakemake()
    check(world.folder, "report", {}, ONE)


@pytest.mark.slow
def test_own_data_with_the_recipe_of_make_new(tmp_path):
    """60 passages in tables, as `teleport new` configures them, with a tiny checkpoint in place of the package's."""
    folder, texts = tmp_path / "repository", [" ".join(w) for w in random_passages(np.random.default_rng(3), 60, 5, 12)]
    World.copy_repository(folder)
    make_checkpoint(folder / "data/bert", WORDS)
    given = folder / "given"
    given.mkdir()
    write_lines(given / "corpus.tsv", [(f"d{n}", text) for n, text in enumerate(texts)])
    write_lines(given / "queries.tsv", [(f"q{n}", text[:20]) for n, text in enumerate(texts)])
    write_lines(given / "qrels.tsv", [(f"q{n}", f"d{n}", 1) for n in range(60)])
    encoder = {"checkpoint": {"package": None, "folder": "data/bert"}, "pooling": "mean", "normalize": True}
    encoder |= {"max_passage_tokens": 48, "max_query_tokens": 16}
    (folder / "small.yaml").write_text(yaml.safe_dump({"encoder": encoder}))
    for command in (
        ["workflow_scripts/manage.py", "new", "mine", "given"],
        ["-m", "snakemake", "--cores", "2", "--configfile", "config/mine.yaml", "small.yaml"],
    ):
        done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    check(folder, "report/mine", {"Tuned": "mine/tuned"}, TRAINED | {"sources", "first"})
    assert not (folder / "results/report/mine/_page/papers.html").exists()
