"""The report page of the finished toy workflow: its figures against plain loops, and in a browser without a network."""

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
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "report/page"))

from browser import EXECUTABLE, Browser  # noqa: E402

from teleport.plan.plan import Plan  # noqa: E402
from teleport.report.page.write import write_page  # noqa: E402
from teleport.report.page_specs import page_spec  # noqa: E402
from teleport.running.artefact import MANIFEST, file_entry, signed  # noqa: E402
from teleport.running.files import write_json  # noqa: E402
from teleport.settings.read import load_files  # noqa: E402

PAGE = "results/report/_page"
MARKUP = {
    0: "</script><script>document.title = 'broken'</script><b>bold</b>",
    1: "\"double\" and 'single' quotes & <i>italics</i> \\ back",
    2: "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd from right to left",
    3: "long " * 10_000,
}
# What the page shows of a passage when the reader asks for all of it.
SHOW = """(async () => {
    const place = passages.show(%d);
    document.body.append(place);
    await place.ready;
    place.querySelector(".more")?.click();
    const text = place.querySelector("p");
    return [text.textContent, place.querySelectorAll("script, b, i").length, text.dir];
})()"""


def read(world, name, page=PAGE):
    """The value that a data file of the page hands over."""
    text = (world.folder / page / "data" / f"{name}.js").read_text(encoding="utf-8")
    return json.loads(text.removeprefix(f"page.put({json.dumps(name)},").removesuffix(");\n"))


def episode(world, number, stage):
    return world.folder / f"results/experiments/tele/episode-{number}/{stage}"


def pools(world):
    """Per episode {query: [passages]} of the pools."""
    found = []
    for number in (1, 2, 3):
        offsets, passages = (np.load(episode(world, number, f"merge/{name}.npy")) for name in ("offsets", "passages"))
        found.append({q: passages[offsets[q] : offsets[q + 1]].tolist() for q in range(len(offsets) - 1)})
    return found


def positives(world):
    """{training query: its positives}"""
    collection = world.folder / "results/experiments/tele/collection"
    lines = pq.read_table(collection / "qrels.train.parquet").to_pylist()
    found = {}
    for line in lines:
        found.setdefault(line["query"], []).append(line["passage"])
    return found


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


@pytest.mark.parametrize("level", ["trained", "mined"])
def test_composition_and_swings_equal_plain_loops(finished, level):
    (said,) = read(finished, "negatives")["tele"]["seeds"]
    counts, sets = met_first(pools(finished) if level == "trained" else mined(finished))
    assert said[level]["first"] == counts and sum(counts[2]) > counts[2][2] > 0
    assert said[level]["swings"] == {"1": len((sets[0] & sets[2]) - sets[1])}
    shares = [[len(mine & other) / len(mine) for other in sets] for mine in sets]
    assert said[level]["overlap"] == pytest.approx(np.array(shares), abs=1e-4)
    if level == "mined":
        _, near = met_first(mined(finished, "retrieve-positives"))
        new = [sets[1] - sets[0], sets[2] - sets[1] - sets[0]]
        assert said["mined"]["new"] == [[len(each), len(each & near[e])] for e, each in enumerate(new)]


