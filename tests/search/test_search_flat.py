"""Exact search: the order of a plain full sort, ties by passage number, whatever proposes the candidates."""

import threading

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from search_world import EVERYTHING, faiss_on_gpu, search
from teleport.cpu import int8
from teleport.cpu.int8 import Int8Flat
from teleport.search import exact, flat, flat_torch, reduced
from teleport.search.flat import OUTLIERS, Exact, norms_of, outliers_by
from teleport.search.flat_faiss import FaissFlat
from teleport.search.flat_torch import TorchFlat
from teleport.search.reduced import Reduced

ON_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")]
CUDA = [pytest.param(name, marks=ON_GPU) for name in ("cuda", "faiss on CUDA")]


NEAR = int8.NEAR


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch):
    """In collections of a few hundred vectors not all are candidates, and some queries ask for more of them."""
    monkeypatch.setattr(int8, "NEAR", flat.MARGIN)


def open_engine(name, vectors, room=EVERYTHING):
    if name == "faiss":
        return FaissFlat(vectors, threads=1)
    if name == "faiss on CUDA" and not hasattr(pytest.importorskip("faiss"), "StandardGpuResources"):
        pytest.skip("this faiss has no GPU")
    if name.startswith("faiss on"):
        return faiss_on_gpu(vectors, OUTLIERS, 0 if name == "faiss on CUDA" else None)
    if name in ("cpu", "cuda"):
        return TorchFlat(vectors, name, room=room)
    return Int8Flat(vectors, threads=2, room=room)


@pytest.fixture(params=["faiss", "faiss on a GPU", "int8", "cpu", *CUDA])
def open_index(request):
    return lambda vectors, **room: open_engine(request.param, vectors, **room)


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
    ids, scores = search(index, queries_QD, depth)
    expected_ids, expected_scores = by_sorting(index.vectors, queries_QD, depth)
    assert ids.dtype == np.int32 and scores.dtype == np.float32
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_array_equal(scores, expected_scores)


def integers(rng, rows, dim, high=3):
    """Vectors of small integers: exact scores, most of them tied."""
    return rng.integers(0, high, size=(rows, dim)).astype(np.float32)


def test_a_literal_example(open_index):
    vectors = np.array([[1, 0], [0, 2], [2, 0], [1, 1], [2, 0]], np.float32)
    ids, scores = search(open_index(vectors), np.array([[1, 0], [0, -1]], np.float32), 3)
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


def counts_of_proposals(index, monkeypatch):
    """The counts that `search` asks `index` for, noted as it goes."""
    counts, propose = [], index.propose
    monkeypatch.setattr(index, "propose", lambda q, depth, n, *rest: counts.append(n) or propose(q, depth, n, *rest))
    return counts


def test_ties_that_reach_beyond_what_was_proposed(open_index, monkeypatch):
    rng = np.random.default_rng(2)
    index = open_index(integers(rng, 400, 3, high=2))
    monkeypatch.setattr(index, "first_count", lambda depth: depth + 2)
    counts = counts_of_proposals(index, monkeypatch)
    assert_exact(index, integers(rng, 20, 3), 5)
    assert counts == [7, 56, 400]


def test_settled_queries_are_searched_once(open_index, monkeypatch):
    rng = np.random.default_rng(3)
    index = open_index(rng.standard_normal((300, 128)).astype(np.float32))
    counts = counts_of_proposals(index, monkeypatch)
    assert_exact(index, rng.standard_normal((20, 128)).astype(np.float32), 10)
    assert counts == [index.first_count(10)]


