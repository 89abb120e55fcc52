"""Search by the best of a passage's chunks: brute force over all chunks, with ties, exact and approximate."""

import numpy as np
import pytest
import torch

from collection_world import make_collection
from teleport.arrays import CHUNK_OFFSETS, are_first, offsets_of, places_of, save_array
from teleport.maxp import MaxP, chunks_needed
from teleport.search import index, retrieve
from teleport.search.exact import Exact

PASSAGES, QUERIES, DIM = 60, 9, 5
JUDGMENTS = [(0, 7, 1), (0, 3, 1), (2, 50, 1), (5, 3, 1)]


def random_vectors(rng, rows):
    """Small integers: scores are exact, often tied, and often negative."""
    return rng.integers(-2, 3, size=(rows, DIM)).astype(np.float32)


@pytest.fixture
def chunked():
    """(vectors of all chunks, their offsets, query vectors)"""
    rng = np.random.default_rng(0)
    offsets = offsets_of(rng.integers(1, 5, PASSAGES))
    return random_vectors(rng, offsets[-1]), offsets, random_vectors(rng, QUERIES)


def brute_force(vectors, offsets, anchors, depth):
    """(ids, scores) by a loop over passages and their chunks; ties by the smaller number."""
    ids, scores = [], []
    for anchor in anchors.astype(int):
        best = [
            max(int(anchor @ chunk) for chunk in vectors[start:stop].astype(int))
            for start, stop in zip(offsets, offsets[1:], strict=False)
        ]
        order = sorted(range(len(best)), key=lambda p, best=best: (-best[p], p))[:depth]
        ids.append(order)
        scores.append([best[p] for p in order])
    return np.array(ids), np.array(scores)


@pytest.mark.parametrize("depth", [1, 7, PASSAGES])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_scores_are_the_brute_force_maximum(chunked, monkeypatch, dtype, depth):
    monkeypatch.setattr("teleport.maxp.BLOCK", 4)
    vectors, offsets, queries = chunked
    found = MaxP(Exact(vectors, "cpu", dtype=dtype), offsets).search(queries, depth)
    for ours, expected in zip(found, brute_force(vectors, offsets, queries, depth), strict=True):
        np.testing.assert_array_equal(ours, expected)
    assert [values.dtype for values in found] == [np.int32, np.float32]


def test_the_best_chunks_always_have_enough_passages():
    """The worst case: one query is nearest to all chunks of the passages that have most."""
    offsets = offsets_of([4, 1, 4, 2, 4])
    vectors = np.array([[9]] * 4 + [[1]] + [[8]] * 4 + [[2], [3]] + [[7]] * 4, np.float32)
    ids, scores = MaxP(Exact(vectors, "cpu"), offsets).search(np.ones((1, 1), np.float32), 4)
    assert ids.tolist() == [[0, 2, 4, 3]] and scores.tolist() == [[9, 8, 7, 3]]
    assert [chunks_needed(offsets, depth) for depth in (1, 2, 4, 5)] == [1, 5, 13, 15]


def test_first_ones_and_places():
    assert are_first(np.array([[3, 3, 1, 3, 1], [0, 2, 0, 0, 7]], np.int32)).tolist() == [
        [True, False, True, False, False],
        [True, True, False, False, True],
    ]
    assert places_of(np.array([0, 2, 2, 5]), np.array([2, 0, 1, 2])).tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    assert places_of(np.array([0, 2]), np.array([], int)).tolist() == []


@pytest.fixture
def world(stages, chunked):
    """Finished collection and encode jobs."""
    vectors, offsets, queries = chunked
    encoded = stages.make("encode")
    save_array(encoded.output("passages.npy"), vectors)
    save_array(encoded.output(CHUNK_OFFSETS), offsets)
    save_array(encoded.output("queries.train.npy"), queries)
    stages.finish(encoded)
    collection = make_collection(stages, PASSAGES, {"train": QUERIES}, {"train": JUDGMENTS})
    return {"collection": collection, "passages": encoded, "queries": encoded}


KINDS = {"flat": ("Flat", ""), "ivf": ("IVF4,Flat", "nprobe=4"), "hnsw": ("HNSW32 efConstruction=200", "efSearch=400")}


def retrieved(stages, world, kind, **settings):
    chosen, parameters = KINDS[kind]
    indexed = stages.run(index.run, "index", {"index": chosen}, {"passages": world["passages"]})
    settings = {"of": "queries", "split": "train", "depth": 12, "parameters": parameters} | settings
    job = stages.run(retrieve.run, "retrieve", settings, world | {"index": indexed})
    return [np.load(job.folder / f"{name}.npy") for name in ("ids", "scores", "rows")]


@pytest.mark.parametrize("kind", KINDS)
def test_queries_get_the_passages_of_the_best_chunks(stages, world, chunked, kind):
    vectors, offsets, queries = chunked
    ids, scores, rows = retrieved(stages, world, kind)
    expected_ids, expected_scores = brute_force(vectors, offsets, queries, 12)
    np.testing.assert_array_equal(scores, expected_scores)
    if kind == "flat":  # the other kinds leave out any of those tied at the end
        np.testing.assert_array_equal(ids, expected_ids)
    assert rows.tolist() == list(range(QUERIES)) and ids.max() < PASSAGES
    assert all(len(set(line)) == 12 for line in ids.tolist()), "a passage stands once in a list"
    first = brute_force(vectors[offsets[:-1]], np.arange(PASSAGES + 1), queries, 12)
    assert (first[0] != expected_ids).any(), "the first chunks alone give another ranking"


@pytest.mark.parametrize(
    "anchor, positives", [("first", [(0, 7), (2, 50), (5, 3)]), ("all", [j[:2] for j in JUDGMENTS])]
)
def test_every_chunk_of_a_positive_is_an_anchor(stages, world, chunked, anchor, positives):
    vectors, offsets, _ = chunked
    ids, scores, rows = retrieved(stages, world, "flat", of="positives", anchor=anchor)
    anchors = [(query, chunk) for query, passage in positives for chunk in range(*offsets[[passage, passage + 1]])]
    assert len(anchors) > len(positives) and rows.tolist() == [query for query, _ in anchors]
    expected = brute_force(vectors, offsets, vectors[[chunk for _, chunk in anchors]], 12)
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_array_equal(scores, expected[1])