def test_sources_ranks_and_suspects_equal_plain_loops(finished):
    (said,) = read(finished, "negatives")["tele"]["seeds"]
    for number, pool in zip((1, 2, 3), said["pools"], strict=True):
        names = ("sources", "ranks", "passages", "offsets")
        sources, ranks, passages, offsets = (np.load(episode(finished, number, f"merge/{n}.npy")) for n in names)
        expected, bins = {}, {}
        for source, rank in zip(sources.tolist(), ranks.tolist(), strict=True):
            name = "momentum" if source & 4 else {1: "query", 2: "lookahead"}[source]
            expected[name] = expected.get(name, 0) + 1
            if name != "momentum":
                bins.setdefault(name, [0] * 2)[(rank - 1) // 10] += 1
        assert pool["sources"] == expected and pool["ranks"] == bins
        before = "results/experiments/tele/" + ("" if number == 1 else f"episode-{number - 1}/") + "encode"
        queries, vectors = (np.load(finished.folder / before / f"{n}.npy") for n in ("queries.train", "passages"))
        known, suspects = positives(finished), 0
        for query in range(len(offsets) - 1):
            positive = float(vectors[known[query][0]] @ queries[query])
            for passage in passages[offsets[query] : offsets[query + 1]]:
                suspects += float(vectors[passage] @ queries[query]) >= positive - 0.05 * abs(positive)
        assert pool["scored"] == len(passages)
        assert pool["suspects"] == pytest.approx(suspects / len(passages), abs=2 / len(passages))


def test_forgetting_equals_plain_loops(finished):
    sets = {each["split"]: each for each in read(finished, "forgetting")["tele"]["seeds"][0]["sets"]}
    known, traces = positives(finished), []
    for number in (1, 2, 3):
        ids = np.load(episode(finished, number, "retrieve-queries/ids.npy")).tolist()
        ranks = [next((rank for rank, p in enumerate(line, 1) if p in known[q]), None) for q, line in enumerate(ids)]
        traces.append([0 if rank is None else 1 / rank for rank in ranks])
    dropped = [sum(a < b for a, b in zip(traces[c + 1], traces[c], strict=True)) / 80 for c in (0, 1)]
    assert sets["train"]["rates"] == pytest.approx(dropped, abs=1e-6) and max(dropped) > 0
    found = [[value >= 0.1 for value in line] for line in traces]
    back = sum(a and not b and c for a, b, c in zip(*found, strict=True))
    assert sets["train"]["states"][1]["swung back"] == back
    assert sets["test"]["checkpoints"] == [0, 1, 2, 3] and sets["test"]["measure"] == "RR@10"


def test_what_was_not_logged_is_left_out_and_what_is_added_is_shown(finished, world):
    curves = read(finished, "training/tele")
    assert [curve["episode"] for curve in curves] == [1, 2, 3]
    assert {"loss", "learning_rate", "gradient_norm", "positive_score", "negative_score"} < set(curves[0]["columns"])
    train = episode(world, 1, "train").resolve()
    (train / "norms.tsv").write_text("step\tlayer_1\tlayer_2\n1\t0.5\t0.25\n")
    record(train, "norms.tsv")
    report(world)
    added = [curve for curve in read(world, "training/tele", "page/_page") if curve["file"] == "norms.tsv"]
    assert [each["columns"] for each in added] == [{"layer_1": [0.5], "layer_2": [0.25]}]


def test_the_report_of_snakemake_holds_tables_and_explorer(world):
    world.config["report"] = {}
    world.snakemake("--report", "report.zip")
    with zipfile.ZipFile(world.folder / "report.zip") as archive:
        names, text = archive.namelist(), archive.read("report/report.html").decode()
        shown = {part: [n for n in names if n.endswith(part)] for part in ("q/train-0.js", "data/charts.js", "vega.js")}
        loaded = archive.read(shown["data/charts.js"][0]).decode()
    assert "Charts and explorer" in text and "every negative that each episode gave" in text
    assert "main.csv" in text and "A row per system, a column per measure" in text
    assert [len(found) for found in shown.values()] == [1, 1, 1] and '"sources"' in loaded, names[:40]


def test_an_unfinished_run_has_a_page(world):
    (world.folder / "results/tables/main.csv").unlink()
    for stage in ("train", "encode", "evaluate-test"):
        (episode(world, 3, stage).resolve() / MANIFEST).unlink()
    report(world)
    index = read(world, "index", "page/_page")
    (table,) = index["overview"]["tables"]
    assert [(row["system"], row["episode"]) for row in table["rows"]][-1] == ("ANCE-Tele", 2)
    assert index["overview"]["planned"] - len(index["overview"]["stages"]) == 3
    status, planned = read(world, "status", "page/_page"), 4 + 3 * 2 + 3 * 2 + 4 * 4
    assert status["seeds"] == [["ANCE-Tele", 42, 2, 3, planned - 3, planned]]
    assert ["train", 2, 3] in status["kinds"] and ["merge", 3, 3] in status["kinds"]
    assert status["seen"]["left"].startswith("left by the forecast: ") and "train" in status["seen"]["left"]
    command = [sys.executable, "workflow_scripts/manage.py", "status", "toy.yaml"]
    said = subprocess.run(command, cwd=world.folder, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1].split() == ["tele", "42", "2", "of", "3", "29", "of", "32"]
    assert status["seen"]["left"].split(" (")[0] in said


def record(folder, name):
    """Enter a file that a test has changed into the manifest of its stage."""
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][name] = file_entry(folder / name)
    write_json(folder / MANIFEST, signed(manifest))


