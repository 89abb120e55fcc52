"""The page at MS MARCO's counts of queries: its size is bounded, it opens soon, and every listed query opens."""

import json
import re
import sys
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from browser import Browser, require_chromium
from page_numbers import data_of

from collection_world import WORDS
from teleport.arrays import Run, save_array
from teleport.negatives.pool import Items, PoolWriter
from teleport.report.page import queries
from teleport.report.page.write import write_page

PASSAGES, DEPTH, PER_QUERY = 40_000, 100, 90  # of 8.8 million passages: no more than these are found
QUERIES = {"train": 10_000, "dev": 6_980, "dl19": 43, "dl20": 54}  # train: as many as are counted of 502,939
EVALUATED = ["dev", "dl19", "dl20"]
MEASURES = ["RR@10", "Success@1000", "R@1000", "R@100"]
SHARED = 35  # candidates of a query
FIRST_ROWS = {}  # {measure: the first query that has it}
EPISODES, OTHERS = 3, 6  # rows of nothing that was trained: BM25 and five released checkpoints
SOURCES = ["query", "lookahead", "momentum"]


def text(rng, words):
    return " ".join(rng.choice(WORDS, words))


def name_of(job):
    return f"{job.kind}/{job.key}"


def collection(stages, rng):
    """A finished corpus and splits with as many queries as MS MARCO, of its lengths, as the plan says them."""
    job = stages.make("corpus")
    texts = [text(rng, 50) for _ in range(2_000)]
    corpus = {"doc_id": [str(8_800_000 + row) for row in range(PASSAGES)], "title": [text(rng, 4)] * PASSAGES}
    pq.write_table(
        pa.table(corpus | {"text": [texts[row % 2_000] for row in range(PASSAGES)]}), job.output("corpus.parquet")
    )
    corpus = name_of(stages.finish(job, {"num_passages": PASSAGES}))
    return {"corpus": corpus, "splits": {split: queries_of(stages, rng, split) for split in QUERIES}}


def queries_of(stages, rng, split):
    """The name of a finished split."""
    job, number = stages.make("split"), QUERIES[split]
    ids = [str(1_000_000 + row) for row in range(number)]
    queries = {"query_id": ids, "text": [text(rng, 6) for _ in range(number)]}
    pq.write_table(pa.table(queries), job.output(f"queries.{split}.parquet"))
    passages = rng.integers(0, PASSAGES, number)
    qrels = {"query": np.arange(number), "passage": passages, "grade": np.ones(number, int)}
    pq.write_table(pa.table(qrels), job.output(f"qrels.{split}.parquet"))
    save_array(job.output("digests.npy"), rng.integers(0, 2**63, number, np.uint64))
    return name_of(stages.finish(job, {"queries": number, "positive_grade": 1}))


def search(stages, rng, number, first=0):
    """A finished search of the queries from the first one on; those of a split share their candidates, so that ten
    systems find some 35 of a query."""
    job = stages.make("retrieve")
    known = np.random.default_rng(number).integers(0, PASSAGES, (number, DEPTH), np.int32)
    ids = np.hstack([rng.permuted(known[:, :SHARED], axis=1), known[:, SHARED:]])
    scores = -np.tile(np.arange(DEPTH, dtype=np.float32), (number, 1))
    Run(ids[first:], scores[first:], np.arange(first, number)).write(job)
    return stages.finish(job)


def evaluation(stages, rng, split):
    job = stages.make("evaluate", {}, {"run": search(stages, rng, QUERIES[split])})
    ids = [str(1_000_000 + row) for row in range(QUERIES[split])]
    frames = [
        pd.DataFrame({"query_id": ids, "measure": name, "value": 1 / rng.integers(1, 30, len(ids))})
        for name in MEASURES
    ]
    frames = [frame[FIRST_ROWS.get(name, 0) :] for name, frame in zip(MEASURES, frames, strict=True)]
    pd.concat(frames).to_parquet(job.output("per_query.parquet"))
    means = {name: frame["value"].mean() for name, frame in zip(MEASURES, frames, strict=True)}
    return name_of(stages.finish(job, {"num_queries": len(ids), "means": means}))