def test_the_second_search_asks_for_what_may_reach_the_last_rank(monkeypatch):
    """Passages so dense that the errors of int8 products hide the last rank, in parts whose errors differ."""
    rng = np.random.default_rng(21)
    vectors, queries = (rng.standard_normal((rows, 2)).astype(np.float32) for rows in (9000, 16))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = Exact(vectors, 3, lambda _, part, most: Int8Flat(part, 2, most_outliers=most), 2)
    errors_NQ = np.array([index.part(number).errors(queries) for number in range(3)])
    assert (np.ptp(errors_NQ, axis=0) > 0).all()
    exact_QP = (queries.astype(np.float64) @ vectors.T.astype(np.float64)).astype(np.float32)
    rounds, propose = [], index.propose
    monkeypatch.setattr(index, "propose", lambda *asked: rounds.append(found := propose(*asked)) or found)
    ids, scores = index.search(queries, 20)
    np.testing.assert_array_equal(ids, np.argsort(-exact_QP, axis=1, kind="stable")[:, :20])
    counts_Q = [(found.keys_QM != exact.NO_KEY).sum(axis=1) for found in rounds]
    assert [len(count_Q) for count_Q in counts_Q] == [16, 16] and (counts_Q[0] == 192).all()
    # Asked for is what is up to the largest error below the last rank; by approximate scores alone, up to twice as far.
    reachable_Q = (exact_QP >= scores[:, -1:] - 1.5 * errors_NQ.max(axis=0)[:, None]).sum(axis=1)
    assert (counts_Q[1] <= reachable_Q).all() and (reachable_Q < 1000).all()


@pytest.mark.parametrize("overlaps", [False, True])
def test_steps_leave_no_trace(open_index, monkeypatch, overlaps):
    rng = np.random.default_rng(16)
    index, queries = open_index(integers(rng, 400, 3, high=2)), integers(rng, 23, 3)
    monkeypatch.setattr(index, "first_count", lambda depth: depth + 2)
    monkeypatch.setattr(index, "overlaps", overlaps)
    monkeypatch.setattr(index, "step", 4)
    assert_exact(index, queries, 5)


@pytest.mark.parametrize("overlaps", [False, True])
def test_the_host_scores_one_step_while_the_next_is_proposed(monkeypatch, overlaps):
    rng = np.random.default_rng(17)
    index, queries = TorchFlat(rng.standard_normal((300, 64)).astype(np.float32), "cpu", room=0), spread(rng, 12)
    monkeypatch.setattr(index, "overlaps", overlaps)
    monkeypatch.setattr(index, "step", 4)
    events, propose, score, second = [], index.propose, Exact.rank, threading.Event()

    def noted_propose(*arguments):
        events.append("propose")
        if events.count("propose") == 2:
            second.set()
        return propose(*arguments)

    def noted_score(*arguments):
        assert not overlaps or second.wait(10), "the next step is proposed only after this one is scored"
        events.append("score")
        return score(*arguments)

    monkeypatch.setattr(index, "propose", noted_propose)
    monkeypatch.setattr(Exact, "rank", noted_score)
    assert_exact(index, queries, 10)
    assert events.count("propose") == events.count("score") == 3
    assert events[:2] == (["propose", "propose"] if overlaps else ["propose", "score"])


def test_candidates_in_a_wrong_order_do_not_matter(monkeypatch):
    """Scores of a product that is off by as much as float32 may be, in the direction that hurts."""
    rng = np.random.default_rng(4)
    vectors = (1 + 1e-7 * rng.standard_normal((300, 8))).astype(np.float32)
    queries = np.ones((5, 8), np.float32)
    index = FaissFlat(vectors, threads=1)
    exact = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    shifted = (exact - 8 * 2.0**-24 * 8 * np.sign(exact - np.median(exact))).astype(np.float32)

    def propose(queries_QD, depth, count, errors_Q, last_Q):
        ids = np.argsort(-shifted[: len(queries_QD)], axis=1, kind="stable")[:, :count]
        scores = np.take_along_axis(shifted[: len(queries_QD)], ids, axis=1)
        return scores, ids, scores[:, -1].astype(np.float64)

    monkeypatch.setattr(index, "propose", propose)
    monkeypatch.setattr(index, "margin", 1)
    assert (propose(queries, 20, 20, None, None)[1] != by_sorting(vectors, queries, 20)[0]).any()
    assert_exact(index, queries, 20)


