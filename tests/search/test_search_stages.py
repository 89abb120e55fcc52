"""Stages `index` and `retrieve`."""

import json
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from collection_world import make_collection
from stages import facts_of
from teleport.arrays import save_array
from teleport.running.job import Job
from teleport.running.run import run as finish
from teleport.running.run import run_shard
from teleport.search import index, pairs, retrieve

NUM_PASSAGES, NUM_QUERIES, DIM = 90, 11, 6
# query, passage, grade: query 0 has three positives, 2 has two, 4 has one; 1 and 3 have judgments below the grade
JUDGMENTS = [(2, 8, 2), (0, 5, 2), (0, 3, 1), (0, 9, 3), (2, 1, 2), (1, 4, 1), (0, 2, 2), (4, 4, 2), (3, 0, 0)]


KINDS = {"flat": ("Flat", ""), "ivf": ("IVF2,Flat", "nprobe=2"), "pq": ("PQ4x4", "")}


@pytest.fixture
def world(stages):
    """Finished collection, encode and index jobs around integer vectors, so that scores are exact and often tied."""
    rng = np.random.default_rng(0)
    judgments = {"train": JUDGMENTS}
    collection = make_collection(stages, NUM_PASSAGES, {"train": NUM_QUERIES}, judgments, positive_grade=2)
    encoded = stages.make("encode")
    for name, rows in (("passages", NUM_PASSAGES), ("queries.train", NUM_QUERIES), ("queries.test", 3)):
        save_array(encoded.output(f"{name}.npy"), rng.integers(0, 3, size=(rows, DIM)).astype(np.float32))
    stages.finish(encoded)
    indexed = stages.run(index.run, "index", {}, {"passages": encoded})
    return {"collection": collection, "passages": encoded, "queries": encoded, "index": indexed}


def loaded(job, *names):
    return [np.load(job.folder / f"{name}.npy") for name in names]


def run(stages, world, **settings):
    settings = {"of": "queries", "split": "train", "depth": 20} | settings
    return stages.run(retrieve.run, "retrieve", settings, world)


def by_sorting(passages, anchors, depth):
    scores = anchors.astype(int) @ passages.astype(int).T
    order = [sorted(range(len(passages)), key=lambda p, line=line: (-line[p], p))[:depth] for line in scores]
    return np.array(order), np.take_along_axis(scores, np.array(order), axis=1)


def test_index_describes_the_vectors(world):
    assert json.loads((world["index"].folder / "index.json").read_text()) == {
        "kind": "flat",
        "index": "Flat",
        "metric": "inner product",
        "dim": DIM,
        "rows": NUM_PASSAGES,
    }
    assert facts_of(world["index"]) == {"num_passages": NUM_PASSAGES, "dim": DIM, "bytes": NUM_PASSAGES * DIM * 4}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_index_refuses_vectors_that_are_not_finite(stages, monkeypatch, value):
    monkeypatch.setattr(pairs, "BLOCK", 4)
    vectors = np.ones((10, 3), np.float32)
    vectors[6, 1] = vectors[8, 0] = value
    encoded = stages.make("encode")
    save_array(encoded.output("passages.npy"), vectors)
    job = stages.make("index", {}, {"passages": stages.finish(encoded)})
    with pytest.raises(ValueError, match="passages.npy: .*passage row 6 "):
        index.run(job)


@pytest.mark.parametrize("apart, warned", [(0.0, True), (1e-3, True), (0.1, False)])
def test_index_warns_of_collapsed_vectors(stages, caplog, apart, warned):
    rng = np.random.default_rng(3)
    encoded = stages.make("encode")
    vectors = 1 + apart * rng.standard_normal((60, 5))
    save_array(encoded.output("passages.npy"), vectors.astype(np.float32))
    stages.run(index.run, "index", {}, {"passages": stages.finish(encoded)})
    assert ("passages.npy: all vectors are nearly the same (spread" in caplog.text) == warned
    assert ("has collapsed" in caplog.text) == warned


def test_nothing_trained_has_not_collapsed(stages, caplog):
    encoded = stages.make("encode", inputs={"checkpoint": stages.finish(stages.make("pretrained"))})
    save_array(encoded.output("passages.npy"), np.ones((60, 5), np.float32))
    stages.run(index.run, "index", {}, {"passages": stages.finish(encoded)})
    assert "cannot tell the texts apart" in caplog.text and "collapsed" not in caplog.text


@pytest.mark.parametrize("split, lines", [("train", NUM_QUERIES), ("test", 3)])
def test_queries_get_their_nearest_passages(stages, world, split, lines):
    job = run(stages, world, split=split)
    passages, queries = loaded(world["passages"], "passages", f"queries.{split}")
    ids, scores, rows = loaded(job, "ids", "scores", "rows")
    expected_ids, expected_scores = by_sorting(passages, queries, 20)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_array_equal(scores, expected_scores)
    assert rows.tolist() == list(range(lines))
    assert (ids.dtype, scores.dtype, rows.dtype) == (np.int32, np.float32, np.int32)
    facts = facts_of(job)
    assert (facts["lines"], facts["depth"], facts["engine"]) == (lines, 20, "exact")


