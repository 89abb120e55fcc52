"""Chunks of long texts: ANCE's released form without its padding, encoded, killed and sharded."""

import json

import numpy as np
import pytest
import torch

import encoder_world
from encoder_world import encode_all, make_pretrained, make_tokens, source_folder
from reference_encoder import reference_of
from stages import roles_of
from teleport.arrays import CHUNK_OFFSETS, Ragged, offsets_of
from teleport.encoder import encode
from teleport.encoder.batches import Chunks
from teleport.encoder.load import load_encoders
from teleport.encoder.side import Side
from teleport.encoder.tokens import open_tokens
from teleport.running.job import Job
from teleport.running.run import run, run_shard

SPECIAL = {"before": [1001], "after": [1002], "pad": 1000}
LIMIT, MOST = 6, 4
LENGTHS = [0, 1, 3, 4, 5, 9, 10, 11, 16, 22, 23, 40, 2]  # with CLS and SEP: below, at and above whole chunks
SETTINGS = {"max_query_tokens": 16, "precision": "fp32"}
OF_PASSAGES = {"of": "passages"}
CHUNKED = SETTINGS | {"max_passage_tokens": 12, "chunks": 4}
WORDS = ["the", "was", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Small blocks and batches, so that few chunks fill several."""
    monkeypatch.setitem(encode.BLOCK_TEXTS, "cpu", 5)
    monkeypatch.setitem(encode.TOKEN_BUDGET["encode"], "cpu", 40)


def random_map():
    rng = np.random.default_rng(0)
    return Ragged(offsets_of(LENGTHS), rng.integers(0, 999, sum(LENGTHS)).astype(np.uint16))


def released(ids, limit, most, pad):
    """ids of a text as ANCE pads and reshapes them, [most, limit], and the attention mask; ids have CLS and SEP."""
    ids = ids if len(ids) <= most * limit else [*ids[: most * limit - 1], ids[-1]]
    padding = most * limit - len(ids)
    mask = [1] * len(ids) + [0] * padding
    return np.array([*ids, *[pad] * padding]).reshape(most, limit), np.array(mask).reshape(most, limit)


def test_chunks_are_those_of_the_released_code_without_padding():
    token_map, chunks = random_map(), Chunks(random_map(), LIMIT, SPECIAL, MOST)
    expected = []
    for row in range(len(token_map)):
        ids, mask = released([1001, *token_map[row], 1002], LIMIT, MOST, SPECIAL["pad"])
        real = [part[keep == 1].tolist() for part, keep in zip(ids, mask, strict=True) if keep[0]]
        assert chunks.offsets[row + 1] - chunks.offsets[row] == len(real)
        expected += real
    assert {len(chunk) for chunk in expected} == {1, 2, 3, 4, 5, 6} and set(np.diff(chunks.offsets)) == {1, 2, 3, 4}
    rows = np.random.default_rng(1).permutation(len(expected))
    ids_T, lengths_B = chunks.packed(rows)
    assert ids_T.dtype == np.int64 and lengths_B.tolist() == chunks.lengths[rows].tolist()
    found = [part.tolist() for part in np.split(ids_T, np.cumsum(lengths_B)[:-1])]
    assert found == [expected[row] for row in rows]


def test_a_text_of_one_chunk_is_the_text_cut():
    token_map = random_map()
    one, several = (Side(None, token_map, 10**6, SPECIAL, most_chunks=most) for most in (1, 2))
    rows = np.arange(len(token_map))
    assert one.offsets is None and (several.offsets == np.append(rows, len(rows))).all()
    for ours, theirs in zip(one.packed(rows), several.packed(rows), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    ids_T, lengths_B = Chunks(token_map, 8, SPECIAL).packed(rows)
    expected = [[1001, *token_map[row][:6].tolist(), 1002] for row in rows]
    assert [text.tolist() for text in np.split(ids_T, np.cumsum(lengths_B)[:-1])] == expected


@pytest.fixture
def world(stages, tmp_path):
    """Upstream jobs of an encode stage: 12 passages of one to more than four chunks, by a BERT with a head."""
    return upstream(stages, tmp_path, "bert")


def upstream(stages, tmp_path, family):
    rng = np.random.default_rng(3)
    passages = [("", " ".join(rng.choice(WORDS, size))) for size in (3, 60, 11, 10, 22, 30, 45, 46, 5, 33, 21, 9)]
    checkpoint = make_pretrained(stages, source_folder(tmp_path / "source", family), projection=16, seed=1)
    collection = encoder_world.make_collection(stages, passages)
    return {"collection": collection, "tokens": make_tokens(stages, collection, checkpoint), "checkpoint": checkpoint}


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_vectors_are_those_of_the_padded_form(stages, tmp_path, family):
    world = upstream(stages, tmp_path, family)
    job = encode_all(stages, CHUNKED, world)
    vectors, offsets = np.load(job.files["passages.npy"]), np.load(job.files[CHUNK_OFFSETS])
    encoder = reference_of(load_encoders(world["checkpoint"].folder / "checkpoint")[1])
    special = json.loads((world["tokens"]["tokens.passages"].folder / "special.json").read_text())
    token_map = open_tokens(job["passages"], "passages")
    assert len(offsets) == 13 and set(np.diff(offsets)) == {1, 2, 3, 4} and len(vectors) == offsets[-1]
    for row in range(12):
        ids, mask = released([*special["before"], *token_map[row], *special["after"]], 12, 4, special["pad"])
        with torch.no_grad():
            padded = encoder(torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(mask)).numpy()
        ours = vectors[offsets[row] : offsets[row + 1]]
        np.testing.assert_allclose(ours, padded[mask[:, 0] == 1], rtol=0, atol=2e-5)
    queries = encode_all(stages, SETTINGS | {"max_passage_tokens": 12}, world)
    assert CHUNK_OFFSETS not in queries.files
    assert queries.files["queries.train.npy"].read_bytes() == job.files["queries.train.npy"].read_bytes()


def spec_of(world, **changes):
    inputs, settings = {role: f"{job.kind}/{job.key}" for role, job in roles_of(world).items()}, CHUNKED | OF_PASSAGES
    return {"kind": "encode", "key": "e" * 12, "code": "test", "settings": settings, "inputs": inputs} | changes


def make(world, root, **changes):
    """Run the job as run_stage does; returns the SHA-256 of its files."""
    job = Job(spec_of(world, **changes), save_every=0.0, root=root)
    run(job)
    manifest = json.loads((job.folder / "manifest.json").read_text())
    return {name: entry["sha256"] for name, entry in manifest["files"].items()}, manifest["facts"]


@pytest.mark.parametrize("die_after", [0, 1, 3, 5])
def test_a_killed_encoding_ends_with_the_same_bits(world, tmp_path, monkeypatch, die_after):
    whole, facts = make(world, tmp_path)
    assert set(whole) == {"passages.npy", CHUNK_OFFSETS}
    assert facts["texts"] > 25
    calls, vectors = [], Side.vectors

    def dying(self, rows, budget, each):
        calls.append(rows)
        if len(calls) == die_after + 1:
            raise KeyboardInterrupt
        return vectors(self, rows, budget, each)

    with monkeypatch.context() as patch:
        patch.setattr(Side, "vectors", dying)
        with pytest.raises(KeyboardInterrupt):
            make(world, tmp_path, key="f" * 12)
    assert make(world, tmp_path, key="f" * 12)[0] == whole


@pytest.mark.parametrize("count", [2, 3])
def test_joined_shards_are_the_whole(world, tmp_path, count):
    whole, _ = make(world, tmp_path)
    rows = []
    for number in range(1, count + 1):
        job = Job(spec_of(world, shard=f"{number}-of-{count}"), save_every=0.0, root=tmp_path)
        run_shard(job)
        rows.append(len(np.load(job.resume / "passages.npy")))
    assert min(rows) > 5 and sum(rows) > 25, "chunks, in several blocks a shard"
    joined, facts = make(world, tmp_path, shards=count)
    assert joined == whole and [last - first for first, last in (s["rows"] for s in facts["shards"])] == rows