def report(world, *arguments):
    """The page from what is finished, below `page`."""
    (world.folder / "toy.yaml").write_text(yaml.safe_dump(world.config))
    command = [sys.executable, "workflow_scripts/manage.py", "report", "toy.yaml", "--output", "page", *arguments]
    done = subprocess.run(command, cwd=world.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def opened(finished, tmp_path_factory):
    """(world, browser): a page whose passages and first query hold markup, with every query in full."""
    if EXECUTABLE is None:
        pytest.skip("no Chromium here: `apt-get install chromium` brings one")
    world = finished.copy(tmp_path_factory.mktemp("page") / "world")
    folder = (world.folder / "results/experiments/tele/collection").resolve()
    for name, texts in {"corpus.parquet": MARKUP, "queries.train.parquet": {0: MARKUP[0]}}.items():
        table = pq.read_table(folder / name)
        column = [texts.get(row, text) for row, text in enumerate(table["text"].to_pylist())]
        table = table.set_column(table.schema.get_field_index("text"), "text", pa.array(column, pa.string()))
        pq.write_table(table, folder / name)
        record(folder, name)
    report(world, "--queries", "all")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield world, browser
    browser.close()


def test_the_page_in_a_browser(opened):
    world, browser = opened
    browser.open(world.folder / "page/index.html")
    assert browser.evaluate("document.title") == "Results · report"

    # A cell unfolds to what is behind it, and leads to its stage.
    browser.click('.cell[data-system="ANCE-Tele"][data-episode="3"][data-column="RR@10"]')
    evaluate = episode(world, 3, "evaluate-test").resolve().name
    assert f"evaluate/{evaluate}" in browser.evaluate("document.querySelector('.unfolded').textContent")
    assert f"--configfile toy.yaml -- results/stages/evaluate/{evaluate}/manifest.json" in browser.evaluate(
        "document.querySelector('.unfolded .command').textContent"
    )
    browser.go(f"#stage/evaluate/{evaluate}")
    assert "evaluate-test, episode 3" in browser.evaluate("document.getElementById('stage-page').textContent")

    # A query, and its episodes by the keyboard.
    browser.go("#explorer")
    browser.click('.queries a[data-row="5"]')
    browser.ready("#explorer/5/tele/1")
    count = "document.querySelectorAll('[role=tabpanel] tbody tr').length"
    assert browser.evaluate(count) == len(pools(world)[0][5])
    arrow = "new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true})"
    browser.evaluate(f"document.querySelector('[role=tab][aria-selected=true]').dispatchEvent({arrow})")
    browser.ready("#explorer/5/tele/2")
    assert browser.evaluate("document.querySelector('[role=tabpanel]').dataset.episode") == "2"
    assert browser.evaluate("document.activeElement.textContent") == "Episode 2"

    # Two systems, query by query.
    browser.go("#diff/test/1/4/RR@10/3")
    assert browser.evaluate("document.querySelectorAll('.rankings .ranking li').length") == 20
    browser.go("#status")
    assert "35 of 35 stages are finished" in browser.evaluate("document.getElementById('section-status').textContent")
    for place in ("#training", "#negatives", "#forgetting"):
        browser.go(place)
        assert browser.evaluate("document.querySelectorAll('section:not([hidden]) svg').length") > 0
    assert browser.errors == []
    assert {request.split(":")[0] for request in browser.requests} <= {"file", "data", "about", "blob"}


def test_five_numbers_of_the_page_are_those_of_the_parquet(opened):
    world, browser = opened
    browser.open(world.folder / "page/index.html")
    folders = [
        world.folder / "results/experiments/tele/evaluate-test",
        *(episode(world, n, "evaluate-test") for n in (1, 2, 3)),
    ]
    places = [("Zero-shot", 0, "RR@10"), *(("ANCE-Tele", n, "RR@10") for n in (1, 2, 3)), ("ANCE-Tele", 3, "R@50")]
    for folder, (system, number, measure) in zip([*folders, folders[-1]], places, strict=True):
        table = pq.read_table(folder / "per_query.parquet").to_pandas()
        mean = table[table["measure"] == measure]["value"].mean()
        selector = f'.cell[data-system="{system}"][data-episode="{number}"][data-column="{measure}"]'
        browser.click(selector)
        unfolded = browser.evaluate("document.querySelector('.unfolded dd').textContent")
        assert unfolded == f"{mean:.6f} over 20 queries"
        shown = browser.evaluate(f"document.querySelector({json.dumps(selector)}).firstChild.textContent")
        assert shown == f"{mean:.3f}"
        browser.click(selector)


def test_texts_with_markup_are_shown_as_text(opened):
    world, browser = opened
    browser.open(world.folder / "page/index.html", "#explorer/0/tele/1")
    assert browser.evaluate("document.querySelector('.question').textContent") == MARKUP[0]
    assert browser.evaluate("document.title") == "Results · report"
    blocks = range(len(read(world, "index", "page/_page")["passages"]["starts"]))
    passages = [passage for block in blocks for passage in read(world, f"p/{block}", "page/_page")]
    numbers = {passage[0]: number for number, passage in enumerate(passages)}
    for row, text in MARKUP.items():
        shown = SHOW % numbers[f"d{row}"]
        assert browser.evaluate(shown) == [text, 0, "auto"]
    assert browser.errors == []


@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_is_wider_than_the_window(opened, width):
    world, browser = opened
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    browser.open(world.folder / "page/index.html")
    for place in (
        "#overview",
        "#training",
        "#negatives",
        "#forgetting",
        "#explorer/5/tele/2",
        "#diff/test/1/4/RR@10/3",
        "#status",
    ):
        browser.go(place)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, place


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
    monkeypatch.chdir(world.folder)
    Path("toy.yaml").write_text(yaml.safe_dump(world.config))
    spec = json.loads(page_spec(Plan(*load_files(["toy.yaml"])), ["toy.yaml"])[1].text)
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
            table["rows"].append({"system": f"ANCE-Tele {e}", "episode": n, "runs": runs, "columns": {}})
    started = time.process_time()
    size = write_page(spec | {"experiments": experiments}, Path("."), Path("page"))
    assert time.process_time() - started < 60
    assert size < 100e6
    assert (
        len(read(world, "negatives", "page/_page")) == 40
        and len(read(world, "q/train-0", "page/_page")["systems"]) == 40
    )


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
    assert {name for name, found in widths.items() if float(found[1]) == 219} >= set(names) - {"forgetting"}
