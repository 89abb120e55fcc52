"""Passages encoded in shards: the bits of one job, whatever the number of shards and wherever one was killed."""

import errno
import json
import logging

import numpy as np
import pytest

from encoder_world import PASSAGES, counted, make_collection, make_pretrained, make_tokens, source_folder
from stages import roles_of
from teleport.encoder import encode
from teleport.running import log as log_module
from teleport.running import shards
from teleport.running.blocks import RowBlocks
from teleport.running.job import Job
from teleport.running.run import run, run_shard
from teleport.running.shards import shard_rows

SETTINGS = {"of": "passages", "max_query_tokens": 16, "max_passage_tokens": 48, "precision": "fp32"}
BLOCK = 4


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """So that few passages fill several."""
    monkeypatch.setitem(encode.BLOCK_TEXTS, "cpu", BLOCK)
    monkeypatch.setitem(encode.TOKEN_BUDGET["encode"], "cpu", 96)


@pytest.fixture
def world(stages, tmp_path):
    """Upstream jobs: 18 passages, so five blocks of which the last is not full."""
    checkpoint = make_pretrained(stages, source_folder(tmp_path / "source"), pooling="mean", normalize=True)
    collection = make_collection(stages, PASSAGES * 3)
    return {"collection": collection, "tokens": make_tokens(stages, collection, checkpoint), "checkpoint": checkpoint}


def spec_of(world, **changes):
    inputs = {role: f"{job.kind}/{job.key}" for role, job in roles_of(world).items()}
    return {"kind": "encode", "key": "e" * 12, "code": "test", "settings": SETTINGS, "inputs": inputs} | changes


def make_shard(world, root, shard, **changes):
    """Run one shard's job as run_stage does."""
    job = Job(spec_of(world, shard=shard, **changes), save_every=0.0, root=root)
    run_shard(job)
    return job


def join(world, root, count, **changes):
    """Run the job that joins; returns its folder and its manifest."""
    job = Job(spec_of(world, shards=count, **changes), save_every=0.0, root=root)
    run(job)
    return job.folder, json.loads((job.folder / "manifest.json").read_text())


def names(count):
    return [f"{number}-of-{count}" for number in range(1, count + 1)]


def files(manifest):
    return {name: entry["sha256"] for name, entry in manifest["files"].items()}


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, [(0, 18)]),
        (2, [(0, 8), (8, 18)]),
        (3, [(0, 4), (4, 12), (12, 18)]),
        (5, [(0, 4), (4, 8), (8, 12), (12, 16), (16, 18)]),
        (7, [(0, 0), (0, 4), (4, 8), (8, 8), (8, 12), (12, 16), (16, 18)]),
    ],
)
def test_shards_are_runs_of_whole_blocks(count, expected):
    assert [shard_rows(18, BLOCK, name) for name in names(count)] == expected


def test_no_passages_make_empty_shards():
    assert [shard_rows(0, BLOCK, name) for name in names(2)] == [(0, 0), (0, 0)]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_joined_is_whole(world, tmp_path, monkeypatch, count):
    _, whole = join(world, tmp_path, 1)
    encoded = []
    for name in names(count):
        with monkeypatch.context() as patch:
            seen = counted(patch)
            job = make_shard(world, tmp_path, name)
            encoded.append(sum(seen))
        assert len(np.load(job.resume / "passages.npy")) == encoded[-1]
    assert encoded == [last - first for first, last in (shard_rows(18, BLOCK, name) for name in names(count))]
    with monkeypatch.context() as patch:
        seen = counted(patch)
        folder, joined = join(world, tmp_path, count)
        assert not seen, "all passages are the shards'"
    assert files(joined) == files(whole) and len(files(joined)) == 1
    assert not (tmp_path / "results/shards/encode" / ("e" * 12)).exists()
    assert [shard["rows"] for shard in joined["facts"]["shards"]] == [
        list(shard_rows(18, BLOCK, name)) for name in names(count)
    ]
    counts = ("texts", "real_tokens", "dim", "dtype")
    assert [joined["facts"][key] for key in counts] == [whole["facts"][key] for key in counts]


def test_the_joined_stage_keeps_the_warnings_of_its_shards(world, tmp_path, monkeypatch):
    """Each once; the manifests of the shards are deleted."""
    kept = log_module.Kept(logging.WARNING)
    log_module.log.addHandler(kept)
    try:
        for name in names(2):
            monkeypatch.setattr(log_module, "warnings", ["a text is cut", f"of {name}"])
            make_shard(world, tmp_path, name)
        monkeypatch.setattr(log_module, "warnings", [])  # of the process that joins
        _, joined = join(world, tmp_path, 2)
    finally:
        log_module.log.removeHandler(kept)
    assert joined["provenance"]["warnings"] == ["a text is cut", "of 1-of-2", "of 2-of-2"]


def test_time_is_that_of_all_shards(world, tmp_path, monkeypatch):
    moments = iter(range(0, 10**6, 10))
    monkeypatch.setattr(encode.time, "monotonic", lambda: next(moments))
    for name in names(2):
        make_shard(world, tmp_path, name)
    facts = join(world, tmp_path, 2)[1]["facts"]
    by_shard = [shard["encode_seconds"] for shard in facts["shards"]]
    assert facts["earlier_seconds"] == facts["encode_seconds"] == sum(by_shard) > 0
    assert facts["texts_per_second"] == round(18 / sum(by_shard), 1)


