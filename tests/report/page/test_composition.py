"""Composition, overlap, swings and new negatives, against plain loops over sets."""

import numpy as np
import pytest

from teleport.arrays import Ragged, Run
from teleport.report.page.negatives import (
    count_sources,
    first_encounters,
    new_near_positive,
    overlaps,
    pairs_of,
    searched_pairs,
    source_name,
    swings,
)

BITS = {"query": 1, "lookahead": 2, "momentum": 4, "bm25": 8}


@pytest.fixture
def lists():
    """Five episodes of {(query, passage)}, drawn so that all that is counted happens."""
    rng = np.random.default_rng(3)
    return [
        {(int(q), int(p)) for q, p in zip(rng.integers(0, 6, 60), rng.integers(0, 25, 60), strict=True)}
        for _ in range(5)
    ]


def as_pairs(pairs):
    queries, passages = np.array(sorted(pairs)).T
    return pairs_of(queries, passages)


@pytest.fixture
def episodes(lists):
    return [as_pairs(each) for each in lists]


def test_pairs_are_distinct_sorted_and_take_any_row():
    queries, passages = np.array([2, 0, 2, 2**31 - 1], np.int32), np.array([7, 9, 7, 2**31 - 1], np.int32)
    expected = [9, (2 << 32) + 7, ((2**31 - 1) << 32) + 2**31 - 1]
    assert pairs_of(queries, passages).tolist() == expected
    assert pairs_of(queries[:0], passages[:0]).tolist() == []


def test_first_encounters(lists, episodes):
    expected = np.zeros((5, 5), int)
    for e, pairs in enumerate(lists):
        for pair in pairs:
            expected[e][next(f for f in range(5) if pair in lists[f])] += 1
    assert np.array_equal(first_encounters(episodes), expected)
    assert expected[4, :4].sum() > 0 and expected[4, 4] > 0, "the lists would show nothing"


def test_overlaps(lists, episodes):
    expected = [[len(mine & other) / len(mine) for other in lists] for mine in lists]
    assert overlaps(episodes) == pytest.approx(np.array(expected))
    assert np.isnan(overlaps([np.array([], np.int64)])).all()


def test_swings_are_in_out_and_in_again(lists, episodes):
    found = swings(episodes, [(0, 6)] * 5)
    assert list(found) == [1, 2, 3], "2 is the paper's class A (in 2, out 3, in 4), 3 its class B (in 3, out 4, in 5)"
    for e, pairs in found.items():
        expected = {pair for pair in lists[e - 1] if pair not in lists[e] and pair in lists[e + 1]}
        assert expected and pairs.tolist() == as_pairs(expected).tolist()
    assert swings(episodes[:2], [(0, 6)] * 2) == {}


def test_swings_are_those_of_queries_that_all_three_episodes_mined(lists, episodes):
    """A query that an episode does not mine for has no negatives there, which is no swing."""
    spans = [(0, 6), (0, 3), (2, 6), (0, 2), (0, 6)]
    found = swings(episodes, spans)
    expected = {p for p in lists[0] if p not in lists[1] and p in lists[2] and p[0] == 2}
    assert list(found) == [1] and expected and found[1].tolist() == as_pairs(expected).tolist()


def test_new_negatives_and_those_near_the_positive_before(lists, episodes):
    near = [as_pairs({pair for pair in sum(map(list, lists), []) if pair[1] % 3 == e % 3}) for e in range(5)]
    expected = []
    for e in range(1, 5):
        new = lists[e] - set().union(*lists[:e])
        expected.append((len(new), sum((q << 32) + p in near[e - 1].tolist() for q, p in new)))
    assert new_near_positive(episodes, near) == expected
    assert any(found for _, found in expected) and any(found < new for new, found in expected)
    assert new_near_positive(episodes, [None] * 5) == [(new, None) for new, _ in expected]


def test_searched_pairs_leave_out_positives_and_empty_slots():
    ids = np.array([[4, 5, -1], [5, 6, 7], [1, 2, 3]])
    run = Run(ids, np.zeros(ids.shape), np.array([0, 1, 2]))
    positives = Ragged(np.array([0, 1, 3, 3]), np.array([5, 6, 0]))
    expected = pairs_of(np.array([0, 1, 1]), np.array([4, 5, 7]))
    assert searched_pairs(run, np.array([0, 1]), positives).tolist() == expected.tolist()


def test_sources_by_name():
    """Momentum keeps the flag of the source that found it; duplicates are united when they are not kept."""
    sources = np.array([1, 2, 5, 6, 3, 8, 1], np.uint8)
    names = ["query", "lookahead", "momentum", "momentum", "lookahead + query", "bm25", "query"]
    assert [source_name(source, BITS) for source in sources.tolist()] == names
    assert count_sources(sources, BITS) == {name: names.count(name) for name in names}
