"""Live search: the lists of a step against brute force, what is appended, and trainings that search at every step."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from teleport.encoder.load import load_encoders
from teleport.reader import read_positives
from teleport.search.index import Decoded
from teleport.training import live, train
from teleport.training.data import read_training_set
from teleport.training.live import LiveSearch, SharedExact, make_lists, measure
from teleport.training.parallel import ALONE
from training_world import LIVE, World, backward, die_at, facts_of, loss_of, losses_of, make_trainer

PQ = "PQ4x4"


def lists_of(ids, positives, relevant=None, appends=True):
    """(passages, signs) of lists as plain data: + a positive, - a negative, . neither."""
    positives, relevant = ([np.array(own, int) for own in of] for of in (positives, relevant or positives))
    passages_QK, positive_QK, negative_QK = make_lists(np.array(ids), positives, relevant, appends)
    signs = np.where(positive_QK, "+", np.where(negative_QK, "-", "."))
    return passages_QK.tolist(), ["".join(line) for line in signs]


def test_a_list_without_a_positive_gets_all_of_them_and_others_none():
    ids = [[7, 3, 5], [7, 3, 5], [7, 3, 5]]
    passages, signs = lists_of(ids, [[3], [8, 9], [5, 6]])
    assert signs == ["-+-..", "---++", "--+.."]
    assert [line[:3] for line in passages] == ids and passages[1][3:] == [8, 9]
    assert lists_of(ids, [[3], [8, 9], [5, 6]], appends=False) == (ids, ["-+-", "---", "--+"])
    assert lists_of(ids, [[3], [7], [5, 6]]) == (ids, ["-+-", "+--", "--+"])


def test_what_is_judged_below_the_positives_is_no_negative():
    assert lists_of([[7, 3, 5]], [[3]], [[3, 7]])[1] == [".+-"]
    assert lists_of([[7, 3, 5]], [[9]], [[9, 7]])[1] == [".--+"]


def test_measures_of_a_step_literally():
    """First positives at ranks 2, 11 and none; two, one and one positives."""
    positive = np.zeros((3, 12), bool)
    positive[0, [1, 10]] = positive[1, 10] = True
    assert measure(positive, [2, 1, 1], [10, 12]).tolist() == [[0.5, 0.5, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


def test_lists_as_deep_as_the_cut_have_one_recall():
    search = LiveSearch(SimpleNamespace(engine=""), None, None, SimpleNamespace(depth=10), None)
    assert search.measures == ["RR@10", "R@10"] and measure(np.ones((1, 10), bool), [10], search.cuts).shape == (1, 2)


class Together:
    """One of several processes that search together, here threads. places: of all, of which each fills its own"""

    def __init__(self, rank, places, barrier):
        self.rank, self.size, self.places, self.barrier = rank, len(places), places, barrier

    def gather_integers(self, array):
        assert array.dtype == np.int64
        self.places[self.rank] = array.copy()
        self.barrier.wait()
        gathered = list(self.places)
        self.barrier.wait()
        assert len({each.shape for each in gathered}) == 1
        return gathered


def search_together(size, vectors, queries, depth):
    """What each of `size` processes finds: [(ids, scores)]."""
    places, barrier = [None] * size, threading.Barrier(size, timeout=30)

    def search(rank):
        return SharedExact(vectors, torch.device("cpu"), 1, Together(rank, places, barrier)).search(queries, depth)

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(search, range(size)))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_processes_with_a_share_each_find_what_one_finds(size):
    """Integer vectors, so that many passages tie; one is an outlier."""
    rng = np.random.default_rng(0)
    vectors, queries = (rng.integers(0, 3, size=(n, 4)).astype(np.float32) for n in (70, 6))
    vectors[50] *= 100
    products = queries @ vectors.T
    expected = np.argsort(-products, axis=1, kind="stable")[:, :15]
    for ids, scores in search_together(size, vectors, queries, 15):
        np.testing.assert_array_equal(ids, expected)
        np.testing.assert_array_equal(scores, np.take_along_axis(products, expected, axis=1))
        assert all(len(set(row)) < 15 for row in scores.tolist())


def test_passages_that_are_no_more_than_the_depth_are_all_found_together():
    vectors = np.arange(10, dtype=np.float32)[:, None]
    for ids, _ in search_together(3, vectors, np.ones((2, 1), np.float32), 10):
        assert ids.tolist() == [list(range(9, -1, -1))] * 2


def opened(world, **live):
    """(a trainer of a live training, its job)."""
    job = world.job(**live)
    return make_trainer(job), job


def noisy_vectors(trainer, batch):
    """The queries' vectors of a batch as a step with the seed 5 encodes them."""
    torch.manual_seed(5)
    return trainer.queries.vectors(batch.queries_Q, 4096)


