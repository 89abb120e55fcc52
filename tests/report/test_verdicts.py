"""Verdicts: every pair of rows, and what is said of each trained system, literally and against the tests behind it."""

import numpy as np
import pandas as pd
import pytest

from teleport.evaluation.significance import Scores, compare
from teleport.report.table import Table, measure_of, verdicts_with_costs
from teleport.report.verdicts import PAIRS, USUAL, comparison_text, figure, labels_of, p_text, pairs_of_rows, verdicts
from teleport.report.words import number
from teleport.settings.measures import better

ROWS = [
    {"system": "BM25", "episode": 0, "seeds": []},
    {"system": "Zero-shot", "episode": 0, "seeds": []},
    {"system": "Tele", "episode": 1, "seeds": [1]},
    {"system": "Tele", "episode": 2, "seeds": [1]},
]


def scores(seed=0, queries=40):
    """Of four rows: the last two far above the second and close to each other; the first between."""
    rng = np.random.default_rng(seed)
    base = rng.random(queries) * 0.5
    columns = [
        base + 0.15 * rng.normal(size=queries) + 0.2,
        base,
        base + 0.3,
        base + 0.3 + 0.02 * rng.normal(size=queries),
    ]
    return {at: pd.DataFrame({0: values}) for at, values in enumerate(columns)}


def test_labels_name_the_episode_of_systems_with_several():
    assert labels_of(ROWS) == ["BM25", "Zero-shot", "Tele, episode 1", "Tele, episode 2"]


def test_pairs_are_those_of_the_test():
    of = scores()
    pairs = pairs_of_rows(ROWS, of, None, "RR@10", "test")
    assert list(pairs) == PAIRS and list(zip(pairs["a"], pairs["b"], strict=True)) == [
        (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3),
    ]  # fmt: skip
    for pair in pairs.itertuples():
        one, other = of[pair.a][0].to_numpy(), of[pair.b][0].to_numpy()
        assert pair.difference == pytest.approx((other - one).mean(), abs=1e-9) and pair.won == np.sum(other > one)
        again = compare(
            Scores(other[:, None], tuple(ROWS[pair.b]["seeds"])), Scores(one[:, None], tuple(ROWS[pair.a]["seeds"]))
        )
        assert pair.p == pytest.approx(again.p, abs=0.02) and pair.method == "permutation"


def test_a_figure_is_rounded_as_a_cell_of_the_table_is():
    values = np.arange(2001) / 2000
    assert [figure(value) for value in values] == [f"{value:.3f}".removeprefix("0") for value in values.tolist()]
    assert [figure(value, "+") for value in (-0.0004, -0.065, 10.5)] == ["+.000", "-.065", "+10.500"]


def test_many_pairs_take_the_t_test(monkeypatch):
    monkeypatch.setattr("teleport.report.verdicts.MOST_SWAPS", 6 * 40 * 9999 - 1)
    assert set(pairs_of_rows(ROWS, scores(), None, "RR@10", "test")["method"]) == {"t-test"}


def test_sentences_say_what_holds_and_what_does_not():
    """The p-values of what is said are corrected together: .0002, .04, .8 become .0006, .08, .8."""
    lines = [(0, 3, 0.040, 0.04), (1, 3, 0.065, 0.0002), (2, 3, 0.002, 0.8), (0, 2, 0.038, 0.001), (1, 2, 0.063, 0.001)]
    pairs = pd.DataFrame(
        [["RR@10", a, b, gain, p, "permutation", True, 9, 1] for a, b, gain, p in lines], columns=PAIRS
    )
    assert verdicts(ROWS, [0.549, 0.524, 0.587, 0.589], pairs, 0.05) == [
        (3, "Tele .589: not significantly above BM25 (+.040, p .08); +.065 over Zero-shot (p .0006); "
            "episode 2 is not significantly above episode 1 (+.002, p .8)")
    ]  # fmt: skip
    other = ROWS[3] | {"system": "Lower", "seeds": [1]}
    assert [at for at, _ in verdicts([*ROWS[1:2], other, ROWS[2]], [0.5, 0.51, 0.6], three_pairs(), 0.05)] == [2, 1]


def test_of_runs_from_elsewhere_each_is_beside_the_baseline():
    rows = [{"system": name, "episode": 0, "seeds": []} for name in ("A", "B", "C")]
    assert verdicts(rows, [0.5, 0.4, 0.6], three_pairs(), 0.05, ["B"]) == [
        (2, "C .600: +.100 over B (p .02)"),
        (0, "A .500: -.100 under B (p .02)"),
    ]
    assert verdicts(rows, [0.5, 0.4, 0.6], three_pairs(), 0.05) == []


def three_pairs(column="RR@10"):
    lines = [(0, 1), (0, 2), (1, 2)]
    return pd.DataFrame([[column, a, b, 0.1, 0.01, "permutation", True, 9, 1] for a, b in lines], columns=PAIRS)