def narrow_blocks(monkeypatch, block):
    """Let all engines read `block` passages at a time."""
    monkeypatch.setattr(Reduced.__init__, "__defaults__", ("cpu", block, flat.OUTLIERS))
    monkeypatch.setattr(flat_torch, "BLOCK_PASSAGES", block)


@pytest.mark.parametrize(("rooms", "steps"), [((EVERYTHING, EVERYTHING), [6, 4]), ((EVERYTHING, 0), [10])])
def test_int8_takes_few_queries_at_a_time_unless_a_part_is_reduced_in_every_step(monkeypatch, rooms, steps):
    rng, asked = np.random.default_rng(7), []
    monkeypatch.setattr(int8, "QUERIES", 3)
    vectors, queries = integers(rng, 300, 5), integers(rng, 10, 5)
    index = Exact(vectors, 2, lambda number, part, most: Int8Flat(part, 2, rooms[number], most), 2)
    index.search(queries[:1], 5)  # opens both parts
    propose = index.propose
    monkeypatch.setattr(index, "propose", lambda q, *rest: asked.append(len(q)) or propose(q, *rest))
    ids, _ = index.search(queries, 5)
    np.testing.assert_array_equal(ids, by_sorting(vectors, queries, 5)[0])
    assert asked[: len(steps)] == steps


def test_a_shallow_search_of_many_passages_needs_no_second_one(monkeypatch):
    """What lies within the error of an int8 product does not shrink with the depth: here 200 almost equal passages."""
    rng, found = np.random.default_rng(3), []
    centres, noise, queries = (rng.standard_normal((n, 16)).astype(np.float32) for n in (100, 20_000, 64))
    vectors = np.repeat(centres, 200, axis=0) + 0.001 * noise
    for near in (0, NEAR):
        monkeypatch.setattr(int8, "NEAR", near)
        index, asked = Exact(vectors, 1, lambda _, part, most: Int8Flat(part, 1, EVERYTHING, most)), []
        propose = index.propose
        monkeypatch.setattr(index, "propose", lambda q, *rest: asked.append(len(q)) or propose(q, *rest))  # noqa: B023
        found.append((asked, index.search(queries, 1)))
    (few, one), (many, other) = found
    assert few[0] == many[0] == 64 and sum(few[1:]) > 32 and sum(many[1:]) < 8
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("room", [0, EVERYTHING])
def test_blocks_leave_no_trace(open_index, monkeypatch, room):
    rng = np.random.default_rng(5)
    vectors, queries = integers(rng, 300, 5), integers(rng, 17, 5)
    monkeypatch.setattr(flat, "CANDIDATES", 2000)
    monkeypatch.setattr(exact, "PAIRS", 7)
    narrow_blocks(monkeypatch, 64)
    monkeypatch.setattr(int8, "QUERIES", 5)
    monkeypatch.setattr(flat_torch, "SCORES", 5 * 64)
    assert_exact(open_index(vectors, room=room), queries, 100)


def test_vectors_that_were_reduced_in_small_blocks_are_searched_in_large_ones(monkeypatch):
    """As a training step searches on a GPU."""
    narrow_blocks(monkeypatch, 64)
    rng = np.random.default_rng(6)
    found = open_engine("cpu", integers(rng, 300, 5))
    assert [len(part) for _, part in found.blocks()] == [64] * 4 + [44]
    found.block = 2048
    monkeypatch.setattr(flat_torch, "SCORES", 5 * 2048)  # not more scores at a time than with small blocks
    assert [len(part) for _, part in found.blocks()] == [300]
    assert_exact(found, integers(rng, 17, 5), 100)


