"""Random negatives: uniform, without replacement, never a known passage, the same for a query in any company."""

import numpy as np
import pytest

from teleport.arrays import Ragged, offsets_of
from teleport.negatives.draw import hash_ids
from teleport.negatives.sources import random

NOTHING = np.zeros(0, np.int32)


def make(names, num_passages, count=5, known=None):
    lists = known or [NOTHING] * len(names)
    known = Ragged(offsets_of([len(values) for values in lists]), np.concatenate(lists).astype(np.int32))
    return random.Random(hash_ids(names), num_passages, known, count)


def slots(source):
    """{passage} of every query that may be drawn, after checking that none is there twice."""
    block = source.block(0, len(source.widths_Q))
    drawn = [row[ok].tolist() for row, ok in zip(block.passages_QS, block.there_QS, strict=True)]
    assert all(len(set(row)) == len(row) for row in drawn)
    return drawn


@pytest.mark.parametrize("num_passages", [60, 97])  # offered whole, and drawn from with repeats in every tenth draw
def test_every_passage_is_drawn_equally_often_and_none_twice(world, num_passages):
    """Chi-square of 20,000 queries with 5 each, the known passage of a query left out; 0.001 of its distribution."""
    names, known = [f"q{n}" for n in range(20_000)], np.arange(20_000) % num_passages
    collection = world.collection(names, [(q, p, 1) for q, p in enumerate(known)], num_passages=num_passages)
    assert make(names[:1], num_passages).whole == (num_passages == 60)
    job = world.merge(collection, {"random": 5}, {})
    passages = np.array(job.passages)
    assert passages.shape == (20_000, 5)
    assert (np.diff(np.sort(passages, axis=1)) > 0).all() and not (passages == known[:, None]).any()
    expected = 5 * (20_000 - np.bincount(known)) / (num_passages - 1)
    counts = np.bincount(passages.ravel(), minlength=num_passages)
    # Without replacement the counts vary less than those of a multinomial: by 1 - 5 / 96.
    statistic = ((counts - expected) ** 2 / expected).sum() / (1 - 5 / (num_passages - 1))
    degrees = num_passages - 1
    assert degrees - 3.3 * np.sqrt(2 * degrees) < statistic < degrees + 3.3 * np.sqrt(2 * degrees)
    away = (passages - known[:, None]) % num_passages  # no passage is likelier near the known one either
    assert np.abs(np.bincount(away.ravel())[1:] / (10**5 / (num_passages - 1)) - 1).max() < 0.15


def test_a_value_that_would_make_the_first_passages_likelier_is_drawn_again(monkeypatch):
    """Modulo the corpus size, the 64-bit values above its last multiple are the first passages once more."""
    source = make(["a"], 2**20 + 1, count=2)
    plain, too_high = random.splitmix64, np.uint64(2**64 - 1)
    monkeypatch.setattr(random, "splitmix64", lambda x: np.where(np.arange(x.shape[1]) % 2, plain(x), too_high))
    passages = source.passages(0, 1)
    assert (passages >= 0).all() and (2**64 - 1) % (2**20 + 1) not in passages


@pytest.mark.parametrize("num_passages", [50, 200, 10**7])
def test_a_draw_does_not_depend_on_row_and_neighbours(num_passages):
    names = [f"q{n}" for n in range(300)]
    known = [np.arange(n % 7, dtype=np.int32) for n in range(300)]
    whole = slots(make(names, num_passages, known=known))
    rows = [250, 3, 77]
    part = slots(make([names[n] for n in rows], num_passages, known=[known[n] for n in rows]))
    assert part == [whole[n] for n in rows]
    assert len({tuple(row) for row in whole}) > (100 if num_passages > 80 else 6), "queries differ"
    source = make(names, num_passages, known=known)
    block = source.block(200, 260)
    assert block.passages_QS[50][block.there_QS[50]].tolist() == whole[250]


def test_a_longer_stream_begins_with_what_a_shorter_one_found(monkeypatch):
    names = [f"q{n}" for n in range(500)]
    known = [np.arange(40, dtype=np.int32)] * 500
    plain = slots(make(names, 130, count=8, known=known))
    monkeypatch.setattr(random, "EXTRA_DRAWS", 0)  # nearly every query has to go on
    assert slots(make(names, 130, count=8, known=known)) == plain
    assert all(len(row) == 16 and min(row) >= 40 for row in plain)


def test_nearly_everything_may_be_known():
    known = [np.arange(998, dtype=np.int32), NOTHING, np.arange(1000, dtype=np.int32)]
    drawn = slots(make(["a", "b", "c"], 1000, known=known))
    assert [len(row) for row in drawn] == [2, 10, 0] and set(drawn[0]) == {998, 999}
    assert [len(row) for row in slots(make(["a", "b"], 12, known=[known[0][:11], NOTHING]))] == [1, 12]


def test_a_corpus_of_millions_costs_what_a_small_one_does():
    source = make([f"q{n}" for n in range(2000)], 8_841_823, count=60)
    drawn = np.array(slots(source))
    assert drawn.shape == (2000, 120)
    assert drawn.min() < 10**4 and drawn.max() > 8_841_823 - 10**4
    assert abs(drawn.mean() / 8_841_823 - 0.5) < 0.003  # 5 standard errors


def test_random_negatives_have_neither_rank_nor_score(world):
    collection = world.collection(["a", "b"], [(0, 1, 1)], num_passages=50)
    job = world.merge(collection, {"random": 3}, {}, episode=3)
    assert [len(pool) for pool in job.pools] == [3, 3]
    assert {item[1:4] for pool in job.pools for item in pool} == {("random", 3, 0)}
    assert np.isnan([item[4] for pool in job.pools for item in pool]).all()


def test_none_are_wanted():
    assert slots(make(["a"], 10, count=0)) == [[]] and slots(make(["a"], 10**6, count=0)) == [[]]