@pytest.mark.parametrize(("number", "rows"), [(0, range(0, 3)), (1, range(3, 6)), (2, range(6, 11))])
def test_a_part_of_the_queries_is_searched_alone(stages, world, number, rows):
    """11 queries in 3 parts; the last one has the rest."""
    job, whole = run(stages, world, part={"number": number, "of": 3}), run(stages, world)
    assert facts_of(job)["lines"] == len(rows) and loaded(job, "rows")[0].tolist() == list(rows)
    for name in ("ids", "scores"):
        np.testing.assert_array_equal(*loaded(job, name), loaded(whole, name)[0][rows])


@pytest.mark.parametrize(("number", "anchors"), [(0, [0, 0, 0, 2, 2]), (1, [4]), (2, [])])
def test_positives_of_a_part_of_the_queries_are_searched_alone(stages, world, number, anchors):
    settings = {"of": "positives", "anchor": "all"}
    job, whole = run(stages, world, part={"number": number, "of": 3}, **settings), run(stages, world, **settings)
    assert loaded(job, "rows")[0].tolist() == anchors
    lines = np.flatnonzero(np.isin(loaded(whole, "rows")[0], anchors))
    np.testing.assert_array_equal(loaded(job, "ids")[0], loaded(whole, "ids")[0][lines])


@pytest.mark.parametrize(
    "anchor, rows, passages", [("first", [0, 2, 4], [5, 8, 4]), ("all", [0, 0, 0, 2, 2, 4], [5, 9, 2, 8, 1, 4])]
)
def test_positives_get_their_nearest_passages(stages, world, anchor, rows, passages):
    job = run(stages, world, of="positives", anchor=anchor)
    (vectors,) = loaded(world["passages"], "passages")
    ids, scores, found_rows = loaded(job, "ids", "scores", "rows")
    expected_ids, expected_scores = by_sorting(vectors, vectors[passages], 20)
    assert found_rows.tolist() == rows
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_array_equal(scores, expected_scores)


