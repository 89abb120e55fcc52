"""Draws of queries, positives and negatives: literal values, and the released rule as a reference."""

import numpy as np
import pytest

from teleport.seed import derive_seed
from teleport.training.data import distinct_order, negative_window, positive_index, query_order


def windows(pool_size, num_negatives, epochs, query_id="q1"):
    return [negative_window(pool_size, num_negatives, epoch, 42, query_id).tolist() for epoch in range(epochs)]


def test_literal_windows():
    """Literals keep the draws from changing unnoticed: other draws would be other published numbers."""
    assert windows(7, 3, 4) == [[3, 1, 2], [6, 5, 0], [4, 3, 1], [2, 6, 5]]
    assert windows(2, 4, 2) == [[1, 1, 0, 1], [1, 0, 0, 0]]


@pytest.mark.parametrize(("pool_size", "num_negatives"), [(60, 15), (120, 31), (180, 31), (7, 3), (31, 31), (5, 1)])
def test_window_is_the_released_rule(pool_size, num_negatives):
    """The released dataset's lines: shuffle, offset = epoch * N % len, negatives twice, cut, keep the first N."""
    shuffled = list(range(pool_size))
    np.random.default_rng(derive_seed(42, "negatives", "q1")).shuffle(shuffled)
    for epoch in range(7):
        offset = epoch * num_negatives % pool_size
        expected = (shuffled * 2)[offset:][:num_negatives]
        assert negative_window(pool_size, num_negatives, epoch, 42, "q1").tolist() == expected


def test_ms_marco_episode_3_consumes_93_of_180():
    drawn = [place for window in windows(180, 31, 3) for place in window]
    assert len(drawn) == len(set(drawn)) == 93


def test_nothing_repeats_before_the_pool_is_used_up():
    drawn = [place for window in windows(60, 15, 4) for place in window]
    assert sorted(drawn) == list(range(60))
    assert drawn != sorted(drawn)


def test_a_small_pool_is_drawn_with_replacement():
    first, second = windows(3, 20, 2)
    assert len(first) == 20 and set(first) == {0, 1, 2}
    assert first != second


def test_windows_differ_by_query_and_seed():
    assert negative_window(60, 15, 0, 42, "a").tolist() != negative_window(60, 15, 0, 42, "b").tolist()
    assert negative_window(60, 15, 0, 42, "a").tolist() != negative_window(60, 15, 0, 43, "a").tolist()


def test_positives_rotate_from_a_start_that_differs_by_query():
    places = {query: [positive_index(3, epoch, 42, query, "rotate") for epoch in range(6)] for query in "abcdefgh"}
    for sequence in places.values():
        assert sequence[:3] == sequence[3:]
        assert sorted(sequence[:3]) == [0, 1, 2]
        assert (sequence[1] - sequence[0]) % 3 == 1
    assert {sequence[0] for sequence in places.values()} == {0, 1, 2}


def test_first_positive():
    assert {positive_index(5, epoch, 42, "q", "first") for epoch in range(9)} == {0}


def test_query_order_is_a_permutation_of_its_own_in_every_epoch():
    first, second = query_order(50, 0, 42), query_order(50, 1, 42)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first.tolist() != second.tolist()
    assert query_order(50, 0, 43).tolist() != first.tolist()
    assert query_order(6, 0, 42).tolist() == [3, 0, 4, 5, 2, 1]


def distinct(positives, size, order=None):
    """`distinct_order` of queries that bring their first positive. positives: {query: all of its positives}"""
    order = np.array(list(positives) if order is None else order)
    return distinct_order(order, lambda q: positives[q][:1], lambda q: np.array(positives[q]), size).tolist()


def test_distinct_order_literally():
    """0 and 1 share 7; 2 knows 8, which 3 brings. Those that do not fit wait for the next batch."""
    positives = {0: [7], 1: [7], 2: [9, 8], 3: [8], 4: [5], 5: [6]}
    assert distinct(positives, 2) == [0, 2, 1, 3, 4, 5]
    assert distinct(positives, 3) == [0, 2, 4, 1, 3, 5]
    assert distinct({0: [7], 1: [8], 2: [9]}, 2) == [0, 1]  # the incomplete batch is left out, as in any order
    assert distinct({0: [9, 7], 1: [8, 7], 2: [6]}, 2) == [0, 1]  # 7 is shared and brought by neither


def test_where_those_that_wait_fill_no_batch_others_come_twice():
    assert distinct({0: [7], 1: [7], 2: [7], 3: [8]}, 2) == [0, 3, 1, 3]
    with pytest.raises(ValueError, match="batch of 2 queries .* of 1\\. .*training.batch"):
        distinct({0: [7], 1: [7], 2: [7], 3: [7]}, 2)


@pytest.mark.parametrize("size", [2, 5, 8])
def test_distinct_batches_by_a_plain_loop(size):
    rng = np.random.default_rng(size)
    positives = {query: rng.choice(50, rng.integers(1, 4), replace=False).tolist() for query in range(100)}
    order = rng.permutation(100)
    made = distinct(positives, size, order)
    assert len(made) == 100 // size * size and made == distinct(positives, size, order)
    for first in range(0, len(made), size):
        batch = made[first : first + size]
        assert len(set(batch)) == size
        assert not [(a, b) for a in batch for b in batch if a != b and positives[a][0] in positives[b]]
    plain = order[: len(made)].tolist()
    shared = [positives[a][0] in positives[b] for f in range(0, len(made), size) for a in plain[f : f + size]
              for b in plain[f : f + size] if a != b]  # fmt: skip
    assert any(shared) and len(set(made)) > 0.9 * len(made)  # the order itself would not do
