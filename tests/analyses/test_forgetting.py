"""Stage `forgetting`: by hand, and against a plain loop."""

import numpy as np
import pytest

from collection_world import make_collection, make_run
from teleport.analyses import forgetting
from teleport.analyses.forgetting import forgets, reciprocal_ranks
from teleport.running.artefact import Artefact

BEFORE = [[5, 1, 2], [7, 8, 9], [3, 4, 5], [0, 1, 2], [6, -1, -1]]
AFTER = [[1, 5, 2], [8, 7, 9], [9, 8, 7], [0, 1, 2], [5, 6, -1]]
# Query 0 gains (rank 2 to 1), 1 has no positive found, 2 loses its only one, 3 keeps 1 of two, 4 goes from 1 to 2.
JUDGED = [(0, 1, 1), (1, 0, 1), (2, 4, 1), (3, 2, 1), (3, 0, 1), (4, 6, 1)]


def test_by_hand(stages):
    positives = [[1], [0], [4], [2, 0], [6]]
    assert reciprocal_ranks(np.array(BEFORE), positives).tolist() == [1 / 2, 0, 1 / 2, 1, 1]
    assert reciprocal_ranks(np.array(AFTER), positives).tolist() == [1, 0, 0, 1, 1 / 2]
    collection = make_collection(stages, 10, {"train": 5}, {"train": JUDGED})
    inputs = {"collection": collection, "before": make_run(stages, BEFORE), "after": make_run(stages, AFTER)}
    found = Artefact(stages.run(forgetting.run, "forgetting", {}, inputs).folder)
    facts = found.facts
    assert np.load(found.path("forgotten.npy")).tolist() == [False, False, True, False, True]
    mrr = {
        "mrr_before": pytest.approx((1 / 2 + 0 + 1 / 2 + 1 + 1) / 5),
        "mrr_after": pytest.approx((1 + 1 + 1 / 2) / 5),
    }
    assert facts == {"rate": 2 / 5, "gained": 1 / 5, "num_queries": 5} | mrr


def ranks_by_a_loop(ids, positives):
    """Reciprocal ranks of the first positive among the first 100."""
    found = []
    for line, relevant in zip(ids.tolist(), positives, strict=True):
        ranks = [rank for rank, passage in enumerate(line, 1) if passage in relevant and rank <= 100]
        found.append(1 / min(ranks) if ranks else 0.0)
    return found


def test_equals_a_loop():
    rng = np.random.default_rng(7)
    before, after = (np.stack([rng.permutation(150) for _ in range(40)]) for _ in range(2))
    positives = [rng.permutation(150)[: 1 + query % 4] for query in range(40)]
    ranks = [reciprocal_ranks(ids, positives) for ids in (before, after)]
    by_loop = [ranks_by_a_loop(ids, positives) for ids in (before, after)]
    assert [r.tolist() for r in ranks] == by_loop and 0 in by_loop[0]  # some have none among the first 100
    lost = [b > a for b, a in zip(*by_loop, strict=True)]
    assert 0 < sum(lost) < 40 and forgets(*ranks).tolist() == lost and not forgets(ranks[0], ranks[0]).any()


def test_only_the_first_hundred_passages_count():
    before = np.arange(200)[None]
    after = before.copy()
    after[0, [99, 100]] = 100, 99

    def forgotten(positive):
        return forgets(*(reciprocal_ranks(ids, [[positive]]) for ids in (before, after)))[0]

    assert forgotten(99)  # rank 100 to 101
    assert not forgotten(100)
    after[0, 150] = -1
    assert not forgotten(150)
