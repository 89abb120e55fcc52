"""The report page of the finished toy workflow: its figures against plain loops, its files, and what it leaves out."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from page_world import data, episode, pools, positives, read, record, report

from teleport.plan.plan import Plan
from teleport.report.page.contents import page_contents
from teleport.report.page.forgetting import Traces, forgetting_of
from teleport.report.page.negatives import negatives_of
from teleport.report.page.write import write_page
from teleport.report.stages import Reader
from teleport.running.artefact import MANIFEST, signed
from teleport.running.files import write_json


def spec_of(world, monkeypatch):
    monkeypatch.chdir(world.folder)
    Path("toy.yaml").write_text(yaml.safe_dump(world.config))
    return page_contents(Plan.of_files(["toy.yaml"]), ["toy.yaml"])


def mined(world, stage="retrieve-queries"):
    """Per episode {query: [neighbours without positives]}."""
    known, found = positives(world), []
    for number in (1, 2, 3):
        ids, rows = (np.load(episode(world, number, f"{stage}/{name}.npy")) for name in ("ids", "rows"))
        lines = zip(rows.tolist(), ids.tolist(), strict=True)
        found.append({q: [p for p in line if p >= 0 and p not in known[q]] for q, line in lines})
    return found


def met_first(lists):
    """[e][f]: pairs of episode e that episode f was the first to have."""
    sets = [{(q, p) for q, passages in each.items() for p in passages} for each in lists]
    counts = [[0] * len(sets) for _ in sets]
    for e, pairs in enumerate(sets):
        for pair in pairs:
            counts[e][next(f for f, other in enumerate(sets) if pair in other)] += 1
    return counts, sets


@pytest.fixture
def said(finished, monkeypatch):
    """What `negatives_of` says of the finished world."""
    spec = spec_of(finished, monkeypatch)
    return negatives_of(Reader(Path("."), spec["collection"]), spec["experiments"][0]["seeds"][0])


@pytest.mark.parametrize("level", ["trained", "mined"])
def test_composition_and_swings_equal_plain_loops(finished, said, level):
    counts, sets = met_first(pools(finished) if level == "trained" else mined(finished))
    assert said[level]["first"] == counts and sum(counts[2]) > counts[2][2] > 0
    assert said[level]["swings"] == {1: len((sets[0] & sets[2]) - sets[1])}
    shares = [[len(mine & other) / len(mine) for other in sets] for mine in sets]
    assert said[level]["overlap"] == pytest.approx(np.array(shares), abs=1e-4)
    if level == "mined":
        _, near = met_first(mined(finished, "retrieve-positives"))
        new = [sets[1] - sets[0], sets[2] - sets[1] - sets[0]]
        assert said["mined"]["new"] == [(len(each), len(each & near[e])) for e, each in enumerate(new)]


def test_sources_ranks_and_suspects_equal_plain_loops(finished, said):
    assert list(said["pools"]) == [1, 2, 3]
    for number, pool in said["pools"].items():
        names = ("sources", "ranks", "passages", "offsets")
        sources, ranks, passages, offsets = (np.load(episode(finished, number, f"merge/{n}.npy")) for n in names)
        expected, bins = {}, {}
        for source, rank in zip(sources.tolist(), ranks.tolist(), strict=True):
            name = "momentum" if source & 4 else {1: "query", 2: "lookahead"}[source]
            expected[name] = expected.get(name, 0) + 1
            if name != "momentum":
                bins.setdefault(name, [0] * 2)[(rank - 1) // 10] += 1
        assert pool["sources"] == expected and pool["ranks"] == bins
        before = finished.folder / "results/experiments/tele" / ("" if number == 1 else f"episode-{number - 1}")
        queries, vectors = (np.load(before / f"encode-{n}" / f"{n}.npy") for n in ("queries.train", "passages"))
        known, suspects = positives(finished), 0
        for query in range(len(offsets) - 1):
            positive = float(vectors[known[query][0]] @ queries[query])
            for passage in passages[offsets[query] : offsets[query + 1]]:
                suspects += float(vectors[passage] @ queries[query]) >= positive - 0.05 * abs(positive)
        assert pool["scored"] == len(passages)
        assert pool["suspects"] == pytest.approx(suspects / len(passages), abs=2 / len(passages))


def test_forgetting_equals_plain_loops(finished, monkeypatch):
    """The last checkpoint, with which nothing was mined, is ranked by the page itself where its vectors are there."""
    spec = spec_of(finished, monkeypatch)
    traces = Traces(Reader(Path("."), spec["collection"]))
    seed = spec["experiments"][0]["seeds"][0]
    sets = {each["split"]: each for each in forgetting_of(traces, seed, ["test"], {"test": ["RR@10"]})}
    known, values = positives(finished), []
    for number in (1, 2, 3):
        ids = np.load(episode(finished, number, "retrieve-queries/ids.npy")).tolist()
        ranks = [next((rank for rank, p in enumerate(line, 1) if p in known[q]), None) for q, line in enumerate(ids)]
        values.append([0 if rank is None else 1 / rank for rank in ranks])
    dropped = [sum(a < b for a, b in zip(values[c + 1], values[c], strict=True)) / 80 for c in (0, 1)]
    assert sets["train"]["rates"][:2] == pytest.approx(dropped, abs=1e-6) and max(dropped) > 0
    there = (episode(finished, 3, "encode-queries.train") / "queries.train.npy").exists()
    assert sets["train"]["checkpoints"] == ([0, 1, 2, 3] if there else [0, 1, 2])
    back = sum(before < after <= first for first, before, after in zip(*values, strict=True))
    assert sets["train"]["states"][1]["swung back"] == back
    assert [counts["forgotten"] / 80 for counts in sets["train"]["states"][:2]] == pytest.approx(dropped)
    assert sum(path[1] == "s" for path in sets["train"]["paths"]) == back
    assert sets["test"]["checkpoints"] == [0, 1, 2, 3] and sets["test"]["measure"] == "RR@10"


def test_every_link_leads_somewhere_and_every_chart_is_sound(finished):
    import vl_convert

    folder = finished.folder / "results/report/_page"
    names, drawn = {path.name for path in folder.glob("*.html")}, {}
    assert {"index.html", "diff.html", "list.html", "experiments.html", "experiment-tele.html", "stages.html"} <= names
    for name in names:
        page = read(finished, name)
        for link in page.links:
            path, _, place = link.partition("#")
            assert (path in names) if path else (place in page.ids or place in ("", "main")), (name, link)
        assert len(page.ids) == len(set(page.ids)), name
        for chart in page.charts:
            drawn.setdefault(json.dumps({key: chart[key] for key in chart if key != "datasets"}), chart)
    assert len(drawn) > 10
    for chart in drawn.values():
        vl_convert.vegalite_to_svg(chart)


def test_thirty_numbers_drawn_at_random_are_those_of_the_artefacts(finished):
    """Of the page's data: scores of queries, by the Parquet file of their stage; and means of its table."""
    scores, queries, rng = data(finished, "scores-test"), data(finished, "queries-test"), np.random.default_rng(11)
    folders = [finished.folder / "results/experiments/tele/evaluate-test"]
    folders += [episode(finished, number, "evaluate-test") for number in (1, 2, 3)]
    frames = [
        pd.read_parquet(folder / "per_query.parquet").set_index(["query_id", "measure"])["value"] for folder in folders
    ]
    first = len(scores["systems"]) - 4  # BM25 comes before the checkpoints
    for _ in range(30):
        at, system = rng.integers(len(queries["ids"])), rng.integers(4)
        measure = list(scores["scores"])[rng.integers(2)]
        ours = scores["scores"][measure][first + system][at]
        assert ours == pytest.approx(frames[system][queries["ids"][at], measure], abs=1e-4)
    text = "".join(read(finished, "index.html").text)
    for frame in frames:
        assert f"{frame.xs('RR@10', level='measure').mean():.6f} over 20 queries" in text


