"""Arrays filled block by block: what a killed run leaves, and where the next one goes on."""

import errno
import json
import os
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from teleport.running import blocks
from teleport.running.blocks import RowBlocks
from teleport.running.files import read_saved

ARRAYS = {"ids.npy": (np.int32, (10, 2)), "scores.npy": (np.float32, (10, 2))}


@pytest.fixture
def job(tmp_path):
    (tmp_path / "resume").mkdir()
    return SimpleNamespace(resume=tmp_path / "resume", save_every=0.0, output=lambda name: tmp_path / name)


def fill(job, stop_at=None):
    """Fill 10 rows in blocks of 4; returns the starts of the blocks that this run computed."""
    rows, starts = RowBlocks(job, ARRAYS, block_rows=4), []
    for start, stop in rows:
        if start == stop_at:
            raise KeyboardInterrupt
        starts.append(start)
        rows["ids.npy"][start:stop] = np.arange(start, stop)[:, None]
        rows["scores.npy"][start:stop] = -1.5
    rows.publish()
    return starts


def test_all_rows_are_filled_and_published(job, tmp_path):
    assert fill(job) == [0, 4, 8]
    np.testing.assert_array_equal(
        np.load(tmp_path / "ids.npy"), np.repeat(np.arange(10, dtype=np.int32)[:, None], 2, 1)
    )
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), np.full((10, 2), -1.5, np.float32))


def test_a_killed_run_goes_on_behind_its_last_saved_block(job):
    with pytest.raises(KeyboardInterrupt):
        fill(job, stop_at=8)
    assert fill(job) == [8]


def test_the_seconds_of_saved_blocks_are_kept(job, monkeypatch):
    """Of all processes; those of blocks that are computed again are not."""
    clock = iter(range(0, 10_000, 10))  # ten seconds between any two looks at it
    monkeypatch.setattr(blocks, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    saved = []
    for stop_at in (4, 8, None):
        with suppress(KeyboardInterrupt):
            fill(job, stop_at)
        saved.append(read_saved(job.resume / "ids.npy.json")["seconds"])
        assert RowBlocks(job, ARRAYS, block_rows=4).earlier == saved[-1]
    assert 0 < saved[0] < saved[1] < saved[2]


def test_blocks_not_saved_yet_are_computed_again(job):
    job.save_every = 1000.0
    with pytest.raises(KeyboardInterrupt):
        fill(job, stop_at=8)
    assert fill(job) == [0, 4, 8]


def test_rows_that_a_thread_writes_are_counted_when_they_are_there(job):
    blocks, counted = RowBlocks(job, ARRAYS, block_rows=4), []

    def write(start, stop):
        time.sleep(0.05)  # meanwhile the next block is asked for
        counted.append(read_saved(blocks.counter).get("done", 0))
        blocks["ids.npy"][start:stop] = 1

    for start, stop in blocks:
        blocks.beside(partial(write, start, stop))
    assert counted == [0, 4, 8] and blocks["ids.npy"].all() and read_saved(blocks.counter)["done"] == 10


def test_a_block_whose_writing_fails_is_not_counted(job):
    def fail():
        raise ValueError("too large for float16")

    blocks = RowBlocks(job, ARRAYS, block_rows=4)
    with pytest.raises(ValueError, match="too large"):
        for _ in blocks:
            blocks.beside(fail)
    assert read_saved(blocks.counter) == {}


def test_a_kill_after_publishing_costs_nothing(job, tmp_path):
    fill(job)
    (tmp_path / "ids.npy").unlink()
    (tmp_path / "scores.npy").unlink()
    assert fill(job) == []
    assert np.load(tmp_path / "ids.npy")[9].tolist() == [9, 9]


def test_another_plan_starts_anew(job):
    with pytest.raises(KeyboardInterrupt):
        fill(job, stop_at=8)
    state = json.loads((job.resume / "ids.npy.json").read_text())
    assert state["done"] == 8
    state["plan"]["block_rows"] = 5
    (job.resume / "ids.npy.json").write_text(json.dumps(state))
    assert fill(job) == [0, 4, 8]


def test_rows_made_otherwise_are_made_anew(job):
    for made, done in (("bfloat16", 0), ("bfloat16", 4), ("float32", 0)):
        blocks = RowBlocks(job, ARRAYS, block_rows=4, made={"dtype": made})
        assert blocks.done == done
        with pytest.raises(KeyboardInterrupt):
            for start, _ in blocks:
                if start == 4:
                    raise KeyboardInterrupt


def test_rows_of_an_attempt_in_between_that_saved_nothing_are_not_counted(job):
    """Three attempts, on a GPU, on the CPU and on the GPU again: the second begins the arrays with zeros."""
    for made, saves, done in (("cuda", 0.0, 0), ("cpu", 1000.0, 0), ("cuda", 0.0, 0)):
        job.save_every = saves
        blocks = RowBlocks(job, ARRAYS, block_rows=4, made=made)
        assert blocks.done == done
        with pytest.raises(KeyboardInterrupt):
            for start, stop in blocks:
                blocks["ids.npy"][start:stop] = 1
                if start == 4:
                    raise KeyboardInterrupt


@pytest.mark.parametrize("torn", ["", '{"plan": {', "{}"])
def test_a_torn_count_starts_anew(job, torn):
    with pytest.raises(KeyboardInterrupt):
        fill(job, stop_at=8)
    (job.resume / "ids.npy.json").write_text(torn)
    assert fill(job) == [0, 4, 8]


def test_the_disk_has_room_for_a_block_before_it_is_filled(job):
    blocks, taken = RowBlocks(job, {"rows.npy": (np.float32, (2**16, 8))}, block_rows=2**15), []
    for _ in blocks:
        taken.append(512 * (job.resume / "rows.npy").stat().st_blocks)
    assert taken[0] >= 2**20 and taken[1] >= 2**21 > taken[0]


def test_a_full_disk_is_an_error_and_what_was_done_is_kept(job, monkeypatch):
    blocks = RowBlocks(job, ARRAYS, block_rows=4)
    reserve = blocks.reserve

    def refuse(start, stop):
        if start == 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        reserve(start, stop)

    monkeypatch.setattr(blocks, "reserve", refuse)
    with pytest.raises(OSError, match="No space"):
        for start, stop in blocks:
            for array in blocks.arrays.values():
                array[start:stop] = 1
    assert RowBlocks(job, ARRAYS, block_rows=4).done == 8


def test_a_missing_array_starts_anew(job):
    with pytest.raises(KeyboardInterrupt):
        fill(job, stop_at=8)
    (job.resume / "scores.npy").unlink()
    assert fill(job) == [0, 4, 8]


@pytest.mark.parametrize("calls", [["link"], ["link", "rename", "replace"]])
def test_works_without_hard_links_and_across_disks(job, tmp_path, monkeypatch, calls):
    def refusing(system):
        def call(source, to):
            if Path(source).parent == job.resume != Path(to).parent:
                raise OSError(errno.EXDEV, "Invalid cross-device link")
            system(source, to)

        return call

    for name in calls:
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    assert fill(job) == [0, 4, 8]
    assert np.load(tmp_path / "ids.npy")[9].tolist() == [9, 9]


def test_rows_are_on_the_disk_before_the_count_that_says_so(job, monkeypatch):
    seen, flush = [], np.memmap.flush
    monkeypatch.setattr(np.memmap, "flush", lambda array: seen.append("rows") or flush(array))
    monkeypatch.setattr(blocks, "write_json", lambda *_: seen.append("count"))
    fill(job)
    assert seen[:6] == ["rows", "rows", "count"] * 2 and seen.count("count") == 4