def test_a_killed_shard_continues_and_a_finished_one_is_not_encoded_again(world, tmp_path, monkeypatch):
    whole = files(join(world, tmp_path, 1)[1])
    with monkeypatch.context() as patch:
        one_block = counted(patch)
        make_shard(world, tmp_path, "1-of-5")
    with monkeypatch.context() as patch:
        counted(patch, die_after=len(one_block))
        with pytest.raises(KeyboardInterrupt):
            make_shard(world, tmp_path, "1-of-2")
    assert not (tmp_path / "results/shards/encode" / ("e" * 12) / "1-of-2" / "manifest.json").exists()
    with monkeypatch.context() as patch:
        seen = counted(patch)
        make_shard(world, tmp_path, "1-of-2")
        assert sum(seen) == BLOCK  # the second of its two blocks
        make_shard(world, tmp_path, "1-of-2")
        assert sum(seen) == BLOCK
    make_shard(world, tmp_path, "2-of-2")
    assert files(join(world, tmp_path, 2)[1]) == whole


def test_a_killed_join_goes_on_at_its_shard_without_the_disk_twice(world, tmp_path, monkeypatch):
    whole = files(join(world, tmp_path, 1)[1])
    folders = [make_shard(world, tmp_path, name).resume for name in names(3)]
    checks, real = [], shards.check_file

    def die_at_the_second(path, expected, **how):
        checks.append(path)
        if len(checks) == 2:
            raise KeyboardInterrupt
        real(path, expected, **how)

    monkeypatch.setattr(shards, "check_file", die_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        join(world, tmp_path, 3)
    assert [(folder / "passages.npy").exists() for folder in folders] == [False, True, True]
    seen = counted(monkeypatch)
    assert files(join(world, tmp_path, 3)[1]) == whole
    assert not seen and [path.parent.name for path in checks] == ["1-of-3", "2-of-3", "2-of-3", "3-of-3"]


def test_a_disk_that_is_full_when_shards_are_joined_is_an_error_and_loses_nothing(world, tmp_path, monkeypatch):
    whole = files(join(world, tmp_path, 1)[1])
    folders = [make_shard(world, tmp_path, name).resume for name in names(2)]
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(RowBlocks, "reserve", refuse)
        join(world, tmp_path, 2)
    assert all((folder / "passages.npy").exists() for folder in folders)
    assert files(join(world, tmp_path, 2)[1]) == whole


def refuse(blocks, start, stop):
    raise OSError(errno.ENOSPC, "No space left on device")


def flip_a_byte(folder):
    data = bytearray((folder / "passages.npy").read_bytes())
    data[-3] ^= 1
    (folder / "passages.npy").write_bytes(data)


def edit_manifest(**facts):
    def edit(folder):
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(manifest | {"facts": manifest["facts"] | facts}))

    return edit


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (flip_a_byte, r"2-of-3/passages.npy .*SHA-256.*Delete the folder .*2-of-3 and"),
        (lambda f: (f / "passages.npy").write_bytes(b"x"), "2-of-3/passages.npy has 1 bytes, but"),
        (lambda f: (f / "passages.npy").unlink(), "2-of-3/passages.npy is missing.*Delete"),
        (lambda f: (f / "manifest.json").unlink(), "2-of-3/manifest.json is missing.*Delete the folder .*2-of-3 and"),
        (lambda f: (f / "manifest.json").write_text("{"), "2-of-3/manifest.json .*JSON.*Delete"),
        (edit_manifest(dtype="bfloat16"), "2-of-3 .*bfloat16 on cpu, .*float32 on cpu"),
        (edit_manifest(rows=[0, 12]), "2-of-3 begins at row 0 instead of 4. Delete the folder"),
        (edit_manifest(rows=[4, 13]), "3-of-3 begins at row 12 instead of 13"),
    ],
)
def test_an_unusable_shard_is_refused_with_the_remedy(world, tmp_path, spoil, message):
    folders = [make_shard(world, tmp_path, name).resume for name in names(3)]
    spoil(folders[1])
    with pytest.raises(ValueError, match=message):
        join(world, tmp_path, 3)
    assert not (tmp_path / "results/stages/encode" / ("e" * 12) / "manifest.json").exists()


def test_missing_rows_at_the_end_are_refused(world, tmp_path):
    folders = [make_shard(world, tmp_path, name).resume for name in names(2)]
    edit_manifest(rows=[8, 16])(folders[1])
    with pytest.raises(ValueError, match="have 16 of 18 rows"):
        join(world, tmp_path, 2)


def test_a_shard_of_other_code_is_refused(world, tmp_path):
    make_shard(world, tmp_path, "1-of-2")
    make_shard(world, tmp_path, "2-of-2", code="edited")
    with pytest.raises(ValueError, match="2-of-2/manifest.json was"):
        join(world, tmp_path, 2)
