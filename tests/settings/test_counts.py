"""Modes become counts: literal examples."""

import pytest

from teleport.settings.negatives import mixture_counts, released_counts

ALL = ["query", "lookahead", "momentum"]


@pytest.mark.parametrize(
    ("pool", "sources", "alpha", "beta", "expected"),
    [
        (60, ["query", "lookahead"], None, 0.5, {"query": 30, "lookahead": 30}),
        (60, ALL, 0.5, 0.5, {"query": 15, "lookahead": 15, "momentum": 30}),
        (60, ALL, 0.3, 0.3, {"query": 29, "lookahead": 13, "momentum": 18}),  # exactly 29.4, 12.6, 18
        (60, ALL, 0.7, 0.3, {"query": 13, "lookahead": 5, "momentum": 42}),  # exactly 12.6, 5.4, 42
        (60, ["query", "momentum"], 0.5, None, {"query": 30, "momentum": 30}),
        (60, ["lookahead", "momentum"], 0.25, None, {"lookahead": 45, "momentum": 15}),
        (60, ["query"], None, None, {"query": 60}),
        (5, ALL, 0.5, 0.5, {"query": 1, "lookahead": 1, "momentum": 3}),  # 1.25, 1.25, 2.5
        (3, ["query", "lookahead"], None, 0.5, {"query": 2, "lookahead": 1}),  # a tie: the earlier source
        (1, ALL, 0.5, 0.5, {"query": 0, "lookahead": 0, "momentum": 1}),
        (10, ALL, 0.0, 1.0, {"query": 0, "lookahead": 10, "momentum": 0}),
        (10, ALL, 1.0, 0.5, {"query": 0, "lookahead": 0, "momentum": 10}),
    ],
)
def test_counts_of_a_mixture(pool, sources, alpha, beta, expected):
    assert mixture_counts(pool, sources, alpha, beta) == expected


@pytest.mark.parametrize(
    ("sources", "last_size", "expected"),
    [
        (ALL, 0, {"query": 30, "lookahead": 30}),
        (ALL, 120, {"query": 30, "lookahead": 30, "momentum": 120}),
        (["query"], 120, {"query": 180}),
        (["query"], 0, {"query": 60}),  # also after an episode without a pool
        (["query", "lookahead"], 60, {"query": 60, "lookahead": 60}),
        (["query", "momentum"], 60, {"query": 60, "momentum": 60}),
    ],
)
def test_counts_as_released_and_pools_of_the_same_size_with_fewer_sources(sources, last_size, expected):
    assert released_counts(30, sources, last_size) == expected