@pytest.mark.parametrize("order", ["best first", "best last"])
def test_the_order_of_the_passages_does_not_matter(open_index, monkeypatch, order):
    narrow_blocks(monkeypatch, 50)
    rng = np.random.default_rng(9)
    vectors = rng.standard_normal((500, 12)).astype(np.float32)
    queries = (vectors[0] + 0.1 * rng.standard_normal((6, 12))).astype(np.float32)
    rising = np.argsort(vectors @ queries[0])
    assert_exact(open_index(vectors[rising if order == "best last" else rising[::-1]].copy()), queries, 30)


def test_vectors_that_are_almost_parallel(open_index):
    """As those of an encoder that does not normalise: the scores differ in their last digits."""
    rng = np.random.default_rng(10)
    vectors = (10 + 0.01 * rng.standard_normal((400, 24))).astype(np.float32)
    assert_exact(open_index(vectors), (10 + 0.01 * rng.standard_normal((8, 24))).astype(np.float32), 20)


def test_outliers_and_zeros(open_index):
    rng = np.random.default_rng(11)
    vectors = rng.standard_normal((300, 16)).astype(np.float32)
    vectors[5] *= 1000
    vectors[[7, 8]] = 0
    queries = rng.standard_normal((6, 16)).astype(np.float32)
    queries[2] = 0
    queries[3] *= 1e-6
    assert_exact(open_index(vectors), queries, 25)
    assert_exact(open_index(np.zeros((40, 16), np.float32)), queries, 9)


@pytest.mark.parametrize("number_format", ["int8", "fp16"])
def test_no_error_of_a_reduced_product_exceeds_its_bound(number_format):
    rng = np.random.default_rng(12)
    vectors, queries = (rng.standard_normal((n, 40)).astype(np.float32) + 2 for n in (500, 60))
    vectors[3] *= 20
    index = Reduced(vectors, number_format, 1, EVERYTHING)
    left, factors_Q = index.reduce_queries(queries)
    products = left.double() @ index.kept.double().T
    near = products.numpy() * factors_Q.double().numpy() * index.factor + index.shifts(queries).numpy()[:, None]
    errors = np.abs(near - queries.astype(np.float64) @ vectors.T.astype(np.float64))
    errors = np.delete(errors, index.outliers, axis=1).max(axis=1)
    assert (errors <= index.errors(queries)).all()
    assert (errors / index.errors(queries)).max() > 0.1, "a bound far from any error would not be tested"


def cut_to_float32(values):
    """The float32 values that float64 ones have when they are cut, not rounded."""
    near = values.astype(np.float32)
    return np.where(np.abs(near) > np.abs(values), np.nextafter(near, np.float32(0)), near)


def truncating_sums(products_ND, group):
    """Sums as tensor cores make them: `group` products and the running sum, cut 23 bits below the largest's first."""
    sums_N = np.zeros(len(products_ND), np.float32)
    for start in range(0, products_ND.shape[1], group):
        addends_NG = np.column_stack([sums_N, products_ND[:, start : start + group]]).astype(np.float64)
        last_bit_N1 = 2.0 ** (np.frexp(np.abs(addends_NG).max(axis=1, keepdims=True))[1] - 1 - 23)
        sums_N = cut_to_float32((np.trunc(addends_NG / last_bit_N1) * last_bit_N1).sum(axis=1))
    return sums_N


@pytest.mark.parametrize("group", [1, 4, 16])
def test_the_bound_of_fp16_products_holds_for_sums_that_truncate(monkeypatch, group):
    """After a product of 1 each of many just below 2^-23 is lost. As for rounded sums, the bound is twice that."""
    monkeypatch.setattr(reduced, "RANGE_MARGIN", 1)
    dim = 1024
    passage, query = np.full((2, dim), 2.0**-12, np.float32)
    passage[1:] *= 2047 / 1024
    passage[0] = query[0] = 1
    index = Reduced(np.stack([passage, -passage]), "fp16", 1, EVERYTHING)
    queries, factors = index.reduce_queries(query[None])
    assert (index.lost, index.factor, float(factors)) == (0, 1, 1), "the error is that of the sums alone"
    products = queries.double().numpy() * index.kept.double().numpy()
    error = np.abs(truncating_sums(products, group) - products.sum(axis=1)).max()
    assert error > 0.95 * dim * 2.0**-23, "twice what rounded sums lose at most"
    assert 2 * error <= index.errors(query[None])[0] <= 3 * error


