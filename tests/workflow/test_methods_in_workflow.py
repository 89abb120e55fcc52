"""The method block in the real workflow: every source, loss, start and side, by configuration alone."""

import json
import subprocess
import sys

import numpy as np
import pytest
from toy import World, short_rocketqa

START = {"experiment": "warm-up"}
SHORT = {"steps": 4, "stop_after_steps": None}
WATCHED = {
    "evaluate_every": 2,
    "select": "dev",
    "distinct_positives": True,
    "dev": {"passages": 60, "random": 20, "measure": "nDCG@10"},
}
EXPERIMENTS = {
    "warm-up": {
        "negatives": {"counts": {"bm25": 6, "random": 4}},
        "training": SHORT | {"loss": "nll"},
        "episodes": [{}],
    },
    "ance": {
        "encoder": {"vectors": "fp16"},
        "negatives": {"counts": {"query": 8}},
        "training": {"loss": "nll", "optimizer": "lamb", "continues": True, "steps": 12, "stop_after_steps": 3},
        "episodes": [
            {"training": {"start_from": START}},
            {"repeat": 2, "lag": 1, "training": {"start_from": "previous"}},
        ],
    },
    "query-side": {
        "negatives": {"counts": {"query": 8}, "filters": {"relative_margin": 0.01, "skip_ranks": 1}},
        "training": SHORT | {"loss": "ranknet", "masks": ["known_positives"], "trains": ["query"], "start_from": START},
        "episodes": [{}],
    },
    "adore": {
        "negatives": {"live": {"depth": 20, "index": "PQ4x4"}},
        "training": SHORT
        | {
            "loss": {"kind": "lambda", "metric_cut": 20},
            "trains": ["query"],
            "negatives_per_query": 0,
            "start_from": START,
        },
        "search_index": "PQ8x4",
        "episodes": [{}],
    },
    "hardest": {"training": SHORT | {"loss": "hardest", "negatives_per_query": 0} | WATCHED, "episodes": [{}]},
    "file": {
        "negatives": {"counts": {"file": 5}, "file": {"path": "data/negatives.jsonl"}},
        "training": SHORT,
        "episodes": [{}],
    },
}


def export(world, stage, output):
    command = [sys.executable, "workflow_scripts/manage.py", "export", stage, output]
    subprocess.run(command, cwd=world.folder, check=True, stdout=subprocess.DEVNULL)


class Made:
    """What the stages of a world's experiments have left."""

    def __init__(self, world):
        self.home = world.folder / "results/experiments"
        self.table = (world.folder / "results/tables/main.md").read_text()

    def manifest(self, link):
        return json.loads((self.home / link / "manifest.json").read_text())

    def weights(self, link, side):
        return self.manifest(link)["files"][f"checkpoint/{side}model.safetensors"]["sha256"]


def run(world, *names):
    """Run some of `EXPERIMENTS` in a world (`Made`); afterwards nothing is left to do."""
    world.config["experiments"] |= {name: EXPERIMENTS[name] for name in names}
    world.snakemake()
    made = Made(world)
    assert all(f"| {name} | 1 |" in made.table for name in names)
    assert world.would_run()[0] == {}
    return made


@pytest.mark.slow
def test_a_frozen_side_and_live_search(world):
    made = run(world, "warm-up", "query-side", "adore")
    manifest, weights, experiments = made.manifest, made.weights, made.home
    assert manifest("warm-up/episode-1/merge")["facts"]["drawn"] == {"bm25": 6 * 80, "random": 4 * 80}

    # A frozen side: its weights, vectors and index are those of where the training started.
    train = manifest("query-side/episode-1/train")
    assert weights("query-side/episode-1/train", "passage/") == weights("warm-up/episode-1/train", "")
    assert weights("query-side/episode-1/train", "query/") != weights("warm-up/episode-1/train", "")
    asked = manifest("query-side/episode-1/encode-queries.train")["inputs"]["checkpoint"]
    assert asked == f"train/{train['key']}"
    warm_up = manifest("warm-up/episode-1/encode-passages")
    assert manifest("query-side/episode-1/encode-passages")["key"] == warm_up["key"]
    assert train["inputs"]["passages"] == f"encode/{warm_up['key']}"
    assert manifest("query-side/episode-1/index")["key"] == manifest("warm-up/episode-1/index")["key"]
    assert sum(manifest("query-side/episode-1/merge")["facts"]["filters"]["dropped"]["query"].values()) > 0

    # ADORE: on the same frozen vectors, which are found by codes of two lengths in training and in evaluation.
    live = manifest("adore/episode-1/train")
    assert live["inputs"]["passages"] == f"encode/{warm_up['key']}" and "negatives" not in live["inputs"]
    assert len((experiments / "adore/episode-1/train/found.tsv").read_text().splitlines()) == 1 + 4
    searched = manifest("adore/episode-1/search-test")["facts"]
    assert searched["engine"] == "exact" and 0 < searched["recall"] < 1, "of the vectors that the codes stand for"
    sizes = [manifest(f"adore/episode-1/{link}")["facts"]["bytes"] for link in ("index-live", "index-search", "index")]
    assert sizes[0] < sizes[1] < sizes[2] == manifest("warm-up/episode-1/index")["facts"]["bytes"]


