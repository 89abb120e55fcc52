"""Stage `negatives_overlap` against a loop over sets."""

import numpy as np
import pytest

from collection_world import make_collection, make_run
from teleport.analyses import negatives_overlap as overlap
from teleport.negatives.budget import FIELDS
from teleport.negatives.pool import Items, PoolWriter
from teleport.running.artefact import Artefact


def make_pool(stages, lists):
    job = stages.make("merge")
    writer, passages = PoolWriter(job.output, ["query"]), np.concatenate(lists)
    items = Items(*(np.ones(len(passages), dtype) for dtype in FIELDS.values()))
    writer.append(np.array([len(negatives) for negatives in lists]), items._replace(passages=passages))
    writer.close()
    return stages.finish(job)


def compare(stages, lists, neighbours, judged, depth):
    collection = make_collection(stages, 50, {"train": len(lists)}, {"train": judged})
    inputs = {"collection": collection, "negatives": make_pool(stages, lists), "queries": make_run(stages, neighbours)}
    job = stages.run(overlap.run, "negatives_overlap", {"depth": depth}, inputs)
    return Artefact(job.folder).facts


def test_by_hand(stages):
    """Query 0: of {1, 2, 3} two are among the first two that are no positives (1, 3); query 1 has no negatives."""
    lists = [np.array([1, 2, 3, 1], np.int32), np.array([], np.int32), np.array([9], np.int32)]
    neighbours = [[0, 1, 3, 2], [4, 5, 6, 7], [8, 9, 7, 6]]
    judged = [(0, 0, 1), (1, 4, 1), (2, 30, 1)]
    facts = compare(stages, lists, neighbours, judged, depth=2)
    assert facts == {"overlap": pytest.approx((2 / 3 + 1) / 2), "num_queries": 2, "depth": 2}


def test_equals_a_loop_over_sets(stages):
    rng = np.random.default_rng(2)
    lists = [rng.integers(0, 50, rng.integers(1, 9)).astype(np.int32) for _ in range(15)]
    neighbours = np.stack([rng.permutation(50)[:30] for _ in lists])
    judged = [(query, int(p), 1) for query in range(15) for p in rng.permutation(50)[: 1 + query % 3]]
    shares = []
    for query, negatives in enumerate(lists):
        positives = {p for q, p, _ in judged if q == query}
        first = [p for p in neighbours[query].tolist() if p not in positives][:12]
        shares.append(len(set(negatives.tolist()) & set(first)) / len(set(negatives.tolist())))
    facts = compare(stages, lists, neighbours, judged, depth=12)
    assert facts["overlap"] == pytest.approx(np.mean(shares)) and 0 < facts["overlap"] < 1


def test_pools_without_any_negative_are_refused(stages):
    with pytest.raises(ValueError, match="evaluation.analyses.negatives.*training query"):
        compare(stages, [np.array([], np.int32)], [[0, 1]], [(0, 0, 1)], depth=1)
