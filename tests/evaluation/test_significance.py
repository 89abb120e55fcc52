"""The permutation test against literal values and a plain loop of swaps; Holm's correction by hand."""

import random

import numpy as np
import pytest

from teleport.evaluation.significance import BATCH_VALUES, holm, paired_p_value, paired_t_p_value


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
