"""Search by PQ codes alone: scores, order and ties are those of the reconstructed vectors."""

import numpy as np
import pytest
import torch

from stages import facts_of
from teleport.arrays import save_array
from teleport.search import index, retrieve
from teleport.search.exact import Exact
from teleport.search.index import Decoded, build
from teleport.settings.index import Index

ROWS, DIM = 700, 8


def normal(rows, seed):
    return np.random.default_rng(seed).standard_normal((rows, DIM)).astype(np.float32)


PATHS = {"kept": (torch.float32, 2**40), "streamed": (torch.float32, 0), "float16": (torch.float16, 2**40)}


def compressed(vectors, index="PQ4x5", path="kept"):
    """Exact search of what a PQ index keeps of the vectors."""
    dtype, room = PATHS[path]
    return Exact(Decoded(build(Index.model_validate(index), vectors, 1, lambda *_: None)), "cpu", 1, room, dtype)


def test_the_order_is_that_of_the_reconstructed_vectors():
    vectors, queries = normal(ROWS, 0), normal(9, 1)
    found = compressed(vectors)
    kept = found.vectors.take(np.arange(ROWS))
    ids, scores = found.search(queries, 50)
    assert (ids.dtype, scores.dtype) == (np.int32, np.float32)
    exact = queries.astype(np.float64) @ kept.astype(np.float64).T
    expected = -np.sort(-exact, axis=1)[:, :50]
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(exact, ids, axis=1), expected, rtol=1e-5, atol=1e-6)
    nearest = np.argsort(-(queries @ vectors.T), axis=1)[:, :50]
    assert np.mean([np.isin(a, b).mean() for a, b in zip(ids, nearest, strict=True)]) < 0.95, "guard: something is lost"


@pytest.mark.parametrize("depth", [1, 30, 90, 400])
def test_ties_go_to_the_smaller_number_also_at_the_last_rank(depth):
    """Four distinct vectors, each a hundred times: the last rank always ties with passages that were not asked for."""
    rng = np.random.default_rng(2)
    which = rng.permutation(np.repeat(np.arange(4), 100))
    found = compressed(np.eye(4, DIM, dtype=np.float32)[which], "PQ2x2")
    queries = np.array([[4, 3, 2, 1, 0, 0, 0, 0], [1, 2, 3, 4, 0, 0, 0, 0]], np.float32)
    ids, scores = found.search(queries, depth)
    for line, given, query in zip(ids, scores, queries, strict=True):
        table = found.vectors.take(np.arange(400)) @ query
        expected = sorted(range(400), key=lambda p, table=table: (-table[p], p))[:depth]
        assert line.tolist() == expected and given.tolist() == table[expected].tolist()


@pytest.mark.ci(1)
@pytest.mark.parametrize("path", PATHS)
def test_a_device_ranks_decoded_vectors_as_faiss_ranks_codes(path):
    """Faiss's own list up to rounding."""
    vectors, queries = normal(ROWS, 0), normal(9, 1)
    expected = compressed(vectors)
    ids, scores = compressed(vectors, path=path).search(queries, 50)
    for ours, theirs in zip((ids, scores), expected.search(queries, 50), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    by_faiss, rows = expected.vectors.index.search(queries, 50)
    np.testing.assert_allclose(scores, by_faiss, rtol=1e-5, atol=1e-6)
    assert np.mean(rows == ids) > 0.9 and [set(line) for line in rows] == [set(line) for line in ids]


def test_vectors_have_the_shape_of_their_numbers():
    found = compressed(normal(ROWS, 0))
    vectors = found.vectors.take(np.array([[5, 1, 5], [0, 699, 2]], np.int32))
    assert vectors.shape == (2, 3, DIM) and vectors.dtype == np.float32
    assert (vectors[0, 0] == vectors[0, 2]).all() and (vectors[0, 0] != vectors[0, 1]).any()


@pytest.fixture
def encoded(stages):
    job = stages.make("encode")
    for name, rows in (("passages", ROWS), ("queries.test", 60)):
        save_array(job.output(f"{name}.npy"), normal(rows, rows))
    return stages.finish(job)


@pytest.mark.ci(0)
def test_the_stages_search_by_codes_and_say_size_time_and_recall(stages, encoded):
    """The index reads passages alone: its recall depends on queries, so the search that has them measures it."""
    indexed = stages.run(index.run, "index", {"index": "PQ4x5"}, {"passages": encoded})
    facts = facts_of(indexed)
    assert facts["bytes"] == (indexed.folder / "index.faiss").stat().st_size < ROWS * DIM * 4
    assert facts["build_seconds"] > 0 and "recall" not in facts
    inputs = {"passages": encoded, "queries": encoded, "index": indexed, "collection": stages.finish(stages.make("c"))}
    settings = {"of": "queries", "split": "test", "depth": 25, "scores": "compressed"}
    job = stages.run(retrieve.run, "retrieve", settings, inputs)
    ids, scores = (np.load(job.folder / f"{name}.npy") for name in ("ids", "scores"))
    expected = compressed(normal(ROWS, ROWS)).search(normal(60, 60), 25)
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_array_equal(scores, expected[1])
    nearest = np.argsort(-(normal(60, 60) @ normal(ROWS, ROWS).T), axis=1)[:, :25]
    share = np.mean([np.isin(a, b).mean() for a, b in zip(nearest, ids, strict=True)])
    facts = facts_of(job)
    assert facts["engine"] == "exact" and facts["seconds"] > 0
    assert facts["recall"] == pytest.approx(share, abs=1e-4) and 0.3 < share < 1
    assert (facts["recall_depth"], facts["recall_queries"]) == (25, 60)


def test_parameters_that_do_not_fit_name_the_keys_they_come_from(stages, encoded):
    job = stages.make("index", {"index": "PQ3"}, {"passages": encoded})
    with pytest.raises(ValueError, match="negatives.live.index PQ3: 3 parts .* 8 dimensions"):
        index.run(job)