def plain_lists(job, trainer, batch, queries, depth):
    """By sorting all products: per query [(passage, sign)], appended positives included."""
    passages = np.load(job.input("passages", "passages.npy"))
    split = job.inputs["split.train"]
    positives, relevant = (read_positives(split, "train", grade) for grade in (None, job.settings.relevant_grade))
    found = []
    for row, query in zip(batch.queries_Q, queries.detach().numpy().astype(np.float64), strict=True):
        products = (passages.astype(np.float64) @ query).astype(np.float32)
        ranked = sorted(range(len(passages)), key=lambda p, products=products: (-products[p], p))[:depth]
        own, known = set(positives[row].tolist()), set(relevant[row].tolist())
        line = [(p, "+" if p in own else "." if p in known else "-") for p in ranked]
        found.append(line + ([] if own & set(ranked) else [(p, "+") for p in positives[row]]))
    return found, passages


@pytest.mark.parametrize("depth", [3, 45])
def test_a_step_loses_what_brute_force_over_its_noisy_vectors_says(stages, depth):
    """Dropout of 0.3: the vectors are not those of an encoder at rest, and search and loss have the same ones."""
    world = World(stages, dropout=0.3)
    trainer, job = opened(world, **world.live({"depth": depth}, scale=2.0))
    batch = trainer.data.batch(0)
    queries = noisy_vectors(trainer, batch)
    lists, passages = plain_lists(job, trainer, batch, queries, depth)
    loss = 0.0
    for query, line in zip(queries.detach().numpy().astype(np.float64), lists, strict=True):
        gains = [1 / rank if rank <= 20 else 0.0 for rank in range(1, len(line) + 1)]
        scores = [2.0 * float(passages[p].astype(np.float64) @ query) for p, _ in line]
        pairs = [(i, j) for i, (_, a) in enumerate(line) for j, (_, b) in enumerate(line) if a == "+" and b == "-"]
        own = sum(abs(gains[i] - gains[j]) * np.log1p(np.exp(scores[j] - scores[i])) for i, j in pairs)
        loss += own / len(pairs) / len(lists)
    torch.manual_seed(5)
    assert loss_of(trainer, batch).item() == pytest.approx(loss, rel=1e-5)
    trainer.queries.encoder.eval()
    assert loss_of(trainer, batch).item() != pytest.approx(loss, rel=1e-3), "guard: dropout counts"
    signs = "".join(sign for line in lists for _, sign in line)
    assert {"+", "-"} <= set(signs)
    assert any(len(line) > depth for line in lists) if depth == 3 else "." in signs, "guard: appended, or left out"


def test_a_batch_has_queries_alone_in_the_order_of_every_training(stages):
    world = World(stages)
    live, pooled = (read_training_set(world.job(**options), 1) for options in (world.live(), {}))
    for step in (0, 3, 7):
        batch = live.batch(step)
        assert batch.queries_Q.tolist() == pooled.batch(step).queries_Q.tolist() and not len(batch.passages_P)
        parts = [part.queries_Q for part in batch.split(2)]
        assert [len(part) for part in parts] == [2, 2] and np.concatenate(parts).tolist() == batch.queries_Q.tolist()


