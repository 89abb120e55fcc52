"""What queries gain and lose, against plain loops."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from teleport.analyses.forgetting import forgets
from teleport.arrays import Run
from teleport.report.page.drawings import river_figure
from teleport.report.page.forgetting import (
    STATES,
    Traces,
    count_states,
    forgetting_of,
    paths,
    states,
    swing_sizes,
    way_text,
)
from teleport.report.page.queries import selected, tops_of
from teleport.search.pairs import PairScorer

VALUES_EQ = np.random.default_rng(1).choice([0.0, 0.25, 1.0], (4, 200))


def test_one_definition_of_forgetting_counts_states_rates_and_letters():
    """The paper's: the reciprocal rank is lower after the step than before it."""
    expected = [dict.fromkeys(STATES, 0) for _ in range(3)]
    for step in range(3):
        for q in range(200):
            *earlier, before, after = VALUES_EQ[: step + 2, q].tolist()
            if after < before:
                state = "forgotten"
            elif after > before:
                state = "swung back" if after <= max(earlier, default=0) else "learned"
            else:
                state = "kept" if after else "missed"
            expected[step][state] += 1
            assert STATES[states(VALUES_EQ)[step][q]] == state
    assert count_states(VALUES_EQ) == expected
    assert expected[0]["swung back"] == 0 and min(expected[2].values()) > 0
    for step, counts in enumerate(expected):
        dropped = forgets(VALUES_EQ[step], VALUES_EQ[step + 1])
        letters = [path[step] == "f" for path in paths(VALUES_EQ)]
        assert counts["forgotten"] == dropped.sum() and letters == dropped.tolist()


def test_the_path_of_a_query_has_a_letter_per_step():
    values_EQ = np.array([[1.0, 0.0, 0.0, 0.5], [0.25, 1.0, 0.0, 0.5], [0.5, 1.0, 0.0, 1.0]])
    assert paths(values_EQ) == ["fs", "lk", "mm", "kl"] and len({state[0] for state in STATES}) == len(STATES)
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
    reader = SimpleNamespace(
        splits={"train": "split/train"},
        finished=lambda name: name == "split/train",
        queries=lambda split: queries_QD,
        positives=lambda matched: positives,
        scorer=lambda *_: PairScorer(queries_QD, passages_PD, None),
    )
    assert Traces(reader).ranked("encode/queries", "encode/passages", 100, None).tolist() == expected
    assert 0 < np.count_nonzero(expected) < 50


@pytest.mark.parametrize("depth", [50, 200])
def test_checkpoints_are_compared_at_one_depth(depth):
    """The last one, which nothing was mined with, is not ranked deeper than the others: equal vectors keep all."""
    rng = np.random.default_rng(3)
    queries_QD, passages_PD = (rng.normal(size=(n, 4)).astype(np.float32) for n in (200, 300))
    order_QP = np.argsort(-(queries_QD @ passages_PD.T), axis=1, kind="stable")[:, :depth]
    reader = SimpleNamespace(
        splits={"train": "split/train"},
        finished=lambda name: True,
        queries=lambda split: pa.array(map(str, range(200))),
        positives=lambda matched: [[n + (matched == "positives/b")] for n in range(200)],
        scorer=lambda *_: PairScorer(queries_QD, passages_PD, None),
        search=lambda name: Run(order_QP, order_QP.astype(np.float32), np.arange(200)),
    )
    trajectory = {"searches": {"0": "retrieve/a"}, "vectors": {"0": ("q", "p"), "1": ("q", "p")}, "seed": 1, "runs": []}
    trajectory |= {"episodes": [{"positives": None}]}
    (said,) = forgetting_of(Traces(reader), trajectory, [], {})
    assert said["measure"] == f"RR@{min(depth, 100)}" and said["checkpoints"] == [0, 1]
    assert said["states"][0]["learned"] == said["states"][0]["forgotten"] == 0 < said["states"][0]["kept"]
    found = trajectory | {"episodes": [{"positives": "positives/a"}, {"positives": "positives/b"}]}
    (by_answers,) = forgetting_of(Traces(reader), found, [], {})
    assert by_answers["matched"] and not said["matched"] and by_answers["ways"] != said["ways"]
    for n, (ids, way) in enumerate(zip(order_QP[:, :100].tolist(), by_answers["ways"], strict=True)):
        rank = str(ids.index(n + 1) + 1) if n + 1 in ids else "–"
        assert way == f"{rank} → {rank}", "the last episode's positives, at both checkpoints"


@pytest.mark.parametrize(
    "collapse, own, expected",
    [
        (None, {"ignore_own_text": True}, {0: [2, 1, 3], 1: ["elsewhere", 3, 1]}),
        ("maxp", {"ignore_own_text": True}, {0: [1, 3], 1: ["elsewhere", 3, 1]}),
        ("maxp", {}, {0: [0, "elsewhere", 1, 3], 1: ["elsewhere", 3, 1]}),
    ],
)
def test_top_tens_are_of_the_list_that_was_scored(collapse, own, expected):
    """Without a query's own text, by its id or its text; and documents in the place of their passages."""
    doc_ids = ["q0", "b#0", "b#1", "c#0", "copy"]
    settings = {"split": "test", "collapse": collapse, "separator": "#"} | own
    run = Run(np.array([[0, 4, 2, 1, 3], [4, 3, 1, -1, -1]]), np.zeros((2, 5), np.float32), np.array([0, 1]))
    reader = SimpleNamespace(
        input=lambda name, role: "retrieve/a",
        artefact=lambda name: SimpleNamespace(manifest={"settings": settings}),
        names=lambda name: {4: "elsewhere"},
        search=lambda name: run,
        all_doc_ids=lambda name: pa.array(doc_ids),
        same_texts=lambda split: pa.table({"query": pa.array([0], pa.int32()), "passage": pa.array([4], pa.int32())}),
        queries=lambda split, column: pa.array(["q0", "q1"]),
    )
    assert tops_of(reader, "evaluate/a", [0, 1]) == expected


def test_checkpoints_without_ranks_of_training_queries_are_said():
    found = [{"kept": 2}, {"kept": 2}]
    said = {"split": "train", "queries": 2, "seed": 1, "measure": "RR@100", "states": found, "checkpoints": [0, 1, 2]}
    assert "ithout checkpoint 3, 4: no search" in river_figure(said | {"unranked": [3, 4]}, "tele", True).text
    assert "ithout checkpoint" not in river_figure(said | {"unranked": []}, "tele", True).text


def test_swing_sizes():
    values_EQ = np.array([[0, 0, 1.0], [1, 0.5, 0], [0, 1, 1]])
    assert swing_sizes(values_EQ).tolist() == [2, 0, 2]


def test_queries_are_chosen_by_gains_losses_and_swings_and_drawn():
    rows = np.arange(0, 400, 2)
    chosen = selected(rows, [VALUES_EQ], 40)
    assert chosen == sorted(set(chosen)) and len(chosen) == 40 and set(chosen) <= set(rows.tolist())
    for sizes in (VALUES_EQ[-1] - VALUES_EQ[0], VALUES_EQ[0] - VALUES_EQ[-1], swing_sizes(VALUES_EQ)):
        largest = rows[sizes == sizes.max()].tolist()
        assert len(set(chosen).intersection(largest)) >= min(10, len(largest))
    assert selected(rows, [VALUES_EQ], 40) == chosen
    assert selected(rows, [VALUES_EQ], "all") == rows.tolist()
    assert len(selected(rows, [], 2)) == 2