def pool(stages, rng):
    job, number = stages.make("merge"), QUERIES["train"]
    writer, total = PoolWriter(job.output, SOURCES), number * PER_QUERY
    ranks = rng.integers(1, 200, total)
    known = np.random.default_rng(number).integers(0, PASSAGES, (number, DEPTH), np.int32)
    passages = rng.permuted(known, axis=1)[:, :PER_QUERY].ravel()
    fields = {"passages": passages, "sources": rng.choice([1, 2, 4], total), "ranks": ranks}
    fields |= {"first_episodes": np.ones(total, int), "scores": -ranks}
    writer.append(np.full(number, PER_QUERY), Items(*(fields[name] for name in Items._fields)))
    writer.close()
    return name_of(stages.finish(job, {"negatives": total}))


@pytest.fixture
def spec(stages):
    """The specification of such a page, whose stages are finished but for trainings and vectors."""
    rng = np.random.default_rng(0)
    collected, splits = collection(stages, rng), EVALUATED
    runs = [{split: evaluation(stages, rng, split) for split in splits} for _ in range(EPISODES + 1 + OTHERS)]
    searches = {str(n): name_of(search(stages, rng, QUERIES["train"])) for n in range(EPISODES + 1)}
    none = dict.fromkeys(("query", "lookahead", "queries", "passages", "positives", "train"))
    episodes = [none | {"pool": pool(stages, rng), "query": searches[str(n)]} for n in range(EPISODES)]
    seed = {
        "seed": 42,
        "rows": [],
        "episodes": episodes,
        "runs": runs[: EPISODES + 1],
        "searches": searches,
        "vectors": {},
    }
    named = [(f"Released {n}", 0) for n in range(OTHERS)] + [("Zero-shot", 0)] + [("ANCE-Tele", n) for n in (1, 2, 3)]
    rows = [
        {"system": system, "episode": episode, "seeds": [42] * (episode > 0), "columns": {}}
        | {"runs": {split: [stage] for split, stage in of.items()}}
        for (system, episode), of in zip(named, runs[EPISODES + 1 :] + runs[: EPISODES + 1], strict=True)
    ]
    table = {"name": "main", "title": "Every system", "splits": splits, "measures": dict.fromkeys(splits, MEASURES)}
    table |= {"columns": [], "significance": None, "rows": rows, "collection": collected}
    experiment = {
        "name": "ance-tele",
        "system": "ANCE-Tele",
        "label": "ANCE-Tele",
        "method": "three trainings.",
        "settings": {},
        "seeds": [seed],
    }
    planned, made = {}, {"wall_seconds": 1.0, "hardware": {"processor": "P"}, "git_commit": None, "code": "c0de"}
    for path in stages.root.rglob("manifest.json"):
        name = f"{path.parts[-3]}/{path.parts[-2]}"
        planned[name] = {"users": ["ance-tele"], "label": name}
        made |= {"started": "2026-01-01T00:00:00Z", "attempt": 1, "peak_memory_bytes": 1}
        path.write_text(json.dumps(json.loads(path.read_text()) | {"provenance": made}))
    content = {"name": "marco", "configuration": ["config/marco.yaml"], "collection": collected}
    content |= {
        "splits": splits,
        "measures": table["measures"],
        "queries": 200,
        "tables": [table],
        "stages": planned,
        "published": [],
        "ghosts": [],
    }
    return json.loads(json.dumps(content | {"experiments": [experiment]}))


def seconds_to_open(browser, *address):
    started = time.monotonic()
    browser.open(*address)
    return time.monotonic() - started


@pytest.mark.slow
def test_at_the_counts_of_marco_the_page_has_at_most_15_mb_and_opens_in_two_seconds(stages, spec, tmp_path):
    assert write_page(spec, stages.root, tmp_path / "page") < 15e6
    assert write_page(spec, stages.root, tmp_path, tmp_path / "all.html") < 15e6
    folder = tmp_path / "page/_page"
    for split, number in QUERIES.items():
        queries = data_of(folder, f"queries-{split}")
        assert len(queries["rows"]) == number and queries["full"]
        for row in queries["rows"]:
            assert (folder / f"query-{split}-{row}.html").exists() == (row in queries["full"])
    require_chromium()
    browser = Browser(tmp_path / "profile")
    seconds_to_open(browser, folder / "index.html")  # the first page waits for Chromium itself
    pages = [folder / "index.html", *sorted(folder.glob("query-*.html"))[:3]]
    seconds = {path.name: seconds_to_open(browser, path) for path in pages}
    seconds["all.html"] = seconds_to_open(browser, tmp_path / "all.html", "#index.html")
    browser.close()
    print(seconds)
    assert max(seconds.values()) < 2, seconds


