"""The pool's artefacts, and duplicates in it."""

import json

import numpy as np
import pytest
from pydantic import ValidationError

from teleport.negatives import merge
from teleport.negatives import pool as pools
from teleport.negatives.budget import FIELDS
from teleport.negatives.pool import Items
from teleport.settings.experiment import MOST_EPISODES
from teleport.settings.negatives import Mining
from teleport.settings.pool import Pool

NAMES = ["query", "lookahead", "momentum"]
QUERY, LOOKAHEAD, MOMENTUM = (1 << place for place in range(3))


def items(*rows):
    """Flat `Items` from (passage, sources, first episode, rank, score) tuples."""
    return Items(*map(np.array, zip(*rows, strict=True), FIELDS.values()))


def test_sources_have_their_names_in_the_pool(tmp_path):
    writer = pools.PoolWriter(lambda name: tmp_path / name, NAMES)
    writer.append(np.array([1]), items((7, LOOKAHEAD | MOMENTUM, 1, 1, 0.5)))
    writer.close()
    pool = pools.read_pool(lambda name: tmp_path / name)
    assert pool.names == NAMES and pool.bits == {"query": QUERY, "lookahead": LOOKAHEAD, "momentum": MOMENTUM}
    assert json.loads((tmp_path / "sources.json").read_text()) == NAMES


def test_a_bit_moves_to_the_place_of_its_name():
    """A later pool has other sources, and those of an earlier one after them."""
    sources = np.array([0b001, 0b110, 0b111, 0], np.uint16)
    moved = merge.renamed(sources, ["query", "bm25", "momentum"], ["random", "momentum", "query", "bm25"])
    assert moved.dtype == np.uint16 and moved.tolist() == [0b0100, 0b1010, 0b1110, 0]


def test_a_pool_is_read_as_it_was_written(tmp_path):
    blocks = [items((7, 1, 1, 1, 0.5), (8, 2, 1, 3, 0.25)), items((7, 5, 1, 200, -1.5))]
    writer = pools.PoolWriter(lambda name: tmp_path / name, NAMES)
    writer.append(np.array([2, 0]), blocks[0])
    writer.append(np.array([1]), blocks[1])
    assert writer.close().tolist() == [0, 2, 2, 3]
    pool = pools.read_pool(lambda name: tmp_path / name)
    assert pool.offsets.tolist() == [0, 2, 2, 3]
    assert [field.tolist() for field in pool.items] == [[7, 8, 7], [1, 2, 5], [1, 1, 1], [1, 3, 200], [0.5, 0.25, -1.5]]
    dtypes = {"offsets.npy": "int64", "passages.npy": "int32", "sources.npy": "uint16", "first_episodes.npy": "uint8"}
    dtypes |= {"ranks.npy": "int32", "scores.npy": "float32"}
    for path in tmp_path.glob("*.npy"):
        np.save(tmp_path.parent / "plain.npy", np.load(path))
        assert path.read_bytes() == (tmp_path.parent / "plain.npy").read_bytes()
    assert {path.name: str(np.load(path).dtype) for path in tmp_path.glob("*.npy")} == dtypes


def test_settings_stay_within_the_types():
    ranks, episodes = (int(np.iinfo(FIELDS[name]).max) for name in ("ranks", "first_episodes"))
    assert Mining(depth=1_000_000).depth < ranks
    with pytest.raises(ValidationError, match="or equal to 1000000"):
        Mining(depth=ranks)
    draws = {"query": {"count": 1, "place": 0}}
    assert episodes == MOST_EPISODES == Pool(sources=draws, seed=1, episode=episodes).episode
    with pytest.raises(ValidationError, match="or equal to 255"):
        Pool(sources=draws, seed=1, episode=episodes + 1)


def test_duplicates_are_counted_per_query_and_only_where_filled():
    passages = np.array([[5, 5, 5, 0], [5, 6, 7, 7], [0, 0, 0, 0]])
    filled = np.array([[True, True, True, False], [True, True, True, False], [True, False, False, False]])
    assert pools.count_duplicates(passages, filled) == 2
    assert pools.count_duplicates(np.zeros((3, 0), int), np.zeros((3, 0), bool)) == 0


def test_the_first_occurrence_stays_and_sources_unite():
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