@pytest.mark.slow
def test_segments_files_and_a_dev_set(world):
    export(world, "results/experiments/tele/episode-1/merge", "data/negatives.jsonl")
    made = run(world, "warm-up", "ance", "hardest", "file")
    manifest, experiments = made.manifest, made.home

    # ANCE: three segments of one training; the start mined for the first two, what the first one left for the third.
    facts = [manifest(f"ance/episode-{number}/train")["facts"] for number in (1, 2, 3)]
    assert [(f["first_step"], f["end_step"], f["schedule_steps"]) for f in facts] == [
        (0, 3, 12),
        (3, 6, 12),
        (6, 9, 12),
    ]
    mined = [manifest(f"ance/episode-{number}/retrieve-queries")["inputs"]["queries"] for number in (1, 2, 3)]
    assert mined[0] == mined[1] != mined[2]

    kept = np.load(experiments / "ance/episode-1/encode-passages/passages.npy", mmap_mode="r")
    assert kept.dtype == np.float16

    # In-batch negatives, watched by the dev queries, whose neighbours the checkpoint before the episode has found.
    hardest = manifest("hardest/episode-1/train")
    assert "negatives" not in hardest["inputs"]
    assert hardest["inputs"]["dev"] == f"retrieve/{manifest('hardest/episode-1/retrieve-dev')['key']}"
    assert hardest["facts"]["dev"]["queries"] == 20 and hardest["facts"]["dev"]["passages"] == 60
    header, *lines = (experiments / "hardest/episode-1/train/dev.tsv").read_text().split("\n")[:-1]
    curve = [line.split("\t") for line in lines]
    assert header == "step\tdev nDCG@10" and [step for step, _ in curve] == ["0", "2", "4"]
    step = hardest["facts"]["selected_step"]
    assert str(step) == max(curve, key=lambda point: float(point[1]))[0]
    pools = [np.load(experiments / link / "passages.npy") for link in ("file/episode-1/merge", "tele/episode-1/merge")]
    offsets = [np.load(experiments / link / "offsets.npy") for link in ("file/episode-1/merge", "tele/episode-1/merge")]
    for query in range(80):
        own, exported = (pool[o[query] : o[query + 1]] for pool, o in zip(pools, offsets, strict=True))
        assert len(own) == 5 and set(own) <= set(exported)
    assert f"| hardest | 1 | {step} |" in made.table and "| System | Episode | Step | RR@10 |" in made.table


@pytest.mark.slow
def test_rocketqa_to_its_table_and_page(tmp_path):
    """A cross-encoder that is trained on the first system's pool leaves out negatives of the second one."""
    world = World.create(tmp_path / "world")
    world.config |= {"experiments": short_rocketqa(), "report": {}}
    world.snakemake()
    made = Made(world)
    raw, denoised = (world.config["experiments"][name]["label"] for name in ("rocketqa-raw", "rocketqa"))
    assert f"| {raw} | 2 |" in made.table and f"| {denoised} | 2 |" in made.table
    ranker = made.manifest("rocketqa/episode-2/cross-train-ranker")
    assert ranker["inputs"]["negatives"] == f"merge/{made.manifest('rocketqa-raw/episode-2/merge')['key']}"
    pool = made.manifest("rocketqa/episode-2/merge")
    assert pool["facts"]["filters"]["dropped"]["query"]["absolute_margin"] > 100
    assert made.weights("rocketqa/episode-2/train", "") != made.weights("rocketqa-raw/episode-2/train", "")
    page = (world.folder / "results/report/_page/index.html").read_text()
    assert raw in page and "cross-encoder" in page
    assert world.would_run()[0] == {}