@pytest.mark.slow
def test_what_was_not_logged_is_left_out_and_what_is_added_is_shown(finished, world):
    def titles(of, page="results/report/_page"):
        return re.findall(r"<strong>([^<]*)</strong>", (of.folder / page / "experiment-tele.html").read_text())

    assert {"Loss.", "Learning rate.", "Gradient norm.", "Positive score."} < set(titles(finished))
    train = episode(world, 1, "train").resolve()
    (train / "norms.tsv").write_text("step\tmiddle_ones\tlower_layers\n1\t0.5\t0.25\n")
    record(train, "norms.tsv")
    report(world)
    assert set(titles(world, "page/_page")) - set(titles(finished)) == {"Middle ones."}


@pytest.mark.ci(0)
def test_the_report_of_snakemake_holds_tables_and_page(world):
    world.config["report"] = {}
    world.snakemake("--report", "report.zip")
    with zipfile.ZipFile(world.folder / "report.zip") as archive:
        names, text = archive.namelist(), archive.read("report/report.html").decode()
    shown = [[n for n in names if n.endswith(part)] for part in ("query-train-0.html", "scores-test.js", "vega.js")]
    assert "Report page" in text and "main.csv" in text and "A row per system, a column per measure" in text
    assert [len(found) for found in shown] == [1, 1, 1], names[:40]