@pytest.fixture
def of_training_queries(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "QUERIES", {"train": 40})
    monkeypatch.setattr(sys.modules[__name__], "EVALUATED", ["train"])


@pytest.mark.ci(0)
def test_training_queries_that_are_evaluated_have_one_list_and_one_page(
    of_training_queries, stages, spec, tmp_path, monkeypatch
):
    read, tops_of = [], queries.tops_of
    monkeypatch.setattr(queries, "tops_of", lambda *given: read.append(given[2]) or tops_of(*given))
    write_page(spec | {"queries": 12}, stages.root, tmp_path)
    folder = tmp_path / "_page"
    index, listed = data_of(folder, "index"), data_of(folder, "queries-train")
    assert len(read) == EPISODES + 1 + OTHERS and all(rows == listed["full"] for rows in read)
    assert index["splits"] == index["scored"] == ["train"] and listed["rows"] == list(range(40))
    assert len(data_of(folder, "scores-train")["scores"]["RR@10"][0]) == 40
    paths = data_of(folder, "paths-ance-tele")["train"]
    assert paths["measure"] == "RR@100" and len(paths["paths"]) == 40
    pages = {path.name: path.read_text() for path in folder.glob("query-train-*.html")}
    assert pages.keys() == {f"query-train-{row}.html" for row in listed["full"]} and len(pages) == 12
    assert all("<h2>Top tens</h2>" in text and "<h2>ANCE-Tele</h2>" in text for text in pages.values())


@pytest.fixture(params=["RR@10", "Hole@10"])
def measure(request, of_training_queries, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "MEASURES", [request.param])
    return request.param


def test_a_hole_rate_is_coloured_neither_as_a_gain_nor_as_a_loss(measure, stages, spec, tmp_path):
    write_page(spec | {"queries": 1}, stages.root, tmp_path)
    index = (tmp_path / "_page/index.html").read_text()
    assert re.search(r"<small>p (\.0[0-4]|\de-)", index)
    assert ('<td class="up">' in index, '<td class="down">' in index) == (measure == "RR@10",) * 2


def test_a_query_of_another_part_was_not_searched(of_training_queries, stages, spec, tmp_path):
    """It is not said to be not found."""
    half = name_of(search(stages, np.random.default_rng(1), 40, first=20))
    spec["experiments"][0]["seeds"][0]["episodes"][1]["query"] = half
    write_page(spec | {"queries": "all"}, stages.root, tmp_path)
    pages = [(tmp_path / f"_page/query-train-{row}.html").read_text() for row in range(40)]
    assert [text.count("<td>not searched</td>") for text in pages] == [1] * 20 + [0] * 20
    assert any("<td>not found</td>" in text for text in pages)


@pytest.fixture
def some_unjudged(of_training_queries, monkeypatch):
    """As where questions have answers and no judgment, and others a judgment and no answers."""
    monkeypatch.setattr(sys.modules[__name__], "FIRST_ROWS", {"RR@10": 3, "R@1000": 5})


def test_measures_of_a_split_may_have_other_queries(some_unjudged, stages, spec, tmp_path):
    write_page(spec | {"queries": "all"}, stages.root, tmp_path)
    folder = tmp_path / "_page"
    scores = data_of(folder, "scores-train")["scores"]
    for name, first in FIRST_ROWS.items():
        assert all(values[:first] == [None] * first and None not in values[first:] for values in scores[name])
    assert all(None not in values and len(values) == 40 for values in scores["R@100"])
    assert data_of(folder, "queries-train")["rows"] == list(range(40))
    cells = [(folder / f"query-train-{row}.html").read_text().count("<td>–</td>") for row in (2, 3)]
    assert cells == [EPISODES + 1 + OTHERS, 0]


@pytest.mark.ci(0)
def test_two_systems_are_compared_on_the_queries_that_have_the_measure(some_unjudged, stages, spec, tmp_path):
    write_page(spec | {"queries": 5}, stages.root, tmp_path)
    require_chromium()
    browser = Browser(tmp_path / "profile")
    browser.open(tmp_path / "_page/diff.html", "#train/0/1/RR@10")
    said = browser.evaluate("document.querySelector('.said').textContent")
    listed = browser.evaluate("document.querySelectorAll('.queries li').length")
    browser.close()
    counts = [int(number) for number in re.findall(r"won (\d+), lost (\d+), the same on (\d+) queries", said)[0]]
    assert sum(counts) == listed == 37 and "NaN" not in said and browser.errors == []
