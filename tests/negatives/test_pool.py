"""The pool's artefacts, and duplicates in it."""

import numpy as np
import pytest
from pydantic import ValidationError

from teleport.negatives import pool as pools
from teleport.negatives.pool import FIELDS, Items
from teleport.settings.experiment import MOST_EPISODES
from teleport.settings.negatives import Mining
from teleport.settings.pool import Pool
from teleport.settings.registry import SOURCES

QUERY, LOOKAHEAD, MOMENTUM = (SOURCES[name].flag for name in ("query", "lookahead", "momentum"))


def items(*rows):
    """Flat `Items` from (passage, sources, first episode, rank, score) tuples."""
    return Items(*map(np.array, zip(*rows, strict=True), FIELDS.values()))


def test_flags_are_distinct_bits():
    assert (QUERY, LOOKAHEAD, MOMENTUM) == (1, 2, 4)
    flags = [source.flag for source in SOURCES.values()]
    assert sum(flags) == np.bitwise_or.reduce(flags) <= 255


def test_a_pool_is_read_as_it_was_written(tmp_path):
    blocks = [items((7, 1, 1, 1, 0.5), (8, 2, 1, 3, 0.25)), items((7, 5, 1, 200, -1.5))]
    writer = pools.PoolWriter(lambda name: tmp_path / name)
    writer.append(np.array([2, 0]), blocks[0])
    writer.append(np.array([1]), blocks[1])
    assert writer.close().tolist() == [0, 2, 2, 3]
    pool = pools.read_pool(lambda name: tmp_path / name)
    assert pool.offsets.tolist() == [0, 2, 2, 3]
    assert [field.tolist() for field in pool.items] == [[7, 8, 7], [1, 2, 5], [1, 1, 1], [1, 3, 200], [0.5, 0.25, -1.5]]
    dtypes = {"offsets.npy": "int64", "passages.npy": "int32", "sources.npy": "uint8", "first_episodes.npy": "uint8"}
    dtypes |= {"ranks.npy": "int32", "scores.npy": "float32"}
    for path in tmp_path.iterdir():
        np.save(tmp_path.parent / "plain.npy", np.load(path))
        assert path.read_bytes() == (tmp_path.parent / "plain.npy").read_bytes()
    assert {path.name: str(np.load(path).dtype) for path in tmp_path.iterdir()} == dtypes


def test_settings_stay_within_the_types():
    ranks, episodes = (int(np.iinfo(FIELDS[name]).max) for name in ("ranks", "first_episodes"))
    assert Mining(depth=1_000_000).depth < ranks
    with pytest.raises(ValidationError, match="less than or equal to 1000000"):
        Mining(depth=ranks)
    draw = {"kind": "uniform"}
    draws = {"query": {"count": 1, "flag": int(np.iinfo(FIELDS["sources"]).max) // 2 + 1}}
    assert episodes == MOST_EPISODES == Pool(sources=draws, draw=draw, seed=1, episode=episodes).episode
    with pytest.raises(ValidationError, match="less than or equal to 255"):
        Pool(sources=draws, draw=draw, seed=1, episode=episodes + 1)


def test_duplicates_are_counted_per_query_and_only_where_filled():
    passages = np.array([[5, 5, 5, 0], [5, 6, 7, 7], [0, 0, 0, 0]])
    filled = np.array([[True, True, True, False], [True, True, True, False], [True, False, False, False]])
    assert pools.count_duplicates(passages, filled) == 2
    assert pools.count_duplicates(np.zeros((3, 0), int), np.zeros((3, 0), bool)) == 0


def test_the_first_occurrence_stays_and_flags_unite():
    queries = np.array([0, 0, 0, 1, 1, 1])
    pool = items(
        (9, QUERY, 3, 4, 0.4),
        (2, LOOKAHEAD, 3, 1, 0.9),
        (9, LOOKAHEAD | MOMENTUM, 1, 7, 0.1),
        (9, QUERY, 3, 2, 0.2),
        (1, LOOKAHEAD, 3, 5, 0.5),
        (1, QUERY | MOMENTUM, 2, 6, 0.6),
    )
    kept_queries, kept = pools.drop_duplicates(queries, pool)
    assert kept_queries.tolist() == [0, 0, 1, 1]
    assert kept.passages.tolist() == [9, 2, 9, 1]
    assert kept.sources.tolist() == [7, 2, 1, 7]
    assert kept.first_episodes.tolist() == [1, 3, 3, 2]
    assert kept.ranks.tolist() == [4, 1, 2, 5]
    assert kept.scores.tolist() == np.array([0.4, 0.9, 0.2, 0.5], np.float32).tolist()
    assert pool.sources.tolist() == [1, 2, 6, 1, 2, 5]  # the input is left alone


def test_dropping_from_nothing_gives_nothing():
    queries, kept = pools.drop_duplicates(
        np.array([], np.int64), Items(*(np.array([], dtype) for dtype in FIELDS.values()))
    )
    assert len(queries) == 0
    assert [len(field) for field in kept] == [0] * 5
