"""Ragged lists, retrievals, and .npy files against plain loops and numpy itself."""

import numpy as np
import pytest

from teleport.arrays import GrowingArray, Ragged, Run, offsets_of, save_array

LISTS = [[7, 8], [], [9, 9, 1], [], [2]]


def ragged(lists=LISTS, dtype=np.int32):
    return Ragged(offsets_of([len(one) for one in lists]), np.array([v for one in lists for v in one], dtype))


def test_lists_lengths_and_rows():
    lists = ragged()
    assert len(lists) == 5 and [one.tolist() for one in lists] == [lists[row].tolist() for row in range(5)] == LISTS
    assert lists.lengths.tolist() == [2, 0, 3, 0, 1] and lists.lengths.dtype == np.int64
    assert lists.rows.tolist() == [0, 0, 2, 2, 2, 4] and lists.rows.dtype == np.int64


@pytest.mark.parametrize("seed", range(4))
def test_grouped_is_a_loop_that_appends(seed):
    """With enough values of each list that an unstable sort would mix them up."""
    rng = np.random.default_rng(seed)
    rows, values = rng.integers(0, 9, 800).astype(np.int32), rng.integers(0, 1000, 800).astype(np.int32)
    rows[rows == 4] = 3
    expected = [[] for _ in range(12)]  # list 4 and the last three stay empty
    for row, value in zip(rows, values, strict=True):
        expected[row].append(value)
    lists = Ragged.grouped(rows, values, 12)
    assert [one.tolist() for one in lists] == expected
    assert (lists.offsets.dtype, lists.values.dtype) == (np.int64, np.int32)
    again = Ragged.grouped(lists.rows, lists.values, 12)
    assert [one.tolist() for one in again] == expected, "grouping what is grouped changes nothing"


@pytest.mark.parametrize("number", [0, 3])
def test_grouped_without_values(number):
    lists = Ragged.grouped(np.zeros(0, np.int32), np.zeros(0, np.int32), number)
    assert len(lists) == number and lists.offsets.tolist() == [0] * (number + 1) and not lists.rows.size


def test_opened_lists_stay_on_disk(tmp_path):
    lists = ragged(dtype=np.uint16)
    save_array(tmp_path / "offsets.npy", lists.offsets)
    save_array(tmp_path / "values.npy", lists.values)
    opened = Ragged.open(tmp_path / "offsets.npy", tmp_path / "values.npy")
    assert [one.tolist() for one in opened] == LISTS
    assert isinstance(opened.values, np.memmap) and opened.values.dtype == np.uint16


@pytest.mark.parametrize("lengths, expected", [([], [0]), ([0], [0, 0]), ([2, 0, 3], [0, 2, 2, 5])])
def test_offsets(lengths, expected):
    offsets = offsets_of(lengths)
    assert offsets.tolist() == expected and offsets.dtype == np.int64


def test_offsets_of_small_integers_do_not_overflow():
    assert offsets_of(np.full(3, 200, np.uint8)).tolist() == [0, 200, 400, 600]


def test_a_retrieval_is_read_as_it_was_written(stages):
    written = Run(np.array([[3, 1], [2, -1]]), np.array([[0.5, 0.25], [-1, 0]]), np.array([4, 4]))
    job = stages.make("retrieve")
    written.write(job)
    assert sorted(job.outputs) == ["ids.npy", "rows.npy", "scores.npy"]
    found = Run.read(stages.make("evaluate", inputs={"run": stages.finish(job)}), "run")
    for array, expected, dtype in zip(found, written, (np.int32, np.float32, np.int32), strict=True):
        assert array.tolist() == expected.tolist() and array.dtype == dtype and isinstance(array, np.memmap)
    assert (job.folder / "ids.npy").is_file()


def test_arrays_are_saved_under_exactly_the_given_name(tmp_path):
    save_array(tmp_path / "a.npy.part", np.arange(3))
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy.part"]
    assert np.load(tmp_path / "a.npy.part").tolist() == [0, 1, 2]


def test_objects_are_not_saved(tmp_path):
    with pytest.raises(ValueError, match="[Pp]ickle"):
        save_array(tmp_path / "a.npy", np.array([{}], object))


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32])
@pytest.mark.parametrize("sizes", [[], [0], [3], [5, 0, 100_000, 1]])
def test_a_growing_array_is_the_file_that_numpy_writes(tmp_path, dtype, sizes):
    parts = [np.arange(size) % 1000 for size in sizes]
    growing = GrowingArray(tmp_path / "growing.npy", dtype)
    for part in parts:
        growing.append(part)
    growing.close()
    whole = np.concatenate([np.zeros(0, int), *parts]).astype(dtype)
    save_array(tmp_path / "whole.npy", whole)
    assert growing.length == len(whole)
    assert (tmp_path / "growing.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_a_growing_array_takes_every_other_value_of_an_array(tmp_path):
    growing = GrowingArray(tmp_path / "growing.npy", np.int32)
    growing.append(np.arange(10, dtype=np.int32)[::2])
    growing.close()
    assert np.load(tmp_path / "growing.npy").tolist() == [0, 2, 4, 6, 8]
