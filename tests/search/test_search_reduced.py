"""What the engines with reduced vectors are made of: selection of the best, and blocks that are read ahead."""

import threading
import warnings

import numpy as np
import pytest
import torch

from search_world import ENGINES, search
from teleport.cpu.int8 import Int8Flat
from teleport.search import flat, flat_torch
from teleport.search.flat import Exact
from teleport.search.flat_faiss import FaissFlat
from teleport.search.flat_torch import TorchFlat, top
from teleport.search.reduced import Reduced


def normal(rows, dim, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)


@pytest.mark.parametrize("values", [2, 50, 10**9])
@pytest.mark.parametrize("total", [1, 7, 160, 1000, 1003])
@pytest.mark.parametrize("count", [1, 3, 10, 40, 2000])
def test_the_best_are_those_of_topk(values, total, count):
    """With 2 values nearly all scores tie, with 50 many; count 1 to 10 of 1,000 look at groups, 40 and more do not."""
    scores = torch.randint(values, (6, total), generator=torch.Generator().manual_seed(total)).double()
    found, places = top(scores, count)
    expected = scores.topk(min(count, total)).values
    torch.testing.assert_close(found.sort(dim=1, descending=True).values, expected, rtol=0, atol=0)
    torch.testing.assert_close(scores.gather(1, places), found, rtol=0, atol=0)
    assert all(len(set(line)) == len(line) for line in places.tolist())


def test_few_scores_are_selected_from(monkeypatch):
    """Of 10,000 scores the 4 best are looked for among 200 maxima, and in the 200 scores of 4 groups."""
    seen, topk = [], torch.Tensor.topk
    monkeypatch.setattr(torch.Tensor, "topk", lambda x, *a, **k: seen.append(x.shape[1]) or topk(x, *a, **k))
    top(torch.rand(3, 10_000), 4)
    assert seen == [200, 200]


def test_the_next_block_is_read_while_one_is_computed_with(monkeypatch):
    vectors, copied, copy = normal(100, 4), [], np.copyto
    index = Reduced(vectors, "fp16", 1, 0, block=30)
    index.overlaps = True
    second = threading.Event()

    def copying(target, block):
        copy(target, block)
        copied.append(len(block))
        if len(copied) == 2:
            second.set()

    monkeypatch.setattr(np, "copyto", copying)
    blocks = index.blocks()
    first, _ = next(blocks)
    assert first == 0 and second.wait(10), "the second block was not read before it was asked for"
    assert copied == [30, 30], "no more than one block ahead"
    assert [(first, len(part)) for first, part in blocks] == [(30, 30), (60, 30), (90, 10)]


@pytest.mark.parametrize("number_format", ["int8", "fp16"])
def test_streamed_blocks_are_those_that_would_be_kept(number_format):
    vectors = normal(100, 5)
    kept, streamed = (Reduced(vectors, number_format, 1, room, block=30) for room in (10**6, 0))
    assert kept.kept is not None and streamed.kept is None
    for (first, one), (other_first, other) in zip(kept.blocks(), streamed.blocks(), strict=True):
        assert first == other_first and torch.equal(one, other)
    assert (kept.norm, kept.lost) == (streamed.norm, streamed.lost)


def test_streamed_search_is_that_of_kept_vectors(monkeypatch):
    monkeypatch.setattr(flat_torch, "BLOCK_PASSAGES", 700)
    vectors, queries = normal(5000, 32), normal(20, 32, 1)
    expected = search(FaissFlat(vectors, 1), queries, 30)
    for room in (0, 10**9):
        for found, right in zip(search(TorchFlat(vectors, "cpu", room=room), queries, 30), expected, strict=True):
            np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("room", [0, 10**9])
@pytest.mark.parametrize("engine", [Int8Flat, lambda *a, room: TorchFlat(a[0], "cpu", room=room)])
def test_read_only_vectors_make_no_warning(tmp_path, request, engine, room):
    request.addfinalizer(lambda: torch.set_warn_always(False))
    torch.set_warn_always(True)  # else torch warns of them once a process
    np.save(tmp_path / "vectors.npy", normal(200, 8))
    vectors = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ids, _ = search(engine(vectors, 1, room=room), vectors[:5], 1)
    assert ids.shape == (5, 1)


@pytest.mark.parametrize("lacking, says", [(0, "100 vectors stay on cpu"), (1, "100 vectors are streamed in every")])
def test_vectors_stay_on_a_device_where_they_and_the_search_have_room(monkeypatch, caplog, lacking, says):
    """Whatever share of the memory that is; the log says which, with the bytes."""
    vectors = normal(100, 8)
    free = 2 * vectors.size + flat_torch.workspace(8) - lacking
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 10**12))
    with caplog.at_level("INFO", logger="teleport"):
        index = TorchFlat(vectors, "cpu")
    assert (index.kept is None) == bool(lacking) and says in caplog.text and "GB in fp16, room for" in caplog.text


@pytest.mark.parametrize("passages, card", [(8_841_823, 24e9), (21_015_324, 40e9)])
def test_the_papers_collections_fit_on_cards_of_their_size(passages, card):
    """MS MARCO on 24 GB, Wikipedia on 40 GB, of which a context takes a part."""
    assert 2 * passages * 768 + flat_torch.workspace(768) < card - 1e9


def outlying(scale):
    """(queries, vectors): what query 0 has at the top are 20 outliers of the first half of the passages, of which a few
    others score higher than all of the second half, whose products in int8 say much less."""
    queries = np.zeros((2, 32), np.float32)
    queries[0, 0] = queries[1, 1] = 1
    first, second = normal(3000, 32) * np.float32(0.1), normal(3000, 32, 1) * np.float32(scale)
    first[:4] = first[100:120] = 0
    first[:4, 0], first[100:120, 0] = (0.8, 0.7, 0.7, 0.7), np.linspace(20, 40, 20)
    second[:, :2] = -5 * scale
    return queries, np.concatenate([first, second])


@pytest.mark.parametrize(("scale", "depth"), [(10, 24), (800, 10)])
def test_a_list_with_fewer_candidates_than_its_depth_has_no_passage_twice(monkeypatch, scale, depth):
    """The rest of the list are outliers, which are joined later; its empty places are no passage."""
    queries, vectors = outlying(scale)
    expected = Exact(vectors, 2, ENGINES["faiss"]).search(queries, depth)
    short, real = [], flat.rescore

    def watched(vectors, queries_QD, proposed_QM, *others):
        short.append((np.count_nonzero(proposed_QM > -np.inf, axis=1) < depth).any())
        return real(vectors, queries_QD, proposed_QM, *others)

    monkeypatch.setattr(flat, "rescore", watched)
    found = Exact(vectors, 2, ENGINES["int8"]).search(queries, depth)
    assert any(short), "not vacuous"
    assert all(np.array_equal(*pair) for pair in zip(found, expected, strict=True))


def test_queries_whose_scores_no_number_holds_are_refused():
    """They would be searched with ever more candidates."""
    queries, vectors = np.full((2, 8), 3e38, np.float32), -10 * np.abs(normal(300, 8))
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="the scores of a query are beyond all numbers"):
        Exact(vectors, 1, ENGINES["faiss"]).search(queries, 5)
