"""The tests over queries against literal values and a plain loop of swaps, the one over queries and seeds against sums
of squares; Holm's correction by hand."""

import random

import numpy as np
import pytest
from scipy.stats import t

from teleport.evaluation.significance import (
    BATCH_VALUES,
    Scores,
    compare,
    crossed_p_value,
    holm,
    paired_p_value,
    paired_t_p_value,
)


def test_few_queries_are_tested_exactly():
    """Eight queries, all better: of 2^8 swaps one is as good, and one as bad."""
    better = np.array([0.3, 0.2, 0.5, 0.4, 0.1, 0.6, 0.7, 0.8])
    assert paired_p_value(better, np.zeros(8), 9999, 1) == 2 / 256
    assert paired_p_value(np.zeros(8), better, 9999, 1) == 2 / 256
    # Differences 3, 1, -1: the swaps give means of 5, 3, 3, 1, -1, -3, -3, -5 thirds; 3 or more: 3 of 8.
    assert paired_p_value([3, 1, 0], [0, 0, 1], 9999, 1) == 2 * 3 / 8


def test_equal_systems_and_single_queries_are_no_evidence():
    assert paired_p_value(np.full(50, 0.25), np.full(50, 0.25), 99, 1) == 1
    assert paired_p_value([1.0], [0.0], 99, 1) == 1


def test_p_is_never_zero():
    assert paired_p_value(np.ones(300), np.zeros(300), 999, 1) == 2 / 1000


@pytest.mark.parametrize("order", [range(8), range(7, -1, -1), (3, 7, 0, 1, 2, 4, 5, 6)])
def test_sums_that_differ_by_rounding_alone_are_ties(order):
    """Seven queries gain 1/6 and one loses it. As extreme: 1 + 8 of 2^8 swaps, and as many on the other side."""
    gains = [(1 / 3, 1 / 6), (1 / 2, 1 / 3), (2 / 3, 1 / 2), (1, 5 / 6), (1 / 6, 0), (5 / 6, 2 / 3), (1 / 3, 1 / 6)]
    assert len({score - base for score, base in gains}) > 1  # they are not one number
    scores, baseline = np.array([*gains, (1 / 6, 1 / 3)])[list(order)].T
    assert paired_p_value(scores, baseline, 9999, 1) == paired_p_value(baseline, scores, 256, 1) == 0.0703125
    # Fewer resamples than swaps are drawn at random: as those of whole numbers, whose sums are exact.
    sixths, baseline_sixths = np.rint(scores * 6), np.rint(baseline * 6)
    assert paired_p_value(scores, baseline, 200, 1) == paired_p_value(sixths, baseline_sixths, 200, 1)


@pytest.mark.parametrize("seed", range(5))
def test_random_swaps_see_the_ties_of_reciprocal_ranks(seed):
    """Thirty queries of scores 1/r: in units of 1/60 all of them are whole numbers."""
    rng = np.random.default_rng(seed)
    sixtieths = 60 // rng.integers(1, 7, size=(2, 30))
    scores, baseline = sixtieths / 60
    assert paired_p_value(scores, baseline, 999, seed) == paired_p_value(*sixtieths, 999, seed)
    order = rng.permutation(30)
    assert paired_p_value(scores[order], baseline[order], 999, seed) == paired_p_value(*sixtieths[:, order], 999, seed)


def test_agrees_with_a_plain_loop_of_swaps():
    rng = np.random.default_rng(3)
    baseline = rng.random(60)
    scores = baseline + rng.normal(0.03, 0.15, 60)
    differences, swaps = (scores - baseline).tolist(), random.Random(4)
    observed, resamples = abs(sum(differences)), 20000
    extreme = sum(
        abs(sum(d if swaps.random() < 0.5 else -d for d in differences)) >= observed - 1e-12 for _ in range(resamples)
    )
    p = paired_p_value(scores, baseline, resamples, 7)
    assert 0.01 < p < 0.6  # a case that is not clear
    assert abs(p - extreme / resamples) < 0.02


def test_the_seed_decides_and_the_batch_does_not(monkeypatch):
    rng = np.random.default_rng(8)
    scores, baseline = rng.random(40), rng.random(40)
    p = paired_p_value(scores, baseline, 999, 5)
    assert paired_p_value(scores, baseline, 999, 5) == p
    assert paired_p_value(scores, baseline, 999, 6) != p
    monkeypatch.setattr("teleport.evaluation.significance.BATCH_VALUES", 40 * 7)
    assert BATCH_VALUES != 40 * 7
    assert paired_p_value(scores, baseline, 999, 5) == p


