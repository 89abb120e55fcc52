"""Batches: who is in them, in which order, and from which files."""

from itertools import pairwise

import numpy as np
import pytest

from teleport.arrays import Ragged, save_array
from teleport.settings.section import Part
from teleport.training.data import TrainingSet, read_training_set
from training_world import World, training_set


def test_layout_of_a_batch():
    batch = training_set([9, 9, 9, 9, 9]).batch(0)
    assert batch.positive_columns_Q.tolist() == [0, 4]
    assert batch.own_columns_QN.tolist() == [[1, 2, 3], [5, 6, 7]]
    assert len(batch.queries_Q) == 2 and len(batch.passages_P) == 8
    for query, column in zip(batch.queries_Q, batch.positive_columns_Q, strict=True):
        positive, *negatives = batch.passages_P[column : column + 4]
        assert positive in (100 + query, 200 + query)
        assert all(passage // 1000 == query for passage in negatives) and len(set(negatives)) == 3


def test_without_own_negatives_every_query_with_a_positive_is_trained_on():
    full = training_set([9, 0, 2, 9], negatives_per_query=0)
    positives = Ragged(np.array([0, 2, 2, 3, 5]), np.array([100, 200, 102, 103, 203]))
    data = TrainingSet(full.query_ids, positives, None, full.training, seed=42)
    assert (data.without_negatives, data.without_positives, data.rows.tolist()) == (0, 1, [0, 2, 3])
    batch = data.batch(0)
    assert batch.own_columns_QN.shape == (2, 0) and batch.positive_columns_Q.tolist() == [0, 1]
    assert all(p in positives[row] for p, row in zip(batch.passages_P, batch.queries_Q, strict=True))
    parts = batch.split(2)
    assert [part.own_columns_QN.shape for part in parts] == [(1, 0), (1, 0)]
    assert [part.positive_columns_Q.tolist() for part in parts] == [[0], [0]]


def test_an_epoch_has_every_query_once_and_drops_the_incomplete_batch():
    data = training_set([9] * 7)
    epochs = [np.concatenate([data.batch(3 * epoch + step).queries_Q for step in range(3)]) for epoch in range(4)]
    assert all(len(set(epoch)) == 6 for epoch in epochs)
    assert epochs[0].tolist() != epochs[1].tolist()
    assert set(np.concatenate(epochs)) == set(range(7))


def test_epochs_take_the_next_negatives_and_the_next_positive():
    data = training_set([9, 9])
    batches = [data.batch(epoch) for epoch in range(3)]
    blocks = [b.passages_P.reshape(2, 4)[np.argsort(b.queries_Q)] for b in batches]
    assert sorted(np.concatenate([block[0, 1:] for block in blocks])) == list(range(9))
    assert [block[0, 0] for block in blocks] in ([100, 200, 100], [200, 100, 200])


def test_first_positive_in_every_epoch():
    data = training_set([9, 9], positive="first")
    assert {min(data.batch(epoch).passages_P[[0, 4]]) for epoch in range(4)} == {100}
    assert {max(data.batch(epoch).passages_P[[0, 4]]) for epoch in range(4)} == {101}


def test_queries_without_negatives_never_appear():
    data = training_set([9, 0, 2, 9])
    assert data.without_negatives == 1 and data.rows.tolist() == [0, 2, 3]
    assert {row for step in range(20) for row in data.batch(step).queries_Q} == {0, 2, 3}


@pytest.mark.parametrize(("number", "rows"), [(0, [0, 1]), (1, [2]), (2, [4, 6])])
def test_a_part_of_the_queries_is_trained_on_alone(caplog, number, rows):
    """7 queries in 3 parts; queries of other parts, which have no pools, are no fault. Queries 3 and 5 are one."""
    sizes = [9, 9, 9, 0, 9, 0, 9]
    full, part = training_set(sizes), Part(number=number, of=3)
    caplog.clear()
    with caplog.at_level("INFO", logger="teleport"):
        data = TrainingSet(full.query_ids, full.positives, full.pools, full.training, 42, part=part)
    faulty = {0: 0, 1: 1, 2: 1}[number]
    assert data.rows.tolist() == rows and (data.without_negatives, data.without_positives) == (faulty, 0)
    assert [record.getMessage() for record in caplog.records] == faulty * [
        f"1 of {(2, 2, 3)[number]} training queries have no negatives: left out"
    ]
    if len(rows) == 2:
        assert set(data.batch(3).queries_Q) == set(rows)


def test_parts_are_of_equal_size_and_the_last_has_the_rest():
    """ANCE's `ann_chunk_factor` 5 on MS MARCO: 100,587 queries a part, and 4 more in the last one."""
    bounds = [Part(number=n, of=5).rows(502_939) for n in range(5)]
    assert [last - first for first, last in bounds] == [100_587] * 4 + [100_591]
    assert bounds[0][0] == 0 and bounds[-1][1] == 502_939
    assert all(before[1] == after[0] for before, after in pairwise(bounds))
    assert [Part(number=n, of=3).rows(2) for n in range(3)] == [(0, 0), (0, 0), (0, 2)]


def test_queries_without_positives_never_appear():
    full = training_set([9, 9, 0, 9, 9])
    positives = Ragged(np.array([0, 2, 2, 2, 3, 5]), np.array([100, 200, 103, 104, 204]))
    data = TrainingSet(full.query_ids, positives, full.pools, full.training, seed=42)
    assert (data.without_positives, data.without_negatives, data.rows.tolist()) == (2, 1, [0, 3, 4])
    batches = [data.batch(step) for step in range(20)]
    assert {row for batch in batches for row in batch.queries_Q} == {0, 3, 4}
    assert {p for batch in batches for p in batch.passages_P[batch.positive_columns_Q]} == {100, 200, 103, 104, 204}


def test_a_pool_smaller_than_n_is_drawn_with_replacement():
    data = training_set([2, 2])
    assert set(data.batch(0).passages_P % 1000) >= {0, 1}
    assert len(data.batch(0).passages_P) == 8


def test_batches_are_a_function_of_the_step():
    data, other = training_set([9] * 6), training_set([9] * 6)
    backwards = {step: other.batch(step) for step in reversed(range(9))}
    for step in range(9):
        assert data.batch(step).queries_Q.tolist() == backwards[step].queries_Q.tolist()
        assert data.batch(step).passages_P.tolist() == backwards[step].passages_P.tolist()


def test_read_from_the_inputs_of_a_job(stages):
    """Grade 2 is positive: query 4 has the passages 4 and 24, query 5 the passage 5; 59 has grade 1."""
    job = World(stages).job()
    data = read_training_set(job, 1)
    assert data.query_ids[:2] == ["query-00", "query-01"] and len(data.rows) == 20
    assert data.positives[4].tolist() == [4, 24] and data.positives[5].tolist() == [5]
    pools = np.load(job.input("negatives", "passages.npy"))
    assert data.pools[3].tolist() == pools[30:40].tolist()
    batch = data.batch(0)
    assert batch.passages_P.dtype == np.int64
    for query, block in zip(batch.queries_Q, batch.passages_P.reshape(4, 4), strict=True):
        assert block[0] in data.positives[query] and set(block[1:]) <= set(data.pools[query])


@pytest.mark.parametrize(("grade", "known"), [(1, {4, 24, 59}), (2, {4, 24})])
def test_known_positives_are_those_of_training_and_those_judged_relevant(stages, grade, known):
    job = World(stages).job({"masks": ["known_positives"]}, relevant_grade=grade)
    assert set(read_training_set(job, 1).known_positives(4)) == known


def test_positives_found_by_a_stage_are_trained_on_and_judged_ones_are_masked_too(stages):
    world, found = World(stages), stages.make("positives")
    save_array(found.output("offsets.npy"), np.arange(21))
    save_array(found.output("passages.npy"), np.arange(20, 40, dtype=np.int32))
    job = world.job({"masks": ["known_positives"]}, inputs={"positives": stages.finish(found)}, relevant_grade=2)
    data = read_training_set(job, 1)
    assert data.positives[5].tolist() == [25] and set(data.known_positives(5)) == {25, 5}
    assert set(data.batch(0).passages_P[data.batch(0).positive_columns_Q]) <= set(range(20, 40))


@pytest.mark.parametrize("seed", [1, 2])
def test_order_of_an_epoch_derives_from_the_seed(seed):
    data = training_set([9] * 30)
    data.seed = seed
    assert data.batch(0).queries_Q.tolist() != training_set([9] * 30).batch(0).queries_Q.tolist()


def test_distinct_batches_look_at_the_positive_of_the_epoch_and_at_all_that_are_known():
    """Queries 0 and 1 share passage 5 and take turns with it; 2 and 3 share 9, which the judgments alone say of 3."""
    full = training_set([9] * 6, distinct_positives=True)
    positives = Ragged(np.array([0, 2, 4, 5, 6, 7, 8]), np.array([5, 1, 5, 2, 9, 8, 6, 7]))
    relevant = Ragged(np.array([0, 0, 0, 0, 1, 1, 1]), np.array([9]))
    data = TrainingSet(full.query_ids, positives, full.pools, full.training, 42, relevant)
    plain = training_set([9] * 6)
    without = TrainingSet(full.query_ids, positives, full.pools, plain.training, 42, relevant)
    clashes = {}
    for kind, each in (("distinct", data), ("any", without)):
        clashes[kind] = 0
        for step in range(30):
            batch = each.batch(step)
            brought = batch.passages_P[batch.positive_columns_Q]
            pairs = [(0, 1), (1, 0)]
            clashes[kind] += any(brought[a] in each.known_positives(batch.queries_Q[b]) for a, b in pairs)
    assert clashes["distinct"] == 0 < clashes["any"]