def test_of_errors_the_fewest_come_first():
    rows = [ROWS[1], ROWS[3] | {"system": "Lower", "seeds": [1]}, ROWS[2]]
    assert [at for at, _ in verdicts(rows, [9.0, 5.0, 6.0], three_pairs("Errors@20"), 0.05)] == [1, 2]
    columns = ("test RR@10", "test Errors@20", "Hole@10 (re-ranked)", "dev Judged@10", "P(judged_only=True)@10")
    assert [better(column) for column in columns] == [1, -1, 0, 0, 1]


def test_fewer_errors_are_won():
    more, errors = (pairs_of_rows(ROWS, scores(), None, column, "test") for column in ("RR@10", "Errors@20 (all)"))
    assert errors["won"].tolist() == more["lost"].tolist() != more["won"].tolist()
    assert errors["difference"].tolist() == more["difference"].tolist()


def test_a_row_without_a_figure_has_no_sentence():
    of = {at: each for at, each in scores().items() if at != 3}
    pairs = pairs_of_rows(ROWS, of, None, "RR@10", "test")
    ((at, sentence),) = verdicts(ROWS, [of[at][0].mean() if at in of else np.nan for at in range(4)], pairs, 0.05)
    assert at == 2 and "episode" not in sentence and "BM25" in sentence


@pytest.mark.parametrize(
    ("gain", "p", "other", "text"),
    [
        (0.0651, 0.0006, 1, "+.065 over Zero-shot (p .0006)"),
        (-0.2, 0.012, 1, "-.200 under Zero-shot (p .012)"),
        (0.04, 0.08, 0, "not significantly above BM25 (+.040, p .08)"),
        (-0.04, 1.0, 0, "not significantly below BM25 (-.040, p 1)"),
        (-0.0001, 1.0, 0, "not significantly below BM25 (+.000, p 1)"),
        (0.002, 0.82, 2, "episode 2 is not significantly above episode 1 (+.002, p .82)"),
        (0.1, 2e-5, 2, "episode 2 is +.100 over episode 1 (p 2e-05)"),
    ],
)
def test_wording(gain, p, other, text):
    assert comparison_text(ROWS, 3, other, gain, p, 0.05) == text


@pytest.mark.parametrize(("seeds", "few"), [([1], True), ([1, 2, 3], False)])
def test_the_note_says_whether_another_seed_may_turn_it(seeds, few):
    rows = [ROWS[1], {"system": "Tele", "episode": 1, "seeds": seeds}]
    values = np.random.default_rng(0).random((30, len(seeds)))
    of = {0: pd.DataFrame({0: values[:, 0]}), 1: pd.DataFrame(values + 0.1)}
    spec = {"rows": rows, "significance": USUAL | {"baseline": "Zero-shot"}, "splits": ["test"]}
    pairs = pairs_of_rows(rows, of, None, "RR@10", "test")
    spec |= {"measures": {"test": ["RR@10"]}}
    table = Table(None, {"RR@10": [0.5, 0.6]}, None, {}, [], pairs)
    said, note = verdicts_with_costs(spec, table, None)
    assert verdicts_with_costs(spec | {"significance": None}, table, None) == ([], "")
    assert len(said) == 1 and note.startswith("By RR@10, at 0.05") and ("another seed" in note) == few


@pytest.mark.parametrize(
    ("queries", "said"), [(1, "below 1,"), (3, "below .25,"), (5, "below .062,"), (6, None), (24, None), (25, False)]
)
def test_the_note_says_how_few_the_queries_are(queries, said):
    """Two systems that differ on every query of five have p .0625 by a permutation test."""
    rows = [ROWS[1], ROWS[2]]
    of = {0: pd.DataFrame({0: np.zeros(queries)}), 1: pd.DataFrame({0: np.linspace(0.5, 1, queries)})}
    spec = {"rows": rows, "significance": USUAL | {"baseline": "Zero-shot"}, "splits": ["test"]}
    pairs = pairs_of_rows(rows, of, None, "RR@10", "test")
    measured = {(at, "RR@10"): measure_of(scores, scores.mean().tolist()) for at, scores in of.items()}
    means = {"RR@10": [0.0, 0.75]}
    spec |= {"measures": {"test": ["RR@10"]}}
    sentences, note = verdicts_with_costs(spec, Table(None, means, None, {}, [], pairs, measured), None)
    assert ("not significantly above" in sentences[0]) == (queries < 6), "the p of the test itself"
    assert (f"Only {number(queries, 'query')}: other" in note) == (said is not False)
    assert said in note if said else "no p of" not in note


def test_no_p_is_said_to_be_zero():
    said = [p_text(p) for p in (1.0, 0.82, 0.0006, 2e-5, 3e-16, 0.0)]
    assert said == ["1", ".82", ".0006", "2e-05", "3e-16", "under 1e-16"]
