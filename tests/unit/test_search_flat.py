"""Exact search: the order of a plain full sort, ties by passage number, whatever proposes the candidates."""

import numpy as np
import pytest
import torch

from teleport.search import flat, flat_torch
from teleport.search.flat import FaissFlat, largest_norm, search
from teleport.search.flat_torch import TorchFlat

CUDA = pytest.param(
    "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")]
)


@pytest.fixture(params=["faiss", "cpu", CUDA])
def open_index(request):
    if request.param == "faiss":
        return lambda vectors: FaissFlat(vectors, threads=1)
    return lambda vectors: TorchFlat(vectors, request.param)


def by_sorting(vectors_PD, queries_QD, depth):
    """(ids, scores) by a full sort of exact scores, query by query, in plain Python."""
    ids, scores = [], []
    for query in queries_QD.astype(np.float64):
        exact = [np.float32(sum(float(q) * float(x) for q, x in zip(query, row, strict=True))) for row in vectors_PD]
        order = sorted(range(len(exact)), key=lambda passage: (-exact[passage], passage))[:depth]
        ids.append(order)
        scores.append([exact[passage] for passage in order])
    return np.array(ids), np.array(scores)


def assert_exact(index, queries_QD, depth):
    ids, scores = search(index, queries_QD, depth, largest_norm(index.vectors))
    expected_ids, expected_scores = by_sorting(index.vectors, queries_QD, depth)
    assert ids.dtype == np.int32 and scores.dtype == np.float32
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_array_equal(scores, expected_scores)


def integers(rng, rows, dim, high=3):
    """Vectors of small integers: exact scores, most of them tied."""
    return rng.integers(0, high, size=(rows, dim)).astype(np.float32)


def test_a_literal_example(open_index):
    vectors = np.array([[1, 0], [0, 2], [2, 0], [1, 1], [2, 0]], np.float32)
    ids, scores = search(open_index(vectors), np.array([[1, 0], [0, -1]], np.float32), 3, 2.0)
    assert ids.tolist() == [[2, 4, 0], [0, 2, 4]]
    assert scores.tolist() == [[2, 2, 1], [0, 0, 0]]


@pytest.mark.parametrize("depth", [1, 10, 150, 300])
def test_many_exact_ties(open_index, depth):
    rng = np.random.default_rng(0)
    assert_exact(open_index(integers(rng, 300, 4)), integers(rng, 30, 4), depth)


@pytest.mark.parametrize("depth", [5, 40, 200])
def test_real_numbers_with_copies_of_vectors(open_index, depth):
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((200, 19)).astype(np.float32)
    vectors[rng.permutation(200)[:120]] = vectors[7]
    queries = rng.standard_normal((25, 19)).astype(np.float32)
    queries[:10] = vectors[7] + 0.01 * queries[:10]
    assert_exact(open_index(vectors), queries, depth)


def test_ties_that_reach_beyond_what_was_proposed(open_index, monkeypatch):
    monkeypatch.setattr(flat, "MARGIN", 2)
    rng = np.random.default_rng(2)
    index = open_index(integers(rng, 400, 3, high=2))
    counts, nearest = [], index.nearest
    monkeypatch.setattr(index, "nearest", lambda queries, count: counts.append(count) or nearest(queries, count))
    assert_exact(index, integers(rng, 20, 3), 5)
    assert counts == [7, 56, 400]


def test_settled_queries_are_searched_once(open_index, monkeypatch):
    rng = np.random.default_rng(3)
    index = open_index(rng.standard_normal((300, 32)).astype(np.float32))
    calls, nearest = [], index.nearest
    monkeypatch.setattr(index, "nearest", lambda queries, count: calls.append(count) or nearest(queries, count))
    assert_exact(index, rng.standard_normal((20, 32)).astype(np.float32), 10)
    assert calls == [74]


def test_candidates_in_a_wrong_order_do_not_matter(monkeypatch):
    """Scores of a product that is off by as much as float32 may be, in the direction that hurts."""
    rng = np.random.default_rng(4)
    vectors = (1 + 1e-7 * rng.standard_normal((300, 8))).astype(np.float32)
    queries = np.ones((5, 8), np.float32)
    index = FaissFlat(vectors, threads=1)
    exact = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    shifted = (exact - 8 * 2.0**-24 * 8 * np.sign(exact - np.median(exact))).astype(np.float32)

    def nearest(queries_QD, count):
        ids = np.argsort(-shifted[: len(queries_QD)], axis=1, kind="stable")[:, :count]
        return np.take_along_axis(shifted[: len(queries_QD)], ids, axis=1), ids

    monkeypatch.setattr(index, "nearest", nearest)
    monkeypatch.setattr(flat, "MARGIN", 1)
    assert (nearest(queries, 20)[1] != by_sorting(vectors, queries, 20)[0]).any()
    assert_exact(index, queries, 20)


def test_blocks_leave_no_trace(open_index, monkeypatch):
    rng = np.random.default_rng(5)
    vectors, queries = integers(rng, 300, 5), integers(rng, 17, 5)
    monkeypatch.setattr(flat, "PAIRS", 200)
    monkeypatch.setattr(flat_torch, "PAIR_NUMBERS", 200)
    monkeypatch.setattr(flat_torch, "BLOCK_PASSAGES", 64)
    assert_exact(open_index(vectors), queries, 100)


def test_memory_maps_are_searched(open_index, tmp_path):
    rng = np.random.default_rng(6)
    np.save(tmp_path / "passages.npy", rng.standard_normal((120, 6)).astype(np.float32))
    vectors = np.load(tmp_path / "passages.npy", mmap_mode="c")
    assert_exact(open_index(vectors), rng.standard_normal((4, 6)).astype(np.float32), 12)


def test_all_engines_give_the_same_bits():
    rng = np.random.default_rng(7)
    vectors, queries = (rng.standard_normal((n, 64)).astype(np.float32) for n in (2000, 50))
    found = [
        search(index, queries, 100, largest_norm(vectors))
        for index in (FaissFlat(vectors, 1), TorchFlat(vectors, "cpu"))
    ]
    for left, right in zip(*found, strict=True):
        np.testing.assert_array_equal(left, right)


def test_faiss_agrees_where_nothing_is_tied():
    import faiss

    rng = np.random.default_rng(8)
    vectors, queries = (rng.standard_normal((n, 48)).astype(np.float32) for n in (3000, 40))
    flat_index = faiss.IndexFlatIP(48)
    flat_index.add(vectors)
    scores, ids = flat_index.search(queries, 50)
    found_ids, found_scores = search(FaissFlat(vectors, 1), queries, 50, largest_norm(vectors))
    np.testing.assert_array_equal(found_ids, ids)
    np.testing.assert_allclose(found_scores, scores, rtol=1e-5)


def test_more_depth_than_passages_is_an_error(open_index):
    vectors = np.ones((4, 2), np.float32)
    with pytest.raises(ValueError, match="depth 5 is more than the collection's 4 passages: lower mining.depth"):
        search(open_index(vectors), vectors, 5, 2.0)


def test_largest_norm():
    vectors = np.array([[3, 4], [0, -6], [1, 1]], np.float32)
    assert largest_norm(vectors) == largest_norm(vectors, block=1) == 6.0
