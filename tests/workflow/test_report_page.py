"""The report page of the finished toy workflow: its figures against plain loops, and in a browser without a network."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "report/page"))

from browser import EXECUTABLE, Browser  # noqa: E402

from teleport.plan.plan import Plan  # noqa: E402
from teleport.report.page.forgetting import Traces, forgetting_of  # noqa: E402
from teleport.report.page.negatives import negatives_of  # noqa: E402
from teleport.report.page.reader import Reader  # noqa: E402
from teleport.report.page.write import write_page  # noqa: E402
from teleport.report.page_specs import page_spec  # noqa: E402
from teleport.running.artefact import MANIFEST, file_entry, signed  # noqa: E402
from teleport.running.files import write_json  # noqa: E402
from teleport.settings.read import load_files  # noqa: E402

MARKUP = {
    0: "</script><script>document.title = 'broken'</script><b>bold</b>",
    1: "\"double\" and 'single' quotes & <i>italics</i> \\ back {{ braces }} {% raw %}",
    2: "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd from right to left",
    3: "long " * 10_000,
}


class Html(HTMLParser):
    """The charts, links and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.charts, self.links, self.ids, self.text, self.inside = [], [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.inside = tag if tag in ("script", "style") else None
        self.chart = given.get("type") == "application/json" and given.get("class") != "index"
        self.links += [given["href"]] if tag == "a" and "href" in given else []
        self.ids += [given["id"]] if "id" in given else []

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script" and self.chart:
            self.charts.append(json.loads(data))
        elif self.inside is None:
            self.text.append(data)


def read(world, name, page="results/report/_page"):
    """A page of the report."""
    return Html((world.folder / page / name).read_text(encoding="utf-8"))


def data(world, name, page="results/report/_page"):
    """The value that a data file of the page hands over."""
    text = (world.folder / page / f"{name}.js").read_text(encoding="utf-8")
    return json.loads(text.removeprefix(f"page.put({json.dumps(name)},").removesuffix(");\n"))


def spec_of(world, monkeypatch):
    monkeypatch.chdir(world.folder)
    Path("toy.yaml").write_text(yaml.safe_dump(world.config))
    return json.loads(page_spec(Plan(*load_files(["toy.yaml"])), ["toy.yaml"])[1].text)


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


@pytest.fixture
def said(finished, monkeypatch):
    """What `negatives_of` says of the finished world."""
    spec = spec_of(finished, monkeypatch)
    return negatives_of(Reader(Path("."), spec["collection"]), spec["experiments"][0]["seeds"][0], spec["flags"])


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
    there = (episode(finished, 3, "encode") / "queries.train.npy").exists()
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
        measure = scores["measures"][rng.integers(2)]
        ours = scores["scores"][measure][first + system][at]
        assert ours == pytest.approx(frames[system][queries["ids"][at], measure], abs=1e-4)
    text = "".join(read(finished, "index.html").text)
    for frame in frames:
        assert f"{frame.xs('RR@10', level='measure').mean():.6f} over 20 queries" in text


def test_what_was_not_logged_is_left_out_and_what_is_added_is_shown(finished, world):
    def titles(of, page="results/report/_page"):
        return re.findall(r"<strong>([^<]*)</strong>", (of.folder / page / "experiment-tele.html").read_text())

    assert {"Loss.", "Learning rate.", "Gradient norm.", "Positive score."} < set(titles(finished))
    train = episode(world, 1, "train").resolve()
    (train / "norms.tsv").write_text("step\tmiddle_ones\tlower_layers\n1\t0.5\t0.25\n")
    record(train, "norms.tsv")
    report(world)
    assert set(titles(world, "page/_page")) - set(titles(finished)) == {"Middle ones."}


def test_the_report_of_snakemake_holds_tables_and_page(world):
    world.config["report"] = {}
    world.snakemake("--report", "report.zip")
    with zipfile.ZipFile(world.folder / "report.zip") as archive:
        names, text = archive.namelist(), archive.read("report/report.html").decode()
    shown = [[n for n in names if n.endswith(part)] for part in ("query-train-0.html", "scores-test.js", "vega.js")]
    assert "Report page" in text and "main.csv" in text and "A row per system, a column per measure" in text
    assert [len(found) for found in shown] == [1, 1, 1], names[:40]


def test_an_unfinished_run_has_a_page(world):
    (world.folder / "results/tables/main.csv").unlink()
    for stage in ("train", "encode", "evaluate-test"):
        (episode(world, 3, stage).resolve() / MANIFEST).unlink()
    report(world)
    index, stages = (
        " ".join(" ".join(read(world, f"{n}.html", "page/_page").text).split()) for n in ("index", "stages")
    )
    assert "Verdicts ANCE-Tele" not in index and "ANCE-Tele, episode 2: RR@10" in index
    assert "ANCE-Tele, episode 3" not in index
    planned = 4 + 3 * 2 + 3 * 2 + 4 * 4
    assert f"ANCE-Tele 42 2 of 3 {planned - 3} of {planned}" in stages and "train: 2 of 3" in stages
    command = [sys.executable, "workflow_scripts/manage.py", "status", "toy.yaml"]
    said = subprocess.run(command, cwd=world.folder, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1].split() == ["tele", "42", "2", "of", "3", "29", "of", "32"]
    assert "Left by the forecast: " in stages


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
def marked(finished, tmp_path_factory):
    """A world whose passages and first query hold markup, with every query in full, as a folder and as one file."""
    world = finished.copy(tmp_path_factory.mktemp("page") / "world")
    folder = (world.folder / "results/experiments/tele/collection").resolve()
    for name, texts in {"corpus.parquet": MARKUP, "queries.train.parquet": {0: MARKUP[0]}}.items():
        table = pq.read_table(folder / name)
        column = [texts.get(row, text) for row, text in enumerate(table["text"].to_pylist())]
        table = table.set_column(table.schema.get_field_index("text"), "text", pa.array(column, pa.string()))
        pq.write_table(table, folder / name)
        record(folder, name)
    report(world, "--queries", "all")
    report(world, "--queries", "all", "--share", "all.html")
    return world


@pytest.fixture(scope="module", params=["folder", "one file"])
def opened(marked, tmp_path_factory, request):
    """(how an address of the page is opened, browser)."""
    if EXECUTABLE is None:
        pytest.skip("no Chromium here: `apt-get install chromium` brings one")
    browser = Browser(tmp_path_factory.mktemp("profile"))

    def go(page="index.html", place=""):
        if request.param == "folder":
            browser.open(marked.folder / "page/_page" / page, f"#{place}" if place else "")
        else:
            browser.open(marked.folder / "all.html", f"#{page}/{place}" if place else f"#{page}")

    yield go, browser
    browser.close()


VISIBLE = "[...document.querySelectorAll('%s')].find((each) => each.offsetParent)"


def follow(browser, selector, text=None):
    """Click on the first visible element (that has a text), and wait until what it opens is drawn."""
    chosen = f"each.offsetParent && {'true' if text is None else f'each.textContent.trim() === {json.dumps(text)}'}"
    found = f"[...document.querySelectorAll({json.dumps(selector)})].find((each) => {chosen})"
    browser.wait(found)
    browser.evaluate(f"{found}.click()")
    time.sleep(0.2)
    browser.wait("document.documentElement?.dataset.ready")


def shown(browser, selector):
    return browser.evaluate(f"{VISIBLE % selector}?.textContent.replace(/\\s+/g, ' ').trim()")


def test_is_b_better_than_a_and_where(opened, marked):
    """One click from the matrix to the two systems, a second one to a query with both top tens."""
    go, browser = opened
    go()
    assert browser.evaluate("document.title").endswith("· ANCE-Tele")
    pairs = pd.read_csv(marked.folder / "results/tables/main.pairs.csv")
    pair = pairs[(pairs["a"] == 1) & (pairs["b"] == 4)].iloc[0]
    assert "ANCE-Tele" in shown(browser, ".verdicts") and "BM25" in shown(browser, ".verdicts")
    title = f"ANCE-Tele, episode 3 less Zero-shot: won {pair.won}, lost {pair.lost} queries"
    follow(browser, f'.matrix a[title="{title}"]')
    said = shown(browser, ".said")
    assert (
        f"won {pair.won}, lost {pair.lost}, the same on {20 - pair.won - pair.lost} queries" in said and ", p " in said
    )
    assert browser.evaluate(f"{VISIBLE % '.queries'}.querySelectorAll('li').length") == 20
    follow(browser, ".queries li a")
    columns = (
        "[...document.querySelectorAll('.tops thead tr:first-child th')].filter((each) => each.offsetParent).length"
    )
    assert browser.evaluate(columns) == 3
    assert browser.errors == []


def test_which_negatives_had_a_query_in_an_episode(opened, marked):
    go, browser = opened
    go("list.html", "train")
    follow(browser, '.queries a[data-row="5"]')
    lines = f"[...{VISIBLE % '.negatives'}.querySelectorAll('tbody tr')]"
    cells = lines + ".map((each) => each.children[%d].textContent.trim())"
    for number in (1, 2, 3):
        filled = [text for text in browser.evaluate(cells % number) if text]
        assert len(filled) == len(set(pools(marked)[number - 1][5]))
        assert all(text.split()[0] in ("query", "lookahead", "momentum") for text in filled)
    assert browser.evaluate(f"{VISIBLE % '.chart'}.querySelectorAll('svg').length") == 1
    assert browser.errors == []


def test_which_queries_were_forgotten(opened, marked):
    go, browser = opened
    go("experiment-tele.html")
    row = f"[...{VISIBLE % '.states'}.querySelectorAll('tbody tr')]"
    counts = browser.evaluate(f"{row}.map((each) => Number(each.children[4].textContent))")
    step = next(at for at, number in enumerate(counts) if number)
    browser.evaluate(f"{row}[{step}].children[4].querySelector('a').click()")
    time.sleep(0.3)
    browser.wait(f"{VISIBLE % '.queries li'}")
    assert shown(browser, ".note").startswith(f"{counts[step]} queries, {counts[step]} in full")
    follow(browser, ".queries a")
    assert "Reciprocal rank@100" in shown(browser, ".trace")
    assert browser.errors == []


def test_what_did_a_system_cost_and_how_is_a_cell_reproduced(opened, marked):
    go, browser = opened
    go()
    assert re.fullmatch(r"ANCE-Tele( ?[\d.]+ (s|min)){3}", shown(browser, '.costs tr[data-system="ANCE-Tele"]'))
    follow(browser, '.cell[data-system="ANCE-Tele"][data-episode="3"][data-column="RR@10"]')
    key = episode(marked, 3, "evaluate-test").resolve().name
    command = shown(browser, ".behind .command code")
    assert command.startswith("git checkout ") and "make .venv/installed" in command
    assert f"--configfile toy.yaml -- results/stages/evaluate/{key}/manifest.json" in command
    follow(browser, ".behind a.stage")
    assert "evaluate-test, episode 3" in shown(browser, ".facts")
    assert browser.errors == []


def test_texts_with_markup_are_shown_as_text(opened, marked):
    go, browser = opened
    go("query-train-0.html")
    assert shown(browser, ".question") == MARKUP[0]
    assert "broken" not in browser.evaluate("document.title")
    assert browser.evaluate("document.querySelectorAll('main b, main i').length") <= 20  # of tables alone
    pages = [path.read_text() for path in (marked.folder / "page/_page").glob("query-*.html")]
    for row in (1, 2):
        page = next(text for text in pages if f'<span class="id">title{row} · d{row}' in text)
        body = page.partition(f'<span class="id">title{row} · d{row}')[2].partition("</p>")[0]
        assert "<i>" not in body and ("&lt;i&gt;" in body) == (row == 1)
    assert browser.errors == []
    assert {request.split(":")[0] for request in browser.requests} <= {"file", "data", "about", "blob"}


@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_is_wider_than_the_window(opened, width):
    go, browser = opened
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    for page in ("index", "diff", "list", "experiments", "experiment-tele", "query-train-5", "query-test-3", "stages"):
        go(f"{page}.html")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, page


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
    lines = [chart for chart in charts if "last" in json.dumps(chart.get("layer", ""))]
    assert len(lines) == 5 and all(len({r["system"] for r in c["datasets"]["values"]}) <= 10 for c in lines)


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