def test_the_t_test_by_hand():
    """Differences 1, 2, 3: t = 2 / (1 / sqrt(3)) = sqrt(12), with 2 degrees of freedom p = 1 - t / sqrt(2 + t²)."""
    p = 1 - np.sqrt(12) / np.sqrt(14)
    assert paired_t_p_value([2, 4, 6], [1, 2, 3]) == pytest.approx(p)
    assert paired_t_p_value([1, 2, 3], [2, 4, 6]) == pytest.approx(p)
    assert paired_t_p_value(np.ones(5), np.ones(5)) == 1
    assert paired_t_p_value(np.ones(3), np.zeros(3)) == 0.25  # one and the same difference: as by swaps, not 0
    assert paired_t_p_value([1.0], [0.0]) == 1


@pytest.mark.parametrize(
    ("p_values", "expected"),
    [
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),  # 3 * 0.01, then 2 * 0.03, then max(0.06, 0.04)
        ([0.5, 0.001, 0.6, 0.02], [1.0, 0.004, 1.0, 0.06]),
        ([0.02], [0.02]),
        ([0.01, 0.01], [0.02, 0.02]),
        ([], []),
    ],
)
def test_holm_by_hand(p_values, expected):
    assert holm(p_values) == pytest.approx(expected)


def mean_squares(table):
    """Of rows, of columns and of their interaction, in a two-way table with one value a cell: plain sums."""
    rows, columns = len(table), len(table[0])
    grand = sum(map(sum, table)) / (rows * columns)
    of_rows = [sum(row) / columns for row in table]
    of_columns = [sum(column) / rows for column in zip(*table, strict=True)]
    rest = sum((table[i][j] - of_rows[i] - of_columns[j] + grand) ** 2 for i in range(rows) for j in range(columns))
    squares = columns * sum((x - grand) ** 2 for x in of_rows), rows * sum((x - grand) ** 2 for x in of_columns), rest
    freedom = rows - 1, columns - 1, (rows - 1) * (columns - 1)
    return [square / degrees for square, degrees in zip(squares, freedom, strict=True)]


def seeded(generator, queries=30, seeds=(1, 2, 3), shift=0.0):
    """Scores with an effect of each query, each seed and each pair of them."""
    values = generator.normal(shift, 0.3, (queries, 1)) + generator.normal(0, 0.05, len(seeds))
    return Scores(values + generator.normal(0, 0.1, (queries, len(seeds))), seeds)


def test_the_same_seeds_are_paired_and_tested_as_clarks_quasi_f():
    """Variance (MS of queries + MS of seeds - MS of both) / (Q x seeds), each tail weighed by its share."""
    rng = np.random.default_rng(1)
    ours, theirs = seeded(rng, shift=0.2), seeded(rng)
    found = compare(ours, theirs)
    table = (ours.values_QR - theirs.values_QR).tolist()
    of_queries, of_seeds, of_both = (square / 90 for square in mean_squares(table))
    assert min(of_queries, of_seeds) > of_both
    variance, difference = of_queries + of_seeds - of_both, np.mean(table)
    tails = [2 * t.sf(abs(difference) / np.sqrt(variance), freedom) for freedom in (2, 29)]
    share = of_seeds / variance
    assert found.p == pytest.approx(share * tails[0] + (1 - share) * tails[1])
    assert 0.001 < found.p < 0.5 and (found.method, found.checkpoints) == ("crossed", False)
    assert found.difference == pytest.approx(difference)
    gains = [sum(row) for row in table]
    assert (found.won, found.lost) == (sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains))
    fewer = compare(ours, theirs, way=-1)
    assert (fewer.won, fewer.lost, fewer.difference) == (found.lost, found.won, found.difference)
    assert compare(theirs, ours).p == found.p
    turned = Scores(theirs.values_QR[:, [2, 0, 1]], (3, 1, 2))
    assert compare(ours, turned).p == pytest.approx(found.p)