@pytest.mark.ci(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("of", ["queries", "positives"])
def test_float16_vectors_give_the_bits_of_their_float32_values(stages, world, kind, of):
    rng, written = np.random.default_rng(1), []
    halves = rng.standard_normal((NUM_PASSAGES, 8)).astype(np.float16)
    queries = rng.standard_normal((NUM_QUERIES, 8)).astype(np.float32)
    for vectors in (halves, halves.astype(np.float32)):
        encoded = stages.make("encode")
        save_array(encoded.output("passages.npy"), vectors)
        save_array(encoded.output("queries.train.npy"), queries)
        inputs = dict.fromkeys(("passages", "queries"), stages.finish(encoded))
        chosen, parameters = KINDS[kind]
        inputs["index"] = stages.run(index.run, "index", {"index": chosen}, inputs)
        job = run(stages, world | inputs, of=of, depth=10, parameters=parameters)
        written.append([(job.folder / f"{name}.npy").read_bytes() for name in ("ids", "scores", "rows")])
    assert written[0] == written[1]


def test_a_depth_of_more_than_the_whole_collection_is_all_of_it(stages, world):
    (ids,) = loaded(run(stages, world, depth=NUM_PASSAGES), "ids")
    assert (np.sort(ids, axis=1) == np.arange(NUM_PASSAGES)).all()
    (more,) = loaded(run(stages, world, depth=NUM_PASSAGES + 1), "ids")
    np.testing.assert_array_equal(more, ids)


def test_query_vectors_must_be_finite(stages, world):
    vectors = np.load(world["queries"].folder / "queries.train.npy")
    vectors[7, 2] = np.nan
    encoded = stages.make("encode")
    save_array(encoded.output("queries.train.npy"), vectors)
    with pytest.raises(ValueError, match="queries.train.npy: .*query row 7 "):
        run(stages, world | {"queries": stages.finish(encoded)}, depth=3)


def test_what_is_asked_of_all_vectors_is_asked_block_by_block():
    vectors = np.broadcast_to(np.float32(1), (2**20, 64))
    tracemalloc.start()
    try:
        pairs.require_finite("queries.npy", vectors, "query")
        assert tracemalloc.get_traced_memory()[1] < vectors.size / 8, "a byte for each number of a block"
    finally:
        tracemalloc.stop()


def noted(job, die_after=None):
    """The list of rows that the job has searched at first and after each block; it dies when there are `die_after`."""
    stops = []

    def progress(done, total, unit):
        assert (total, unit) == (NUM_QUERIES, "queries")
        stops.append(done)
        if len(stops) == die_after:
            raise KeyboardInterrupt

    job.progress = progress
    return stops


def test_a_killed_run_continues_with_the_same_bits(stages, world, monkeypatch):
    monkeypatch.setattr(retrieve, "BLOCK_ROWS", 4)
    undisturbed = run(stages, world)
    job = stages.make("retrieve", {"of": "queries", "split": "train", "depth": 20}, world, save_every=0.0)
    searched = noted(job, die_after=4)
    with pytest.raises(KeyboardInterrupt):
        retrieve.run(job)
    assert searched == [0, 4, 8, 11] and not job.folder.exists()
    searched = noted(job)
    stages.finish(job, retrieve.run(job))
    assert searched == [8, 11], "of the block in which it died and of no other"
    for name in ("ids.npy", "scores.npy", "rows.npy"):
        assert (undisturbed.folder / name).read_bytes() == (job.folder / name).read_bytes()


@pytest.mark.parametrize("device, expected", [("cpu", [0, 4, 8, 11]), ("cuda", [0, 8, 11])])
def test_blocks_are_larger_on_a_gpu(stages, world, monkeypatch, device, expected):
    monkeypatch.setattr(retrieve, "BLOCK_ROWS", 4)
    monkeypatch.setattr(retrieve, "DEVICE_BLOCK_ROWS", 8)
    opened = retrieve.open_index

    def open_index(*given):
        return SimpleNamespace(device=device, engine="exact", search=opened(*given).search)

    monkeypatch.setattr(retrieve, "open_index", open_index)
    job = stages.make("retrieve", {"of": "queries", "split": "train", "depth": 20}, world)
    searched = noted(job)
    retrieve.run(job)
    assert searched == expected


SEARCHES = {
    "flat": {},
    "positives": {"of": "positives"},
    "ivf": {"index": "IVF2,Flat", "parameters": "nprobe=2", "depth": 10},
    "pq": {"index": "PQ3x4", "depth": 10},
    "pq, compressed": {"index": "PQ3x4", "depth": 10, "scores": "compressed"},
}


def sharded(stages, world, number, **settings):
    """The search of `run`, made in so many shards and joined."""
    made = stages.make("retrieve", {"of": "queries", "split": "train", "depth": 20} | settings, world)
    for shard in (f"{n}-of-{number}" for n in range(1, number + 1)):
        run_shard(Job(made.spec | {"shard": shard}, save_every=0.0, root=stages.root))
    joined = Job(made.spec | {"shards": number}, save_every=0.0, root=stages.root)
    finish(joined)
    return joined


@pytest.mark.ci(4)
@pytest.mark.parametrize("number", [2, 3, 16])
@pytest.mark.parametrize("settings", SEARCHES.values(), ids=SEARCHES)
def test_shards_of_a_search_have_the_bits_of_the_whole(stages, world, monkeypatch, settings, number):
    monkeypatch.setattr(retrieve, "BLOCK_ROWS", 2)
    settings = dict(settings)
    if chosen := settings.pop("index", None):
        indexed = stages.run(index.run, "index", {"index": chosen}, {"passages": world["passages"]})
        world = world | {"index": indexed}
    whole, joined = run(stages, world, **settings), sharded(stages, world, number, **settings)
    names, known = ("ids", "scores", "rows"), ("lines", "depth", "engine", "recall", "recall_queries")
    for one, other in zip(loaded(whole, *names), loaded(joined, *names), strict=True):
        assert len(one) > 2 and one.dtype == other.dtype and np.array_equal(one, other)
    facts = facts_of(joined)
    rows = [shard["rows"] for shard in facts["shards"]]
    assert rows[0][0] == 0 and rows[-1][1] == facts["lines"] and len(rows) == number and rows[0][1] < facts["lines"]
    assert {name: facts.get(name) for name in known} == {name: facts_of(whole).get(name) for name in known}
    assert ("recall" in facts) == bool(chosen)
    assert facts_of(whole)["earlier_seconds"] == 0 and facts["seconds"] == facts["earlier_seconds"]
    spent = sum(shard["seconds"] for shard in facts["shards"])
    assert abs(facts["earlier_seconds"] - spent) <= 0.001 * number, "the shards' seconds count as work of the stage"
    assert not joined.shards_folder.exists()


def test_a_shard_of_a_search_that_is_damaged_is_refused(stages, world):
    made = stages.make("retrieve", {"of": "queries", "split": "train", "depth": 20}, world)
    for shard in ("1-of-2", "2-of-2"):
        job = Job(made.spec | {"shard": shard}, root=stages.root)
        run_shard(job)
    data = bytearray((job.resume / "scores.npy").read_bytes())
    data[-1] ^= 1
    (job.resume / "scores.npy").write_bytes(data)
    with pytest.raises(ValueError, match=r"2-of-2/scores.npy .*SHA-256.*Delete"):
        finish(Job(made.spec | {"shards": 2}, root=stages.root))
