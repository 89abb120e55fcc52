"""config/marco-doc.yaml at toy size, from the download to the table: MaxP runs are the brute force over all chunks."""

import csv
import gzip
from collections import Counter

import numpy as np
import pytest
from official_world import NUM_PASSAGES, SMALL, OfficialWorld, document_files

pytestmark = pytest.mark.slow
SHORT = {"steps": 8, "stop_after_steps": 4, "warmup_steps": 2, "batch_queries": 4, "accumulate": 2, "precision": "fp32"}
EXPERIMENTS = {
    "bm25-neg": {"episodes": [{"training": {"start_from": "pretrained", "continues": False} | SHORT}]},
    "ance": {"episodes": []},
    "ance-maxp": {
        "training": SHORT,
        "episodes": [{"training": {"start_from": {"experiment": "bm25-neg"}}}, {"lag": 1}],
    },
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = OfficialWorld.create(tmp_path_factory.mktemp("documents"), "marco-doc", document_files(), 0)
    encoder = SMALL["encoder"] | {"projection": 16, "max_passage_tokens": 16, "max_characters": 480}
    world.config |= {"encoder": encoder, "mining": {"depth": 30, "parts": 1}}
    world.config |= {"experiments": EXPERIMENTS, "episodes": [], "external": None}
    world.config["training"] = SHORT
    world.config["evaluation"] = {"splits": ["dl19"], "depth": 100, "significance": {"resamples": 99}}
    try:
        world.snakemake()
    finally:
        world.server.close()
    return world


def stages(world, kind, **settings):
    """(folder, manifest) of the finished stages of a kind with these settings."""
    found = [(world.folder / "results/stages" / name, m) for name, m in world.manifests().items()]
    return [(f, m) for f, m in found if m["kind"] == kind and settings.items() <= m["settings"].items()]


def test_runs_are_the_best_chunks_of_documents(world):
    checked = 0
    for folder, manifest in stages(world, "retrieve", split="dl19"):
        encoded = world.folder / "results/stages" / manifest["inputs"]["passages"]
        if not (encoded / "passages.offsets.npy").exists():
            continue
        vectors, offsets = (np.load(encoded / f"passages.{name}").astype(np.float64) for name in ("npy", "offsets.npy"))
        asked = world.folder / "results/stages" / manifest["inputs"]["queries"]
        queries = np.load(asked / "queries.dl19.npy").astype(np.float64)
        offsets = offsets.astype(int)
        assert len(offsets) == NUM_PASSAGES + 1 and set(np.diff(offsets)) == {2, 3, 4}
        scores = np.maximum.reduceat(queries @ vectors.T, offsets[:-1], axis=1)
        ids, found = (np.load(folder / f"{name}.npy") for name in ("ids", "scores"))
        np.testing.assert_allclose(found, -np.sort(-scores, axis=1)[:, :100], rtol=1e-5)
        np.testing.assert_allclose(np.take_along_axis(scores, ids, axis=1), found, rtol=1e-5)
        assert all(len(set(line)) == 100 for line in ids.tolist())
        checked += 1
    assert checked == 3, "the warm-up as MaxP, and two segments"


def test_runs_and_judgments_are_of_documents(world):
    evaluated = stages(world, "evaluate", split="dl19")
    for folder, manifest in evaluated:
        with gzip.open(folder / "dl19.run.gz", "rt") as file:
            pairs = [tuple(line.split()[:3:2]) for line in file]
        assert len(set(pairs)) == len(pairs) and all(doc[0] == "D" for _, doc in pairs)
        assert manifest["facts"]["num_queries"] == 8
        if manifest["inputs"]["run"].startswith("retrieve/"):  # BM25 finds fewer
            assert len(pairs) == 8 * 100
    runs = Counter(manifest["inputs"]["run"].partition("/")[0] for _, manifest in evaluated)
    assert runs == {"bm25": 1, "retrieve": 5, "rerank": 5}


def test_chunks_count_once_in_the_table_and_share_what_they_can(world):
    with open(world.folder / "results/tables/marco-doc/main.csv") as table:
        rows = list(csv.DictReader(table))
    systems = Counter(row["system"] for row in rows)
    assert systems["ANCE (MaxP)"] == 2 and systems["BM25"] == 1
    assert all(0 <= float(row[column]) <= 1 for row in rows for column in ("nDCG@10", "R@100", "Hole@10"))
    assert len(stages(world, "tokens", of="passages")) == len(stages(world, "corpus")) == 1
    seeds = [manifest["settings"]["seed"] for _, manifest in stages(world, "pretrained")]
    assert sorted(seeds) == [0, 42], "the start, and one whose tokenizer the starts of all seeds share"
    assert sorted(m["settings"]["chunks"] for _, m in stages(world, "train")) == [1, 4, 4]
    pools = [m["facts"]["first_episodes"] for _, m in stages(world, "merge")]
    assert len(pools) == 3 and all(sum(pool.values()) > 0 for pool in pools)
