"""What queries gain and lose, against plain loops."""

import numpy as np

from teleport.report.page.forgetting import (
    LETTERS,
    STATES,
    best_reciprocals,
    count_states,
    forgetting_rates,
    paths,
    states,
    swing_sizes,
    way_text,
)
from teleport.report.page.queries import GROUPS, selected

VALUES_CQ = np.random.default_rng(1).choice([0.0, 0.25, 1.0], (4, 200))


def test_forgetting_rates():
    expected = []
    for step in range(3):
        expected.append(sum(VALUES_CQ[step + 1][q] < VALUES_CQ[step][q] for q in range(200)) / 200)
    assert forgetting_rates(VALUES_CQ) == expected and all(0 < rate < 1 for rate in expected)


def test_states():
    found_CQ = VALUES_CQ >= 0.25
    expected = [dict.fromkeys(STATES, 0) for _ in range(3)]
    for step in range(3):
        for q in range(200):
            before, after = found_CQ[step][q], found_CQ[step + 1][q]
            earlier = any(found_CQ[c][q] for c in range(step))
            gained = "swung back" if earlier else "learned"
            state = ("kept" if after else "forgotten") if before else (gained if after else "missed")
            expected[step][state] += 1
            assert STATES[states(found_CQ)[step][q]] == state
    assert count_states(found_CQ) == expected
    assert expected[0]["swung back"] == 0 and min(expected[2].values()) > 0


def test_the_path_of_a_query_has_a_letter_per_step():
    found_CQ = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0]], bool)
    assert paths(found_CQ) == ["fs", "lk", "mm"] and dict(zip(STATES, LETTERS, strict=True))["swung back"] == "s"
    assert way_text([1.0, 0.0, 1 / 12], "RR@100") == "1 → – → 12" and way_text([0.5, 1.0], "nDCG@10") == "0.50 → 1.00"


def test_ranks_of_positives_equal_a_sort():
    rng = np.random.default_rng(3)
    queries_QD, passages_PD = (rng.integers(-2, 3, (n, 4)).astype(np.float32) for n in (50, 300))  # with many ties
    positives = [rng.choice(300, n % 3, replace=False) for n in range(50)]
    expected = []
    for query, known in zip(queries_QD, positives, strict=True):
        order = np.argsort(-(passages_PD @ query), kind="stable").tolist()
        ranks = [order.index(passage) + 1 for passage in known]
        expected.append(1 / min(ranks) if ranks and min(ranks) <= 100 else 0)
    assert best_reciprocals(queries_QD, passages_PD, positives, block=7).tolist() == expected
    assert 0 < np.count_nonzero(expected) < 50


def test_swing_sizes():
    values_CQ = np.array([[0, 0, 1.0], [1, 0.5, 0], [0, 1, 1]])
    assert swing_sizes(values_CQ).tolist() == [2, 0, 2]


def test_queries_are_chosen_by_gains_losses_and_swings_and_drawn():
    rows = np.arange(0, 400, 2)
    groups = selected(rows, [VALUES_CQ], 40)
    assert len(groups) == 40 and set(groups) <= set(rows.tolist())
    change = dict(zip(rows.tolist(), VALUES_CQ[-1] - VALUES_CQ[0], strict=True))
    by_group = {group: [row for row, of_row in groups.items() if group in of_row] for group in GROUPS}
    assert all(change[row] == max(change.values()) for row in by_group["gain"]) and len(by_group["gain"]) == 10
    assert all(change[row] == min(change.values()) for row in by_group["loss"]) and len(by_group["loss"]) == 10
    assert by_group["swing"] and by_group["random"]
    assert selected(rows, [VALUES_CQ], 40) == groups
    assert sorted(selected(rows, [VALUES_CQ], "all")) == rows.tolist()
    assert list(selected(rows, [], 2).values()) == [["random"], ["random"]]
