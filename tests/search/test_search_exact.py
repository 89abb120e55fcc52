"""Exact search against exactly rounded sums of all pairs: ties, huge and tiny vectors, on every path and device."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from teleport.costs import Place
from teleport.search import candidates as kept
from teleport.search import costs, exact, pairs, reaching
from teleport.search.budget import SAMPLE_QUERIES, workspace
from teleport.search.exact import Exact
from teleport.search.pairs import PairScorer, inner_products, ranked
from teleport.settings.search import IndexSettings

ON_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")]
EVERYTHING = 2**40  # room for all vectors
PATHS = {  # device, number format of the products, room
    "float32": ("cpu", torch.float32, EVERYTHING),
    "float16": ("cpu", torch.float16, EVERYTHING),  # what a GPU computes
    "float16, streamed": ("cpu", torch.float16, 0),
    "float16, rescored from the host": ("cpu", torch.float16, "reduced"),
    "cuda": ("cuda", torch.float16, EVERYTHING),
    "cuda, streamed": ("cuda", torch.float16, 0),
    "cuda, rescored from the host": ("cuda", torch.float16, "reduced"),
}


@pytest.fixture(params=[pytest.param(name, marks=ON_GPU if "cuda" in name else []) for name in PATHS])
def open_exact(request):
    device, dtype, room = PATHS[request.param]

    def opened(vectors):
        return Exact(vectors, device, 2, 2 * math.prod(vectors.shape) if room == "reduced" else room, dtype)

    return opened


def by_sorting(vectors_PD, queries_QD, depth):
    """(ids, scores) by a full sort of exactly rounded sums, ties by the smaller number."""
    passages_PD, found = np.asarray(vectors_PD, np.float64), []
    for query in queries_QD.astype(np.float64):
        sums = np.array([math.fsum(terms) for terms in (passages_PD * query).tolist()])
        order = np.argsort(-sums.astype(np.float32), kind="stable")[:depth]
        found.append((order, sums.astype(np.float32)[order]))
    return tuple(map(np.array, zip(*found, strict=True)))


def assert_exact(index, queries_QD, depth):
    ids, scores = index.search(queries_QD, depth)
    expected_ids, expected_scores = by_sorting(index.vectors, queries_QD, depth)
    assert ids.dtype == np.int32 and scores.dtype == np.float32
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_array_equal(scores, expected_scores)


def normal(rng, rows, dim=16):
    return rng.standard_normal((rows, dim)).astype(np.float32)


def integers(rng, rows, dim, high=3):
    """Vectors of small integers: exact scores, most of them tied."""
    return rng.integers(0, high, size=(rows, dim)).astype(np.float32)


def counted(monkeypatch, name):
    """How many queries reach a method of `Exact`, noted as it is called."""
    asked, method = [], getattr(Exact, name)
    monkeypatch.setattr(
        Exact, name, lambda self, queries, depth: asked.append(len(queries)) or method(self, queries, depth)
    )
    return asked


def small_blocks(monkeypatch):
    """Blocks, groups, rooms and steps so small that a search of some hundred passages has many of each."""

    def set_in_both(name, value):
        for module in (module for module in (exact, kept) if hasattr(module, name)):
            monkeypatch.setattr(module, name, value)

    for name, value in {"BLOCK": 64, "GROUP": 4, "LEAST_ROOM": 24, "LEAST_TAKEN": 5, "SAMPLE": 50}.items():
        set_in_both(name, value)
    for name, value in {"SCORES": 512, "QUERIES": 4, "PAIRS": 40, "HITS": 64}.items():
        set_in_both(name, {"cpu": value, "cuda": value})


def test_a_literal_example(open_exact):
    vectors = np.array([[1, 0], [0, 2], [2, 0], [1, 1], [2, 0]], np.float32)
    ids, scores = open_exact(vectors).search(np.array([[1, 0], [0, -1]], np.float32), 3)
    assert ids.tolist() == [[2, 4, 0], [0, 2, 4]]
    assert scores.tolist() == [[2, 2, 1], [0, 0, 0]] and not np.signbit(scores).any()


@pytest.mark.ci(8)
@pytest.mark.parametrize("depth", [1, 10, 150, 300])
@pytest.mark.parametrize("small", [False, True])
def test_many_exact_ties(open_exact, monkeypatch, small, depth):
    rng = np.random.default_rng(0)
    if small:
        small_blocks(monkeypatch)
    assert_exact(open_exact(integers(rng, 300, 4)), integers(rng, 30, 4), depth)


def nasty(rng):
    """Copies, near copies, zeros, huge vectors and lognormal lengths; queries of all these kinds."""
    vectors = normal(rng, 1500, 24)
    vectors[100:500] = vectors[7]
    vectors[500:600] = vectors[8] + 1e-6 * normal(rng, 100, 24)
    vectors[600:700] = vectors[9] + 1e-4 * normal(rng, 100, 24)
    vectors[700:760] = 0
    vectors[[760, 761, 762]] *= np.float32([[1e4], [1e15], [1e-15]])
    vectors[800:1400] *= rng.lognormal(0, 1, (600, 1)).astype(np.float32)
    queries = normal(rng, 14, 24)
    queries[:3], queries[3:5], queries[5] = vectors[7], vectors[[8, 9]], 0
    queries[6] *= np.float32(1e-20)
    queries[7], queries[8] = vectors[761], vectors[850]
    return vectors, queries


@pytest.mark.ci(8)
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("depth", [1, 10, 300, 1500])
def test_a_nasty_set(open_exact, monkeypatch, small, depth):
    vectors, queries = nasty(np.random.default_rng(1))
    if small:
        small_blocks(monkeypatch)
    assert_exact(open_exact(vectors), queries, depth)


def test_the_levels_of_a_search_are_all_reached(monkeypatch, caplog):
    """The guard of the test before: some queries are settled by products, some by doubles, some by all scores."""
    vectors, queries = nasty(np.random.default_rng(1))
    small_blocks(monkeypatch)
    by_products, by_doubles, by_scores = (
        counted(monkeypatch, f"by_{name}") for name in ("products", "doubles", "scores")
    )
    Exact(vectors, "cpu", dtype=torch.float16).search(queries, 10)
    assert by_products == [14] and 14 > by_doubles[0] > by_scores[0] > 0 and not caplog.text
    monkeypatch.setattr(exact, "MANY", by_scores[0])
    Exact(vectors, "cpu", dtype=torch.float16).search(queries, 10)
    assert f"{by_scores[0]} of 14 queries have so many equal scores" in caplog.text


def test_vectors_that_are_almost_parallel(open_exact):
    """As those of an encoder that does not normalise: the scores differ in their last digits."""
    rng = np.random.default_rng(10)
    vectors, queries = (np.float32(10) + np.float32(0.01) * normal(rng, rows, 24) for rows in (400, 8))
    assert_exact(open_exact(vectors), queries, 20)


def test_the_mean_is_taken_off_vectors_that_are_almost_parallel(monkeypatch):
    """Without it float16 products could not tell them apart, and all would be searched again in float64."""
    rng, again = np.random.default_rng(10), counted(monkeypatch, "by_doubles")
    vectors, queries = (np.float32(1) + np.float32(0.01) * normal(rng, rows, 64) for rows in (8000, 8))
    Exact(vectors, "cpu", dtype=torch.float16).search(queries, 50)
    monkeypatch.setattr(exact, "mean_and_scale", lambda sample, reduces: (np.zeros(64, np.float32), 1.0, 8.0))
    assert again == []
    Exact(vectors, "cpu", dtype=torch.float16).search(queries, 50)
    assert again[0] > 4


@pytest.mark.ci(4)
@pytest.mark.parametrize("kind", ["one huge", "lognormal", "unit"])
def test_uneven_lengths_cost_nothing(open_exact, monkeypatch, kind):
    """No second search, and not many more pairs are scored than asked for."""
    rng, scored = np.random.default_rng(13), []
    vectors, queries = normal(rng, 20_000, 64), normal(rng, 30, 64)
    if kind == "one huge":
        vectors[777] *= 1e4
    else:
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors *= rng.lognormal(0, 0.5, (len(vectors), 1)).astype(np.float32) if kind == "lognormal" else 1
    again, scores = counted(monkeypatch, "by_doubles"), Exact.scores
    monkeypatch.setattr(Exact, "scores", lambda s, q, n, ids: scored.append(int(n.sum())) or scores(s, q, n, ids))
    ids, _ = open_exact(vectors).search(queries, 50)
    assert again == [] and 50 * 30 <= sum(scored) < 65 * 30
    products = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    np.testing.assert_array_equal(ids, np.argsort(-products, axis=1, kind="stable")[:, :50])


def test_zeros_and_nothing(open_exact):
    rng = np.random.default_rng(11)
    assert_exact(open_exact(np.zeros((40, 16), np.float32)), normal(rng, 6), 9)
    ids, scores = open_exact(normal(rng, 40)).search(np.zeros((0, 16), np.float32), 9)
    assert ids.shape == scores.shape == (0, 9)


@pytest.mark.parametrize("value", [3e38, 1e25])
def test_scores_beyond_float32_are_refused(open_exact, value):
    vectors = np.full((30, 8), value, np.float32)
    with pytest.raises(ValueError, match="overflow float32"):
        open_exact(vectors).search(np.full((2, 8), value, np.float32), 5)


@pytest.mark.parametrize("order", ["best first", "best last"])
def test_the_order_of_the_passages_does_not_matter(open_exact, monkeypatch, order):
    small_blocks(monkeypatch)
    rng = np.random.default_rng(9)
    vectors = normal(rng, 500, 12)
    queries = (vectors[0] + np.float32(0.1) * normal(rng, 6, 12)).astype(np.float32)
    rising = np.argsort(vectors @ queries[0])
    assert_exact(open_exact(vectors[rising if order == "best last" else rising[::-1]].copy()), queries, 30)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_memory_maps_are_searched_without_a_warning(open_exact, tmp_path, recwarn, dtype):
    """Float16 vectors are searched as their float32 values."""
    rng = np.random.default_rng(6)
    np.save(tmp_path / "passages.npy", normal(rng, 120, 6).astype(dtype))
    index = open_exact(np.load(tmp_path / "passages.npy", mmap_mode="r"))
    assert_exact(index, normal(rng, 4, 6), 12)
    assert not recwarn.list


def test_float16_vectors_are_kept_as_they_are():
    vectors = normal(np.random.default_rng(2), 50).astype(np.float16)
    index = Exact(vectors, "cpu", dtype=torch.float16)
    assert index.reduced is index.stored and torch.equal(index.reduced, torch.from_numpy(vectors))


@pytest.mark.ci(6)
@pytest.mark.parametrize("count", [1, 2, 7, 50])
def test_lists_of_parts_merged_are_the_list_of_the_whole(open_exact, count):
    """Parts of the passages, many of whose ties cross their bounds, and parts of the queries."""
    rng = np.random.default_rng(4)
    vectors, queries = integers(rng, 700, 6), integers(rng, 9, 6)
    whole = open_exact(vectors).search(queries, 40)
    bounds = np.linspace(0, 700, count + 1).astype(int)
    lists = [
        (ids + first, scores)
        for first, last in zip(bounds, bounds[1:], strict=False)
        for ids, scores in [open_exact(vectors[first:last]).search(queries, min(40, last - first))]
    ]
    merged = ranked(np.hstack([scores for _, scores in lists]), np.hstack([ids for ids, _ in lists]), 40)
    index = open_exact(vectors)
    by_queries = [
        np.concatenate(arrays)
        for arrays in zip(*(index.search(queries[n : n + 2], 40) for n in range(0, 9, 2)), strict=True)
    ]
    for found in (merged, by_queries):
        for ours, expected in zip(found, whole, strict=True):
            np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize(("rows", "sizes"), [(1000, [960, 40]), (64, [64]), (50, [50]), (640, [640])])
def test_no_block_of_float16_products_is_filled_up(monkeypatch, rows, sizes):
    """A live search of few queries has all passages in one block: to fill it up to a multiple of eight would copy them
    in every step."""
    rng, seen = np.random.default_rng(3), []
    vectors, queries = normal(rng, rows, 16), normal(rng, 3, 16)
    index, ref = Exact(vectors, "cpu", dtype=torch.float16), Exact(vectors, "cpu")
    blocks = index.blocks
    monkeypatch.setattr(index, "blocks", lambda *of: (seen.append(len(b[1])) or b for b in blocks(*of)))
    for ours, expected in zip(index.search(queries, 20), ref.search(queries, 20), strict=True):
        np.testing.assert_array_equal(ours, expected)
    assert seen == sizes


def test_all_paths_give_the_same_bits_as_faiss_up_to_rounding(open_exact):
    import faiss

    rng = np.random.default_rng(8)
    vectors, queries = normal(rng, 3000, 48), normal(rng, 40, 48)
    flat = faiss.IndexFlatIP(48)
    flat.add(vectors)
    scores, ids = flat.search(queries, 50)
    found_ids, found_scores = open_exact(vectors).search(queries, 50)
    np.testing.assert_array_equal(found_ids, ids)
    np.testing.assert_allclose(found_scores, scores, rtol=1e-5)
    for ours, expected in zip((found_ids, found_scores), Exact(vectors, "cpu").search(queries, 50), strict=True):
        np.testing.assert_array_equal(ours, expected)


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
def test_the_bound_holds_for_sums_that_truncate(group):
    """After a product of 1 each of many just below 2^-23 is lost."""
    dim = 1024
    passage, query = np.full((1, dim), 2.0**-12, np.float16), np.full((1, dim), 2.0**-12, np.float16)
    passage *= np.float16(2047 / 1024)
    passage[0, 0] = query[0, 0] = 1
    products_ND = passage.astype(np.float64) * query
    error = abs(float(truncating_sums(products_ND, group)[0]) - products_ND.sum())
    _, bounds_P2 = Exact(passage, "cpu", dtype=torch.float16).reduce(torch.from_numpy(passage), torch.float16)
    length = float(np.linalg.norm(passage[0].astype(np.float64)))
    rounded = exact.HALF_GAP * length  # of the product to float16, which is not tried here
    assert error > 0.95 * dim * 2.0**-23, "twice what rounded sums lose at most"
    assert 2 * error <= float(bounds_P2[0, 0]) - rounded <= 3 * error


@pytest.mark.parametrize("stored", [np.float32, np.float16])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_no_error_of_a_product_exceeds_its_bound(dtype, stored):
    rng = np.random.default_rng(12)
    vectors, queries = (normal(rng, rows, 40) + np.float32(2) for rows in (500, 60))
    vectors = vectors.astype(stored)
    vectors[3] *= 3
    index = Exact(vectors, "cpu", dtype=dtype)
    near = index.usual if dtype == torch.float16 else 1.0
    group = kept.Candidates(queries, 10, 100, dtype, torch.device("cpu"), near)
    passages_PD, bounds_P2 = index.reduce(torch.from_numpy(vectors), dtype)
    scale, mean = (index.scale, index.mean.double()) if dtype == torch.float16 else (1.0, 0.0)
    scaled_QD = (
        group.exact_QD
        * (group.queries_QD.double() / group.exact_QD).median(dim=1).values.log2().round().exp2()[:, None]
    )
    true_QP = scaled_QD @ ((torch.from_numpy(vectors).double() - mean) * scale).T
    errors_QP = (kept.products(group.queries_QD, passages_PD).double() - true_QP).abs()
    share = errors_QP / (group.lengths_Q2 @ bounds_P2.T)
    assert share.max() <= 1
    assert dtype == torch.float64 or share.max() > 0.02, "a bound far from any error would not be tested"


def test_inner_products_have_the_same_bits_as_arrays_and_as_tensors():
    rng = np.random.default_rng(5)
    for dim in (1, 2, 3, 7, 384, 1001):
        queries, passages = normal(rng, 50, dim).astype(np.float64), normal(rng, 50, dim)
        arrays = inner_products(queries, passages)
        tensors = inner_products(torch.from_numpy(queries), torch.from_numpy(passages))
        assert arrays.tolist() == tensors.tolist()
        np.testing.assert_allclose(arrays, [math.fsum(terms) for terms in (queries * passages).tolist()], atol=1e-12)


def test_threads_of_a_search_use_the_gpu_of_its_process(monkeypatch):
    """Of several processes each has a current device, which is one of a thread: others begin with the first GPU."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(Exact, "open", lambda self: None)
    vectors = np.zeros((2, 2), np.float32)
    assert Exact(vectors, torch.device("cuda"), room=0).on == Exact(vectors, "cuda:3", room=0).on
    assert Exact(vectors, "cpu").on == torch.device("cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
def test_inner_products_have_the_same_bits_on_a_gpu():
    queries, passages = torch.randn(500, 768, dtype=torch.float64), torch.randn(500, 768)
    assert inner_products(queries, passages).tolist() == inner_products(queries.cuda(), passages.cuda()).tolist()


def test_a_gpu_without_a_compiler_is_told_once_why_its_search_is_slower(monkeypatch, caplog):
    monkeypatch.setattr(reaching, "has_c_compiler", lambda: False)
    reaching.kernel_exists.cache_clear()
    assert not any(reaching.kernel_exists(device) for device in ("cuda:7", "cuda:7", "cpu"))
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "a C compiler (apt install gcc)" in warning


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
@pytest.mark.parametrize("seed", range(4))
def test_the_kernel_appends_what_the_groups_append(seed):
    """Also of products that are no numbers, beyond float16, or of crowded queries."""
    if not kept.kernel_exists("cuda"):
        pytest.skip("Triton or a C compiler is not there")
    rng = np.random.default_rng(seed)
    products_QP = torch.from_numpy(3 * rng.standard_normal((5, 5000))).half()
    products_QP[:, 3], products_QP[:, 700], products_QP[:, 90] = torch.nan, -torch.inf, torch.inf
    products_QP[3, :4000] = -torch.inf
    errors_P2 = torch.from_numpy(rng.random((5000, 2))) * torch.tensor([1.0, 0.1])
    made = []
    for by_kernel in (True, False):
        candidates = kept.Candidates(normal(rng, 5), 3, 6000, torch.float16, torch.device("cuda"), 16.0)
        candidates.lengths_Q2 = torch.arange(1.0, 11.0, device="cuda").view(5, 2)
        candidates.floor_Q = torch.tensor([-1e9, 20.0, 50.0, -65400.0, -torch.inf], device="cuda")
        candidates.crowded_Q[1] = seed == 3
        block = products_QP.cuda(), errors_P2.float().cuda()
        if by_kernel:
            kept.append_reaching(candidates, *block, 1000)
        else:
            candidates.add_by_groups(1000, *block, candidates.crowded_Q)
        rows = zip(
            candidates.count_Q.tolist(), candidates.ids_QR, candidates.lower_QR, candidates.upper_QR, strict=True
        )
        made.append([sorted(zip(*(x[:n].tolist() for x in kept), strict=True)) for n, *kept in rows])
    counts = [len(row) for row in made[0]]
    assert counts[0] == 5000 and 0 < counts[2] < 5000 and (counts[1] == 0) == (seed == 3)
    for kernel, groups in zip(*made, strict=True):
        np.testing.assert_allclose(kernel, groups, rtol=1e-5, atol=1e-5, equal_nan=True)  # sums of fused products


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
def test_a_large_search_on_a_gpu_has_the_bits_of_the_cpu():
    """Several groups of queries on two streams, several blocks, at the sizes of a GPU."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(300_000, 64, generator=generator).numpy()
    queries = torch.randn(40_000, 64, generator=generator).numpy()
    ids, scores = Exact(vectors, "cuda", 4).search(queries, 100)
    some = np.arange(0, 40_000, 400)
    for ours, expected in zip(
        (ids[some], scores[some]), Exact(vectors, "cpu", 4).search(queries[some], 100), strict=True
    ):
        np.testing.assert_array_equal(ours, expected)


def cost_of(place, passages=8_841_823, dim=768, scores="full", index="Flat", parameters=""):
    """The forecast of a search for 6,980 queries of 200 passages each."""
    encoded = SimpleNamespace(settings=SimpleNamespace(chunks=1))
    inputs = {"passages": encoded, "index": SimpleNamespace(settings=IndexSettings(index=index))}
    stage = SimpleNamespace(settings=SimpleNamespace(scores=scores, parameters=parameters), inputs=inputs)
    counts = SimpleNamespace(vectors=lambda _: (passages, dim, 4 * passages * dim), run=lambda _: (6980, 200))
    return costs.retrieve(stage, counts, place)


@pytest.mark.parametrize("dim", [384, 768])
@pytest.mark.parametrize("gpus", [1, 4])
def test_the_forecast_asks_for_the_room_in_which_vectors_stay_on_a_gpu(dim, gpus):
    """With a byte less the search streams them from the disk; a second GPU takes no part of them."""
    assert cost_of(Place(gpus=gpus), dim=dim).device_memory == 2 * 8_841_823 * dim + workspace(dim)


def test_the_forecast_of_a_search_by_codes_is_that_of_their_vectors():
    """`Exact` searches what the codes decode to, on a GPU too."""
    for place in (Place(gpus=0), Place(gpus=1)):
        plain, coded = cost_of(place), cost_of(place, scores="compressed", index="PQ48")
        assert (coded.work, coded.device_memory) == (plain.work, plain.device_memory) and coded.memory < plain.memory


def test_the_forecast_of_inverted_lists_is_of_those_that_are_probed():
    def lists_probed(parameters):
        return cost_of(Place(gpus=0), index="IVF4096,Flat", parameters=parameters)

    exact, lists = cost_of(Place(gpus=0)), lists_probed("nprobe=64")
    products = exact.work["search_flop"]
    assert lists.work["host_flop"] == pytest.approx(products * (costs.SCANNED * 64 + 4096**2 / 8_841_823) / 4096)
    one = lists_probed("")
    assert one.work["host_flop"] < lists.work["host_flop"] / 30
    assert one.work["search_flop"] == products * SAMPLE_QUERIES / 6980, "exactly, for the recall"
    everything = lists_probed("nprobe=9999")
    assert everything.work["host_flop"] == pytest.approx(products * (costs.SCANNED + 4096 / 8_841_823))


def test_the_forecast_of_an_exact_search_counts_the_selection_on_a_processor():
    """Measured with a million passages: 32 dimensions took .18 of the time of 768, and 128 took .26."""
    whole, narrow, some = (cost_of(Place(gpus=0), dim=dim).work["search_flop"] for dim in (768, 32, 128))
    assert whole == 2 * 6980 * 8_841_823 * 768
    assert narrow / whole == pytest.approx(0.18, rel=0.2) and some / whole == pytest.approx(0.26, rel=0.2)
    assert cost_of(Place(gpus=1), dim=32).work["search_flop"] == 2 * 6980 * 8_841_823 * 32


def test_pairs_are_scored_as_a_search_scores_them(monkeypatch):
    monkeypatch.setattr(pairs, "PAIRS", 7)
    rng = np.random.default_rng(3)
    vectors, queries = normal(rng, 90), normal(rng, 5)
    ids, scores = Exact(vectors, "cpu").search(queries, 90)
    scorer = PairScorer(queries, vectors, None)
    for row in range(5):
        np.testing.assert_array_equal(scorer.score(row, ids[row]), scores[row])


def test_ranked_literally():
    scores = np.array([[1.5, -0.0, 0.0, -2.0, 1.5]], np.float32)
    ids, best = ranked(scores, np.array([[7, 5, 4, 0, 2]]), 4)
    assert ids.tolist() == [[2, 7, 4, 5]] and best.tolist() == [[1.5, 1.5, 0, 0]] and not np.signbit(best).any()