def test_other_seeds_add_their_variances_and_what_was_not_trained_has_none():
    rng = np.random.default_rng(2)
    ours, other = seeded(rng, shift=0.2), seeded(rng, seeds=(4, 5, 6, 7))
    differences = ours.values_QR.mean(axis=1) - other.values_QR.mean(axis=1)
    parts = [[square / values.size for square in mean_squares(values.tolist())] for values, _ in (ours, other)]
    seeds, both = (sum(part[number] for part in parts) for number in (1, 2))
    queries = differences.var(ddof=1) / 30 - both
    welch = seeds**2 / (parts[0][1] ** 2 / 2 + parts[1][1] ** 2 / 3)
    tails = [2 * t.sf(differences.mean() / np.sqrt(seeds + queries), freedom) for freedom in (welch, 29)]
    expected = (seeds * tails[0] + queries * tails[1]) / (seeds + queries)
    assert queries > 0 and compare(ours, other).p == pytest.approx(expected)
    lexical = Scores(rng.random((30, 1)))
    found, repeated = compare(ours, lexical), Scores(np.repeat(lexical.values_QR, 3, axis=1), (1, 2, 3))
    assert (found.method, found.checkpoints) == ("crossed", False)
    assert found.p == pytest.approx(compare(ours, repeated).p)


@pytest.mark.parametrize(("seeds", "baseline"), [((1,), (1,)), ((1, 2), (1, 2)), ((1, 2, 3), (1,)), ((1,), ())])
def test_with_fewer_than_three_seeds_p_speaks_of_the_checkpoints_alone(seeds, baseline):
    rng = np.random.default_rng(3)
    ours = seeded(rng, seeds=seeds, shift=0.1)
    theirs = seeded(rng, seeds=baseline) if baseline else Scores(rng.random((30, 1)))
    found = compare(ours, theirs, resamples=999, seed=5)
    means = ours.values_QR.mean(axis=1), theirs.values_QR.mean(axis=1)
    assert (found.method, found.checkpoints) == ("permutation", True)
    assert found.p == paired_p_value(*means, 999, 5)
    assert compare(ours, theirs, "t-test").p == paired_t_p_value(*means)


def test_two_systems_without_training_have_no_chance_but_that_of_queries():
    rng = np.random.default_rng(4)
    ours, theirs = (Scores(rng.random((30, 1))) for _ in range(2))
    assert not compare(ours, theirs, resamples=99).checkpoints


def test_equal_systems_and_single_queries_are_no_evidence_with_seeds_either():
    """Nor is a seed without any deviation a reason to divide by zero."""
    values = np.random.default_rng(5).random((10, 3))
    assert compare(Scores(values, (1, 2, 3)), Scores(values, (1, 2, 3))).p == 1
    assert compare(Scores(values[:1], (1, 2, 3)), Scores(values[1:2], (1, 2, 3))).p == 1
    assert compare(Scores(np.ones((10, 3)), (1, 2, 3)), Scores(np.zeros((10, 3)), (1, 2, 3))).p == 2**-9
    same = Scores(np.repeat(values[:, :1], 3, axis=1), (1, 2, 3))  # no seed differs: a t-test over queries
    expected = paired_t_p_value(values[:, 0], values[:, 1])
    assert compare(same, Scores(values[:, 1:2])).p == pytest.approx(expected)


def test_one_and_the_same_difference_says_as_little_as_its_swaps():
    """No variance is seen, and of two queries none can be known."""
    better, worse = (Scores(np.full((2, 3), value), (1, 2, 3)) for value in (0.75, 0.25))
    assert crossed_p_value(better, worse) == paired_p_value([0.75] * 2, [0.25] * 2, 9999, 1) == 0.5


@pytest.mark.parametrize("queries", [2, 3, 10])
@pytest.mark.parametrize("same", [True, False])
def test_one_difference_everywhere_has_the_least_p_whatever_rounding_leaves_of_it(queries, same):
    values = np.linspace(0.1, 0.7, queries)[:, None] + np.zeros((1, 3))
    seeds = (1, 2, 3) if same else (4, 5, 6)
    p = crossed_p_value(Scores(values + 0.1, (1, 2, 3)), Scores(values, seeds))
    assert p == 2.0 ** (1 - queries)


def test_what_was_not_tested_is_not_counted_among_the_tests():
    assert holm([0.01, float("nan"), 0.04])[::2] == holm([0.01, 0.04]) and np.isnan(holm([0.01, float("nan")])[1])


@pytest.mark.parametrize("test", ["permutation", "t-test"])
def test_equal_systems_of_three_seeds_and_of_one_do_not_differ(test):
    """As where a dev set keeps the start: the mean of three equal scores is off by a rounding."""
    scores_Q = np.random.default_rng(0).choice([0.1, 1 / 3, 0.7], 200)
    three, one = Scores(np.stack([scores_Q] * 3, axis=1), (1, 2, 3)), Scores(scores_Q[:, None], (1,))
    assert not np.array_equal(three.values_QR.mean(axis=1), scores_Q), "not vacuous"
    assert compare(three, one, test).p == 1