@pytest.mark.ci(2)
@pytest.mark.parametrize("loss", [LIVE["loss"], "ranknet-list"], ids=["lambda", "ranknet-list"])
@pytest.mark.parametrize(
    "search", [{}, {"index": PQ}, {"index": PQ, "scores": "compressed"}, {"append_positives": "never"}]
)
def test_a_live_training_ranks_its_positives_higher(stages, loss, search):
    world = World(stages, dropout=0.0)
    options = world.live(search, training={"loss": loss, "steps": 60, "learning_rate": 1e-3})
    job = world.finished(world.job(**options))
    facts, lines = facts_of(job), [line.split("\t") for line in (job.folder / "found.tsv").read_text().splitlines()]
    assert lines[0] == ["step", "RR@10", "R@10", "R@20"] and [line[0] for line in lines[1:]] == list(
        map(str, range(1, 61))
    )
    reciprocal = [float(line[1]) for line in lines[1:]]
    assert np.mean(reciprocal[-10:]) > np.mean(reciprocal[:10]) + 0.1
    assert facts["engine"] == "exact x 1" and facts["search_seconds"] > 0
    query, passage = load_encoders(job.folder / "checkpoint")
    assert query is not passage


@pytest.mark.parametrize("search", [{}, {"index": PQ}])
def test_lists_of_more_passages_than_there_are_are_refused_by_their_setting(stages, search):
    with pytest.raises(ValueError, match=r"negatives\.live\.depth is 10000, .*\d+ passages"):
        opened(World(stages), **World(stages).live(search | {"depth": 10_000}))


@pytest.mark.ci(0)
def test_search_settings_are_different_trainings(stages):
    world, losses = World(stages), set()
    for search in (
        {},
        {"index": PQ},
        {"index": PQ, "scores": "compressed"},
        {"depth": 5},
        {"append_positives": "never"},
    ):
        losses.add(tuple(losses_of(world.finished(world.job(**world.live({"depth": 8} | search))))[1]))
    assert len(losses) == 5


@pytest.mark.ci(1)
@pytest.mark.parametrize("training", [{}, {"accumulate": 2}, {"gradient_caching": True}, {"precision": "bf16"}])
def test_a_killed_live_training_continues_with_the_same_bits(stages, monkeypatch, training):
    world = World(stages)
    options = world.live(training=training)
    whole = world.finished(world.job(**options))
    job = world.job(**options, save_every=0)
    die_at(job, 6, monkeypatch)
    resumed = world.finished(job)
    assert facts_of(resumed)["resumed_from"] == 6
    for name in ("losses.tsv", "found.tsv", "checkpoint/query/model.safetensors"):
        assert (resumed.folder / name).read_bytes() == (whole.folder / name).read_bytes(), name


def test_two_segments_are_one_live_training(stages):
    world = World(stages)
    options = world.live(training={"continues": True, "steps": 12})
    whole = world.finished(world.job(**options))
    options["training"] |= {"stop_after_steps": 6}
    first = world.finished(world.job(**options))
    options["inputs"] |= {"continued": first, "checkpoint": first}
    second = world.finished(world.job(**options, episode=2, run_episode=1))
    parts = [(job.folder / "found.tsv").read_text().splitlines()[1:] for job in (first, second)]
    assert parts[0] + parts[1] == (whole.folder / "found.tsv").read_text().splitlines()[1:]
    name = "checkpoint/query/model.safetensors"
    assert (second.folder / name).read_bytes() == (whole.folder / name).read_bytes()


def test_gradient_caching_and_micro_batches_have_the_gradients_of_one_batch(stages):
    """Lists of a query depend on its own vector alone; without dropout."""
    world, found = World(stages, dropout=0.0), []
    for training in ({}, {"gradient_caching": True}, {"accumulate": 2}):
        trainer, _ = opened(world, **world.live(training=training))
        loss = backward(trainer, trainer.data.batch(1))
        gradients = [p.grad for p in trainer.queries.encoder.parameters() if p.grad is not None]
        found.append((loss, torch.cat([gradient.flatten() for gradient in gradients])))
    for loss, gradient in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-6)
        assert (gradient - found[0][1]).norm() < 1e-5 * found[0][1].norm()
    assert found[0][1].norm() > 0.01