@pytest.mark.slow
def test_an_unfinished_run_has_a_page(world):
    (world.folder / "results/tables/main.csv").unlink()
    for stage in ("train", "encode-passages", "evaluate-test"):
        (episode(world, 3, stage).resolve() / MANIFEST).unlink()
    report(world)
    index, stages = (
        " ".join(" ".join(read(world, f"{n}.html", "page/_page").text).split()) for n in ("index", "stages")
    )
    assert "ANCE-Tele, episode 2: RR@10" in index
    assert "ANCE-Tele, episode 3" not in index
    planned = 8 + 3 * 2 + 3 * 2 + 4 * 6  # of test_the_index_of_an_experiment_leads_to_its_stages
    assert f"ANCE-Tele 42 2 of 3 {planned - 3} of {planned}" in stages and "train 2 of 3" in stages
    command = [sys.executable, "workflow_scripts/manage.py", "status", "toy.yaml"]
    said = subprocess.run(command, cwd=world.folder, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1].split() == f"tele 42 2 of 3 {planned - 3} of {planned}".split()


@pytest.mark.slow
def test_runs_alone_and_a_page_without_pools_have_no_empty_pages(finished, tmp_path):
    """What is not there has no page and no entry in the navigation."""
    world = finished.copy(tmp_path / "world")
    world.config["experiments"] = {"only": {"training": {"negatives_per_query": 0}}}
    world.config["episodes"], world.config["report"] = [{}], {}
    world.snakemake()
    names = {path.name for path in (world.folder / "results/report/_page").glob("*.html")}
    text = (world.folder / "results/report/_page/experiment-only.html").read_text()
    assert not any(name.startswith(("query-train", "papers")) for name in names) and 'id="negatives"' not in text
    assert "query-test-0.html" in names and "Beside the papers" not in text


def renamed(text, names, tag):
    """Text in which each of some stages has the key of a copy, and {stage: copy}."""
    copies = {name: f"{name.split('/')[0]}/{tag}{name.split('/')[1][4:]}" for name in names}
    for name, copy in copies.items():
        text = text.replace(name, copy)
    return text, copies


def copy_stages(copies):
    """Copy stages below results under other keys; their inputs are copies where there are some. Files are linked."""
    stages = Path("results/stages")
    for name, copy in copies.items():
        shutil.copytree(stages / name, stages / copy, copy_function=os.link)
        manifest = json.loads((stages / name / MANIFEST).read_text())
        manifest |= {"key": copy.split("/")[1]}
        manifest["inputs"] = {role: copies.get(read, read) for role, read in manifest["inputs"].items()}
        (stages / copy / MANIFEST).unlink()
        write_json(stages / copy / MANIFEST, signed(manifest))


@pytest.mark.slow
def test_forty_experiments_of_three_seeds_within_a_minute(world, monkeypatch):
    """Of three episodes each: every experiment and seed has stages of its own, from the retrieval on."""
    spec = spec_of(world, monkeypatch)
    (one,), (table,), experiments = spec["experiments"], spec["tables"], []
    own = [row["stage"] for row in one["seeds"][0]["rows"] if row["episode"]]
    for e in range(40):
        seeds = []
        for seed in range(3):
            text, copies = renamed(json.dumps(one["seeds"][0] | {"seed": seed}), own, f"{3 * e + seed:04x}")
            copy_stages(copies)
            seeds.append(json.loads(text))
            spec["stages"] |= {copy: spec["stages"][name] for name, copy in copies.items()}
        experiments.append(one | {"name": f"tele-{e}", "label": f"ANCE-Tele {e}", "seeds": seeds})
        for n in (1, 2, 3):
            runs = {"test": [each["runs"][n]["test"] for each in seeds]}
            table["rows"].append(
                {"system": f"ANCE-Tele {e}", "episode": n, "seeds": [0, 1, 2], "runs": runs, "columns": {}}
            )
    started = time.process_time()
    size = write_page(spec | {"experiments": experiments}, Path("."), Path("page"))
    assert time.process_time() - started < 60
    assert size < 60e6
    assert len(list(Path("page/_page").glob("experiment-*.html"))) == 40
    charts = read(world, "index.html", "page/_page").charts
    lines = [chart for chart in charts if "datum.at" in json.dumps(chart.get("layer", ""))]
    assert len(lines) == 5 and all(len({r["system"] for r in c["datasets"]["values"]}) <= 10 for c in lines)


@pytest.mark.slow
def test_charts_for_a_paper(finished, tmp_path):
    (finished.folder / "toy.yaml").write_text(yaml.safe_dump(finished.config))
    command = [sys.executable, "workflow_scripts/manage.py", "figures", "toy.yaml", "--output", str(tmp_path / "made")]
    done = subprocess.run(command, cwd=finished.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = ("episodes", "forgetting", "loss-tele", "sources-tele", "first-tele", "mined-tele")
    assert {path.name for path in (tmp_path / "made").iterdir()} == {f"{n}.{s}" for n in names for s in ("pdf", "png")}
    widths = {
        name: re.search(rb"/MediaBox \[0 0 ([\d.]+)", (tmp_path / f"made/{name}.pdf").read_bytes()) for name in names
    }
    assert {name for name, found in widths.items() if float(found[1]) == 219} == set(names)
