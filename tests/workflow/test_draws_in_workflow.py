"""A whole workflow whose pools are the k highest that a filter leaves, by the scores of the checkpoint that mines."""

import json

import numpy as np
import pytest

from teleport.arrays import Ragged
from teleport.negatives.pool import read_pool
from teleport.running.artefact import STAGES

SHARE = 1.02  # the random encoder has all scores near each other


@pytest.mark.slow
def test_top_after_a_percentage_of_the_positive_is_the_k_highest_that_the_filter_leaves(world):
    """TopK-PercPos from BM25's candidates and the query's neighbours, scored by the checkpoint that mines."""
    world.config["experiments"]["percpos"] = {
        "label": "TopK-PercPos",
        "negatives": {"counts": {"query": 5, "bm25": 5}, "draw": "top", "filters": {"percentage": SHARE}},
        "episodes": [{}],
    }
    relabelled = {"label": "Relabelled", "negatives": world.config["experiments"]["percpos"]["negatives"].copy()}
    relabelled["negatives"]["relabel"] = {"kind": "rlhn", "most": 3}
    world.config["experiments"]["relabelled"] = relabelled | {"episodes": [{}]}
    counts, _ = world.would_run()
    assert (counts["score"], counts["merge"], counts["relabel"], counts["train"]) == (2, 1, 1, 2), "they share the pool"
    world.snakemake()
    merge = (world.folder / "results/experiments/percpos/episode-1/merge").resolve()
    manifest = json.loads((merge / "manifest.json").read_text())
    inputs = {role: world.folder / STAGES / name for role, name in manifest["inputs"].items()}
    score = json.loads((inputs["scores.miner"] / "manifest.json").read_text())
    assert list(score["settings"]["sources"]) == ["bm25"], "the retrieval of the queries has its scores"
    paths = (STAGES / score["inputs"][n.partition(".")[0]] / f"{n}.npy" for n in ("queries.train", "passages"))
    queries, passages = (np.load(world.folder / path).astype(np.float64) for path in paths)
    products, pool = (queries @ passages.T).astype(np.float32), read_pool(lambda name: merge / name)
    dropped = short = 0
    for row in range(80):  # the positive of query q is passage q
        items = [field[pool.offsets[row] : pool.offsets[row + 1]].tolist() for field in pool.items]
        found = list(zip(items[0], [[n for n, bit in pool.bits.items() if b & bit] for b in items[1]], strict=True))
        for name in ("query", "bm25"):
            ids = np.load(inputs[name] / "ids.npy")[row]
            others = [p for p in ids[ids >= 0].tolist() if p != row]
            left = [p for p in others if products[row, p] <= products[row, row] * np.float32(SHARE)]
            own = [passage for passage, names in found if names == [name]]
            highest = sorted((products[row, p] for p in left), reverse=True)[:5]
            assert set(own) <= set(left) and sorted((products[row, p] for p in own), reverse=True) == highest
            dropped, short = dropped + len(others) - len(left), short + (len(left) < 5)
        np.testing.assert_array_equal(np.float32(items[4]), products[row, items[0]])
    facts = manifest["facts"]["filters"]["dropped"]
    assert sum(of["percentage"] for of in facts.values()) == dropped > 100 and short < 80, "not vacuous"
    assert "| TopK-PercPos | 1 |" in (world.folder / "results/tables/main.md").read_text()

    # What scores above the positive is one; a query with four such negatives is left out.
    made = {
        kind: (world.folder / f"results/experiments/relabelled/episode-1/{kind}").resolve()
        for kind in ("relabel", "train")
    }
    facts = {kind: json.loads((folder / "manifest.json").read_text())["facts"] for kind, folder in made.items()}
    false = [
        {
            p
            for p in pool.items.passages[pool.offsets[row] : pool.offsets[row + 1]].tolist()
            if products[row, p] > products[row, row]
        }
        for row in range(80)
    ]
    positives = Ragged.open(*(made["relabel"] / f"positives.{name}.npy" for name in ("offsets", "passages")))
    assert [set(positives[row].tolist()) for row in range(80)] == [
        {row} | (own if len(own) <= 3 else set()) for row, own in enumerate(false)
    ]
    dropped = sum(len(own) > 3 for own in false)
    assert facts["relabel"]["dropped_queries"] == dropped > 5 and facts["relabel"]["relabelled"]["positive"] > 5
    assert facts["train"]["queries"] == 80 - dropped - facts["relabel"]["empty_queries"] and facts["train"]["gap"] == 0
    assert "| Relabelled | 1 |" in (world.folder / "results/tables/main.md").read_text()
