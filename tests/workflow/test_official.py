"""From the download of official files to the finished tables, with the paper's configurations and smaller sizes."""

import csv
import json

import pyarrow.parquet as pq
import pytest
from official_world import NUM_PASSAGES, OfficialWorld, marco_files, nq_files


def run(tmp_path, name, files, episodes):
    """Run config/NAME.yaml at toy size; returns (world, rows of its main table)."""
    world = OfficialWorld.create(tmp_path / name, name, files, episodes)
    largest = max(files, key=lambda file: len(files[file]))
    world.server.cuts[largest] = 1000
    try:
        world.snakemake()
    finally:
        world.close()
    assert (largest, "bytes=1000-") in world.server.requests, "a cut connection is continued"
    asked = {file for file, _ in world.server.requests}
    assert {f"gone/{file}" for file in files} <= asked, "missing mirrors are passed over"
    with open(world.folder / f"results/tables/{name}/main.csv") as table:
        return world, list(csv.DictReader(table))


def facts(world, kind):
    return [m["facts"] for stage, m in world.manifests().items() if stage.startswith(f"{kind}/")]


def splits(world):
    """{split: facts of its stage}."""
    manifests = world.manifests().items()
    return {m["settings"]["split"]: m["facts"] for stage, m in manifests if stage.startswith("split/")}


def systems(rows):
    return [(row["system"], row["episode"]) for row in rows]


@pytest.mark.slow
def test_nq_in_one_episode(tmp_path):
    files = nq_files()
    world, rows = run(tmp_path, "nq", files, episodes=1)
    released = [("ANCE-Tele (released)", "0"), ("ANCE, both sets (released)", "0")]
    assert systems(rows) == [("BM25", "0"), ("Zero-shot", "0"), ("ANCE-Tele", "1"), *released]
    assert {"Cov@5", "Cov@20", "Cov@100"} <= set(rows[0])
    assert 0 < float(rows[0]["Cov@20"]) <= float(rows[0]["Cov@100"]) <= 1
    (corpus,), train = facts(world, "corpus"), splits(world)["train"]
    assert corpus["num_passages"] == NUM_PASSAGES
    assert (train["queries"], train["positives"]) == (40, 30)
    assert facts(world, "positives")[0]["given"] == 30
    recorded = json.loads((world.folder / "data/downloads/digests.json").read_text())
    assert set(recorded) == {"data/downloads/nq-train.qa.csv", "data/downloads/nq-test.qa.csv"}
    accepted = {path.stem for path in (world.folder / "data/licences").iterdir()}
    assert accepted == {"DPR", "Natural-Questions"}
    check_that_places_decide_nothing(world, files)


def check_that_places_decide_nothing(world, files):
    """With other mirrors, or a local folder in their place, nothing runs again."""
    for file in world.config["collection"]["files"].values():
        file["mirrors"] = ["http://127.0.0.1:9/nowhere"]
    assert world.would_run()[0] == {}
    world.config["collection"]["local"] = "elsewhere"
    assert world.would_run()[0] == {}
    world.config["collection"]["files"]["nq-test.qa.csv"]["sha256"] = "0" * 64
    assert world.would_run()[0]["download"] == 1


@pytest.mark.slow
def test_marco_and_trec_dl(tmp_path):
    world, rows = run(tmp_path, "marco", marco_files(), episodes=3)
    assert systems(rows)[:5] == [("BM25", "0"), ("Zero-shot", "0"), *(("ANCE-Tele", str(e)) for e in (1, 2, 3))]
    assert len(rows) == 5 + len(world.released)
    dl = ["nDCG@10", "R(rel=2)@1000", "RR(rel=2)@10"]
    columns = ["dev RR@10", "dev Success@1000", "dev R@1000"]
    columns += [f"{split} {measure}" for split in ("dl19", "dl20") for measure in dl]
    assert [name for name in rows[0] if name in columns] == columns
    assert not [name for name in rows[0] if name.startswith("dev n")], "each split has its own measures"
    assert float(rows[0]["dev RR@10"]) > 0.5, "a query is three words of its passage, which BM25 finds"
    for row in rows:
        assert all(0 <= float(row[column]) <= 1 for column in columns)
        assert [row[f"dl19 {m}"] for m in dl] == [row[f"dl20 {m}"] for m in dl], "the same judgments in two forms"
    counts = {name: (split["queries"], split["dropped"]) for name, split in splits(world).items()}
    assert counts == {"train": (40, 1), "dev": (10, 0), "dl19": (8, 2), "dl20": (8, 2)}
    corpus = pq.read_table(next((world.folder / "results/stages/corpus").glob("*/corpus.parquet")))
    titles = corpus["title"].to_pylist()
    assert titles[0].startswith("word") and titles[1] == ""
    assert sorted(f["steps"] for f in facts(world, "train")) == [4, 4, 6]


@pytest.mark.slow
def test_nq_in_three_episodes(tmp_path):
    world, rows = run(tmp_path, "nq", nq_files(), episodes=3)
    assert systems(rows)[2:5] == [("ANCE-Tele", "1"), ("ANCE-Tele", "2"), ("ANCE-Tele", "3")]
    pools = [0, *sorted(f["negatives"] for f in facts(world, "merge"))]
    grown = sorted(pool - last for last, pool in zip(pools, pools[1:], strict=False))
    # 5 of each retrieval for 40 questions, on top of the whole last pool; no lookahead where no positive was found.
    assert grown == sorted(40 * (5 + 5) - 5 * f["without"] for f in facts(world, "positives"))
