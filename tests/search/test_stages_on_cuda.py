"""Stages `encode` and `retrieve` on a CUDA device against the CPU's; here the same bodies run on the CPU alone."""

import numpy as np
import pytest
import torch

from stages import facts_of
from teleport.arrays import save_array
from teleport.encoder import encode
from teleport.search import exact, index, retrieve
from training_world import World

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")]),
]
NAMES = "passages", "queries.train", "queries.dev"


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def encoded(stages, world, device, monkeypatch, of, **settings):
    """A finished encode stage of the world, whose blocks have 16 texts, and its facts."""
    monkeypatch.setattr(encode, "pick_device", lambda: torch.device(device))
    monkeypatch.setitem(encode.BLOCK_TEXTS, device, 16)
    lengths = {"of": of, "max_query_tokens": 8, "max_passage_tokens": 24, "precision": "fp32"}
    inputs = {role: world.inputs[role] for role in ("tokens", "checkpoint")}
    job = stages.run(encode.run, "encode", lengths | settings, inputs)
    return job, facts_of(job)


@pytest.mark.parametrize(
    ("precision", "vectors", "most"), [("fp32", "fp32", 1e-3), ("bf16", "fp32", 0.05), ("bf16", "fp16", 0.05)]
)
def test_encode_gives_the_vectors_of_the_cpu(stages, monkeypatch, device, precision, vectors, most):
    world = World(stages)
    for name in NAMES:
        exact, _ = encoded(stages, world, "cpu", monkeypatch, name)
        job, facts = encoded(stages, world, device, monkeypatch, name, precision=precision, vectors=vectors)
        assert (facts["device"], facts["dtype"]) == (device, {"fp32": "float32", "bf16": "bfloat16"}[precision])
        expected, found = (np.load(each.folder / f"{name}.npy").astype(np.float64) for each in (exact, job))
        assert found.shape == expected.shape
        errors = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
        assert errors.max() < most and len(np.unique(expected, axis=0)) > 10


def test_a_killed_encode_goes_on_at_its_block(stages, monkeypatch, device):
    world, seen, store = World(stages), [], encode.store
    whole, facts = encoded(stages, world, device, monkeypatch, "passages")

    def dying(*arguments):
        seen.append(len(arguments[0]))
        if len(seen) == 3:
            raise KeyboardInterrupt
        store(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(encode, "store", dying)
        inputs = {role: world.inputs[role] for role in ("tokens", "checkpoint")}
        job = stages.make("encode", whole.raw_settings, inputs, save_every=0)
        with pytest.raises(KeyboardInterrupt):
            encode.run(job)
    resumed = stages.finish(job, encode.run(job))
    assert facts_of(resumed)["texts"] == facts["texts"]
    vectors = (np.load(each.folder / "passages.npy") for each in (resumed, whole))
    np.testing.assert_allclose(*vectors, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("room", [None, 0])
@pytest.mark.parametrize("of", ["queries", "positives"])
def test_retrieve_gives_the_bits_of_a_full_sort(stages, monkeypatch, device, of, room):
    """With all vectors on the device, and streamed to it; in blocks of lines, of which the last ones tie."""
    world, rng = World(stages), np.random.default_rng(0)
    passages = rng.standard_normal((60, 32)).astype(np.float32)
    passages[50:] = passages[:10]
    vectors = stages.make("encode")
    for name, array in (("passages", passages), ("queries.train", rng.standard_normal((20, 32)).astype(np.float32))):
        save_array(vectors.output(f"{name}.npy"), array)
    vectors = stages.finish(vectors)
    inputs = {"passages": vectors, "queries": vectors, "collection": world.inputs["collection"]}
    inputs["index"] = stages.run(index.run, "index", {}, {"passages": vectors})
    made = exact.Exact

    def open_on(array, threads):
        return made(array, device, threads, room, torch.float16)

    monkeypatch.setattr(exact, "Exact", open_on)
    monkeypatch.setattr(retrieve, "DEVICE_BLOCK_ROWS", 8)
    job = stages.run(retrieve.run, "retrieve", {"of": of, "split": "train", "depth": 12, "anchor": "first"}, inputs)
    ids, scores, rows = (np.load(job.folder / f"{name}.npy") for name in ("ids", "scores", "rows"))
    lines = np.load(vectors.folder / "queries.train.npy") if of == "queries" else passages[:20]
    products = np.vecdot(lines.astype(np.float64)[:, None], passages.astype(np.float64)).astype(np.float32)
    expected = np.argsort(-products, axis=1, kind="stable")[:, :12]
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(scores, np.take_along_axis(products, expected, axis=1))
    assert len(rows) == 20