def test_vectors_that_are_not_finite_end_the_training_with_a_sentence(stages):
    world = World(stages)
    job = world.job(**world.live(training={"learning_rate": 1e30}))
    with pytest.raises(ValueError, match=r"step \d: loss nan.*query-\d\d"):
        train.run(job)


def test_a_vector_that_is_not_finite_is_not_searched_with(stages):
    """With infinite scores the search would never end."""
    world = World(stages)
    trainer, _ = opened(world, **world.live())
    rows = trainer.data.batch(1).queries_Q
    vectors_QD, searched, search = trainer.vectors(trainer.queries, rows).detach(), [], trainer.live.index.search
    plain, *_ = trainer.live.lists(rows, vectors_QD)
    trainer.live.index.search = lambda queries_QD, depth: searched.append(len(queries_QD)) or search(queries_QD, depth)
    vectors_QD[0], vectors_QD[1, 0] = float("inf"), float("nan")
    found, *_ = trainer.live.lists(rows, vectors_QD)
    width = min(found.shape[1], plain.shape[1])
    assert searched == [len(rows) - 2] and torch.equal(found[2:, :width], plain[2:, :width])
    trainer.live.lists(rows[:2], vectors_QD[:2])
    assert len(searched) == 1


def test_no_pool_is_read_and_the_card_says_how_negatives_were_found(stages):
    world = World(stages)
    job = world.finished(world.job(**world.live()))
    manifest = json.loads((job.folder / "manifest.json").read_text())
    assert "negatives" not in job.inputs and manifest["facts"]["queries_without_negatives"] == 0
    card = (job.folder / "checkpoint/query/README.md").read_text()
    assert "Negatives: the nearest 20 passages of a query, searched for at every step" in card


def test_the_compressed_scores_are_those_of_reconstructed_vectors(stages):
    world = World(stages)
    trainer, job = opened(world, **world.live({"index": PQ, "scores": "compressed"}))
    assert isinstance(trainer.live.index.vectors, Decoded)
    batch = trainer.data.batch(0)
    queries = noisy_vectors(trainer, batch).detach()
    vectors, positive, _ = trainer.live.lists(batch.queries_Q, queries)
    full = np.load(job.input("passages", "passages.npy"))
    kept = np.asarray(trainer.live.index.vectors)
    products = queries.numpy() @ kept.T
    expected = np.take_along_axis(products, np.argsort(-products, axis=1, kind="stable")[:, :20], axis=1)
    scores = (vectors[:, :20] @ queries.unsqueeze(2)).squeeze(2).numpy()
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(kept - full).max() > 1e-3


def test_live_search_in_float16_holds_no_copy_of_the_passages(tmp_path):
    """What it keeps is the memory map itself, in float16; blocks and rows are converted where they are used."""
    vectors = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float16)
    np.save(tmp_path / "passages.npy", vectors)
    mapped = np.load(tmp_path / "passages.npy", mmap_mode="r")
    passages = SimpleNamespace(array=mapped, device=torch.device("cpu"))
    settings = SimpleNamespace(live=SimpleNamespace(depth=5, index=SimpleNamespace(kind="flat"), scores="exact"))
    search = live.open_search(SimpleNamespace(settings=settings, threads=1), None, passages, ALONE)
    exact = search.index.index
    assert exact.vectors.dtype == np.float16 and np.shares_memory(exact.vectors, mapped)
    assert exact.kept and exact.stored is None and exact.reduced is None
    assert search.compared.dtype == np.float16 and np.shares_memory(search.compared, mapped)
    queries = np.random.default_rng(1).normal(size=(2, 8)).astype(np.float32)
    ids, _ = search.index.search(queries, 5)
    np.testing.assert_array_equal(ids, np.argsort(-(queries @ vectors.astype(np.float32).T), axis=1)[:, :5])