def test_on_a_gpu_products_of_fp16_numbers_come_out_in_float32():
    """Without one: torch's CUDA kernels on tensors that have a type and a shape, and no numbers."""
    with FakeTensorMode():
        queries_QD, passages_PD = (torch.empty(n, 32, dtype=torch.float16, device="cuda") for n in (4, 5))
        scores_QP = flat_torch.products(queries_QD, passages_PD)
    assert scores_QP.dtype == torch.float32 and scores_QP.shape == (4, 5) and scores_QP.is_cuda
    queries_QD, passages_PD = (torch.full((n, 32), 128.0, dtype=torch.float16) for n in (4, 5))
    assert (flat_torch.products(queries_QD, passages_PD) == 32 * 128**2).all(), "beyond what fp16 holds"


def test_memory_maps_are_searched(open_index, tmp_path):
    rng = np.random.default_rng(6)
    np.save(tmp_path / "passages.npy", rng.standard_normal((120, 6)).astype(np.float32))
    vectors = np.load(tmp_path / "passages.npy", mmap_mode="r")
    assert_exact(open_index(vectors), rng.standard_normal((4, 6)).astype(np.float32), 12)


@pytest.mark.parametrize("room", [EVERYTHING, 0])
def test_float16_vectors_are_searched_as_their_float32_values(open_index, monkeypatch, tmp_path, room):
    monkeypatch.setattr(flat, "BLOCK", 32)
    rng = np.random.default_rng(4)
    np.save(tmp_path / "passages.npy", rng.normal(size=(100, 16)).astype(np.float16))
    queries = rng.normal(size=(5, 16)).astype(np.float32)
    vectors = np.load(tmp_path / "passages.npy", mmap_mode="r")
    found = search(open_index(vectors, room=room), queries, 20)
    for ours, expected in zip(found, by_sorting(vectors.astype(np.float32), queries, 20), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_all_engines_give_the_same_bits():
    rng = np.random.default_rng(7)
    vectors, queries = (rng.standard_normal((n, 64)).astype(np.float32) for n in (20000, 50))
    ids, scores = search(open_engine("faiss", vectors), queries, 100)
    for name in ("int8", "cpu"):
        for room in (0, EVERYTHING):
            found_ids, found_scores = search(open_engine(name, vectors, room), queries, 100)
            np.testing.assert_array_equal(found_ids, ids)
            np.testing.assert_array_equal(found_scores, scores)


def test_keys_sort_by_falling_score_then_rising_number():
    scores = np.array([1.5, -0.0, 0.0, -2.0, 1.5, 3e38, -3e38, 1e-40], np.float32)
    ids = np.array([7, 5, 4, 0, 2, 9, 2**31 - 1, 3])
    keys = np.sort(exact.keys_of(scores, ids))
    assert exact.ids_of(keys).tolist() == [9, 2, 7, 3, 4, 5, 0, 2**31 - 1]
    assert exact.scores_of(keys).tolist() == np.array([3e38, 1.5, 1.5, 1e-40, 0, 0, -2, -3e38], np.float32).tolist()
    assert exact.scores_of(np.array([exact.NO_KEY])).tolist() == [-np.inf]


def test_faiss_agrees_where_nothing_is_tied():
    import faiss

    rng = np.random.default_rng(8)
    vectors, queries = (rng.standard_normal((n, 48)).astype(np.float32) for n in (3000, 40))
    flat_index = faiss.IndexFlatIP(48)
    flat_index.add(vectors)
    scores, ids = flat_index.search(queries, 50)
    found_ids, found_scores = search(FaissFlat(vectors, 1), queries, 50)
    np.testing.assert_array_equal(found_ids, ids)
    np.testing.assert_allclose(found_scores, scores, rtol=1e-5)


def test_norms(monkeypatch):
    vectors = np.array([[3, 4], [0, -6], [0, 1]], np.float32)
    whole = norms_of(vectors)
    monkeypatch.setattr(flat, "BLOCK", 2)
    assert whole.tolist() == norms_of(vectors).tolist() == [5, 6, 1]


def test_outliers_are_few_and_far_above_all_others():
    measures = np.linspace(1, 1.4, 1000).astype(np.float32)
    assert outliers_by(measures).tolist() == []
    measures[[7, 500]] = 9, np.inf
    assert outliers_by(measures).tolist() == [7, 500]
    measures[:65] = 9
    assert outliers_by(measures).tolist() == [500], "66 are no exception"
    assert outliers_by(np.array([0, 0, 2], np.float32)).tolist() == [2]


def spread(rng, rows=20_000, dim=64):
    return rng.standard_normal((rows, dim)).astype(np.float32)


def largest_outside_the_sample(rng):
    """Every 200th vector is sampled; the others have larger components, the largest 1.5 times of any sampled."""
    vectors = spread(rng)
    limit = np.abs(vectors[::200]).max()
    np.clip(vectors, -limit, limit, out=vectors)
    vectors[np.arange(101, 20_000, 400), rng.integers(0, 64, 50)] = np.linspace(1, 1.5, 50) * limit
    return vectors


def one_huge_passage(rng, row):
    vectors = spread(rng)
    vectors[row] *= 1e4
    return vectors


UNEVEN = {
    "largest component outside the sample": largest_outside_the_sample,
    "one huge passage in the sample": lambda rng: one_huge_passage(rng, 200),
    "one huge passage outside the sample": lambda rng: one_huge_passage(rng, 777),
}


@pytest.mark.parametrize("case", UNEVEN)
def test_a_few_uneven_passages_cost_nothing(open_index, monkeypatch, case):
    """No second proposal, and not many more passages are scored exactly than without them."""
    rng = np.random.default_rng(13)
    monkeypatch.setattr(reduced, "SAMPLE", 100)
    index, queries = open_index(UNEVEN[case](rng)), spread(rng, 30)
    counts, scored, write = counts_of_proposals(index, monkeypatch), [], exact.Scorer.score
    monkeypatch.setattr(exact.Scorer, "score", lambda s, q, ids, out: scored.append(len(ids)) or write(s, q, ids, out))
    ids, _ = search(index, queries, 50)
    assert counts == [index.first_count(50)]
    assert sum(scored) / len(queries) < 50 + 64 + 32
    expected = queries.astype(np.float64) @ index.vectors.T.astype(np.float64)
    np.testing.assert_array_equal(ids, np.argsort(-expected, axis=1, kind="stable")[:, :50])


def test_outliers_are_found_where_the_product_says_nothing_of_them(open_index, monkeypatch):
    """Products that rank the outliers last, and first."""
    rng = np.random.default_rng(14)
    vectors = integers(rng, 300, 6)
    vectors[[3, 40, 299]] *= 50
    index, queries = open_index(vectors), integers(rng, 8, 6) - 1
    assert set(index.outliers) >= {3, 40, 299}
    propose = index.propose

    def wrong(queries_QD, depth, count, errors_Q, last_Q):
        scores_QC, ids_QC, others_Q = propose(queries_QD, depth, count, errors_Q, last_Q)
        wrong_Q = np.where(np.arange(len(queries_QD)) % 2, np.inf, -np.inf)[:, None]
        scores_QC = np.where(np.isin(ids_QC, index.outliers), wrong_Q, scores_QC)
        order_QC = np.argsort(-scores_QC, axis=1, kind="stable")
        return np.take_along_axis(scores_QC, order_QC, 1), np.take_along_axis(ids_QC, order_QC, 1), others_Q

    monkeypatch.setattr(index, "propose", wrong)
    assert_exact(index, queries, 20)


def test_outliers_whose_products_are_too_large_hide_nothing(open_index):
    """Clipped to the range of the others, one component of -1000 and seven of 10 sum up to more than any score."""
    rng = np.random.default_rng(15)
    vectors = rng.uniform(-1, 1, (100, 8)).astype(np.float32)
    vectors[20:40:2] = [-1000] + 7 * [10]
    assert_exact(open_index(vectors), np.ones((2, 8), np.float32), 10)


@pytest.mark.parametrize("heavy", ["normal", "cauchy"])
@pytest.mark.parametrize("sampled", [1, 16])
def test_however_heavy_the_tails_no_more_passages_are_clipped_than_may_be_outliers(monkeypatch, heavy, sampled):
    """Else the bound is that of a clipped one. 9 million passages of a trained miniature had 248 beyond the range."""
    monkeypatch.setattr(reduced, "SAMPLE", 2**18 // sampled)
    rng, most = np.random.default_rng(5), 2**18 // 256
    draw = {"normal": rng.standard_normal, "cauchy": rng.standard_cauchy}[heavy]
    vectors = draw((2**18, 4)).astype(np.float32)
    mean, largest = reduced.mean_and_range(vectors, most)
    assert (np.abs(vectors - mean).max(axis=1) > largest).sum() <= most


def test_a_large_collection_may_have_more_outliers_and_its_search_stays_exact(monkeypatch):
    """100 of 4,096 passages are clipped: a bound that holds for them too says next to nothing of the others."""
    rng = np.random.default_rng(6)
    vectors, queries = (rng.standard_normal((rows, 8)).astype(np.float32) for rows in (4096, 16))
    wide = rng.choice(4096, 100, replace=False)
    vectors[wide, rng.integers(8, size=100)] = 40

    def opened(share):
        monkeypatch.setattr(flat, "OUTLIER_SHARE", share)
        return Exact(vectors, 2, lambda _, part, most: Int8Flat(part, 1, most_outliers=most), 1)

    few, more = opened(4096), opened(16)
    assert few.part(0).errors(queries).min() > 4 * more.part(0).errors(queries).max()
    found = [more.part(number).outliers + more.ranges[number][0] for number in range(2)]
    assert set(wide) <= set(np.concatenate(found))
    expected = by_sorting(vectors, queries, 10)
    for index in (few, more):
        np.testing.assert_array_equal(index.search(queries, 10), expected)


@pytest.mark.parametrize("number_format, expected", [("int8", [1, 1, -1]), ("fp16", [1, 300, -1000])])
def test_components_beyond_the_range_are_clipped_in_int8_alone(number_format, expected):
    values = torch.tensor([1.0, 300.0, -1000.0])
    found, factor = reduced.reduce(values, number_format, 1.0)
    torch.testing.assert_close(found.float() * factor, torch.tensor(expected, dtype=torch.float32), rtol=2e-3, atol=0)
    assert reduced.reduce(torch.tensor([3e38]), number_format, 1.0)[0].isfinite().all()


@pytest.mark.parametrize("total", [39, 40, 41])
def test_as_many_passages_as_are_proposed_at_first(monkeypatch, total):
    """Rounded to whole numbers passage 0 has 320 and passage 1 only 314; exactly they have 316.08 and 317.92."""
    none = np.zeros(0, np.int64)
    for name, value in (("outliers_by", lambda *_: none), ("RANGE_SHARE", 1), ("RANGE_MARGIN", 1)):
        monkeypatch.setattr(reduced, name, value)
    vectors = np.zeros((total, 8), np.float32)
    vectors[0], vectors[1] = 39.51, [40.49, 40.49] + 6 * [39.49]
    vectors[2] = [127, -127] * 4
    vectors[3:6] = -vectors[:3]  # the mean is 0
    index = Int8Flat(vectors, threads=1)
    assert (index.first_count(1), index.factor) == (40, 1)
    assert_exact(index, np.ones((1, 8), np.float32), 1)
