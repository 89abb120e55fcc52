"""Passages in shards, and passages that do not fit in memory: the same bits as in one piece."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from search_world import ENGINES
from teleport.search import engines, exact
from teleport.search.flat import Exact
from teleport.search.flat_torch import TorchFlat

LIBRARY = Path(engines.__file__).parents[2]


def world(rows=700):
    """Vectors of small integers, half of them copies of others, so that ties cross the bounds of shards."""
    rng = np.random.default_rng(0)
    vectors = rng.integers(-2, 3, size=(rows, 6)).astype(np.float32)
    return vectors, rng.integers(-2, 3, size=(9, 6)).astype(np.float32)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("count", [1, 2, 3, 7, 50])
def test_any_number_of_shards_gives_the_same_bits(engine, count):
    vectors, queries = world()
    exact = queries.astype(int) @ vectors.astype(int).T
    expected = np.array([sorted(range(len(vectors)), key=lambda p, q=q: (-q[p], p))[:40] for q in exact])
    ids, scores = Exact(vectors, count, ENGINES[engine]).search(queries, 40)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(scores, np.take_along_axis(exact, expected, axis=1))
    assert (ids.dtype, scores.dtype) == (np.int32, np.float32)


def test_more_shards_than_passages_and_depth_above_a_shard():
    vectors, queries = world(5)
    index = Exact(vectors, 8, ENGINES["faiss"])
    assert np.sort(index.search(queries, 5)[0], axis=1).tolist() == [[0, 1, 2, 3, 4]] * 9
    assert [len(index.part(number).vectors) for number in range(5)] == [1] * 5


def test_the_search_itself_notices_a_lost_shard():
    vectors, queries = world()
    index = Exact(vectors, 4, ENGINES["faiss"])
    del index.ranges[2]
    with pytest.raises(RuntimeError, match="525 passages were searched, but the index has 700"):
        index.search(queries, 10)


@pytest.mark.parametrize("side_by_side", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_pairs_that_are_scored_do_not_grow_with_the_shards(monkeypatch, engine, side_by_side):
    """Nor do outliers: they are as many of all shards as of one."""
    rng = np.random.default_rng(4)
    vectors, queries = (rng.standard_normal((n, 32)).astype(np.float32) for n in (4000, 10))
    vectors[::400] *= 30
    found, pairs, score = [], {}, exact.Scorer.score
    for count in (1, 2, 4, 8):
        scored = []
        monkeypatch.setattr(
            exact.Scorer, "score", lambda s, q, ids, out, n=scored: n.append(len(ids)) or score(s, q, ids, out)
        )
        index = Exact(vectors, count, ENGINES[engine])
        index.overlaps = side_by_side
        found.append(index.search(queries, 100))
        pairs[count] = sum(scored) / len(queries)
    for ids, scores in found[1:]:
        np.testing.assert_array_equal(ids, found[0][0])
        np.testing.assert_array_equal(scores, found[0][1])
    assert pairs[1] >= 100 and max(pairs.values()) <= 1.1 * pairs[1], pairs


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
def test_all_gpus_give_the_bits_of_the_cpu():
    rng = np.random.default_rng(1)
    vectors, queries = (rng.standard_normal((n, 128)).astype(np.float32) for n in (200_000, 300))
    count, on_cpu = (
        torch.cuda.device_count(),
        Exact(vectors, 1, lambda _, part, most: TorchFlat(part, "cpu", 4, 0, most)),
    )
    expected = on_cpu.search(queries, 100)
    for room in (None, 0):
        index = Exact(vectors, count, lambda number, part, most, room=room: TorchFlat(part, f"cuda:{number}", 4, room))
        for ours, theirs in zip(index.search(queries, 100), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


LIMITED = """
import resource, sys
import numpy as np
from teleport.cpu import search
from teleport.search import engines
import faiss, torch  # whose own data is no part of the limit
mode, path, queries, found = sys.argv[1:]
queries = np.load(queries)
used = engines.kilobytes("/proc/self/status", "VmData")
limit = used + int(0.4 * np.load(path, mmap_mode="r").nbytes)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
if mode == "naive":
    np.load(path)
vectors = np.load(path, mmap_mode="r")
search.PROBE_SCORES, engines.PART_ROWS = 0 if mode == "int8" else 2**60, 2**30
search.computes_in_int8 = lambda: True
search.probe = lambda vectors, kind, *_: type(kind(0, vectors[:100], 0)).__name__ == "FaissFlat"
index = engines.open_exact(vectors, 1, queries, len(queries), 20)
assert mode == "faiss" or index.part(0).kept is None, "the reduced vectors fit: nothing is streamed"
np.savez(found, *index.search(queries, 20))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A real .npy of 410 MB, written block by block, and 30 queries."""
    folder, rng = tmp_path_factory.mktemp("large"), np.random.default_rng(3)
    vectors = np.lib.format.open_memmap(folder / "passages.npy", "w+", np.float32, (800_000, 128))
    block = rng.standard_normal((40_000, 128)).astype(np.float32)
    for start in range(0, len(vectors), len(block)):
        vectors[start : start + len(block)] = np.roll(block, start // len(block), axis=1)
    np.save(folder / "queries.npy", rng.standard_normal((30, 128)).astype(np.float32))
    yield folder
    (folder / "passages.npy").unlink()


def search_limited(large, mode):
    """Search in a process whose data may grow by 40 % of the vectors' size."""
    paths = [str(large / name) for name in ("passages.npy", "queries.npy", f"{mode}.npz")]
    environment = os.environ | {
        "PYTHONPATH": str(LIBRARY),
        "PATH": "",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    return subprocess.run(
        [sys.executable, "-c", LIMITED, mode, *paths], env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
def test_a_corpus_larger_than_the_memory_limit_is_searched(large):
    naive = search_limited(large, "naive")
    assert naive.returncode != 0 and "MemoryError" in naive.stderr
    vectors, queries = (np.load(large / f"{name}.npy", mmap_mode="r") for name in ("passages", "queries"))
    expected = Exact(vectors, 1, ENGINES["faiss"]).search(np.asarray(queries), 20)
    for mode in ("faiss", "int8"):
        done = search_limited(large, mode)
        assert done.returncode == 0, done.stderr
        with np.load(large / f"{mode}.npz") as found:
            for name, array in zip(("arr_0", "arr_1"), expected, strict=True):
                np.testing.assert_array_equal(found[name], array)
