"""The arrays that stages pass on: ragged lists, retrievals, and .npy files, written whole or appended to."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

CHUNK_OFFSETS = "passages.offsets.npy"  # beside the vectors, where passages are encoded in several chunks


def save_array(path, array):
    """Write an array as .npy to exactly this path: given a path, np.save would append .npy to the name of an output."""
    with open(path, "wb") as file:
        np.save(file, array, allow_pickle=False)


class GrowingArray:
    """A one-dimensional .npy file that is appended to, for arrays that may not fit in memory. numpy leaves room in the
    header for the length to grow, so the true length is written last, into the same bytes."""

    def __init__(self, path, dtype):
        self.file, self.dtype, self.length = open(path, "wb"), np.dtype(dtype), 0  # noqa: SIM115 (closed by `close`)
        self.write_header()

    def write_header(self):
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        self.file.seek(0)
        np.lib.format.write_array_header_1_0(self.file, header)

    def append(self, values):
        """Add the values of an array, converted to the file's type."""
        values = np.ascontiguousarray(values, self.dtype)
        self.file.write(values.data)
        self.length += values.size

    def close(self):
        """Write the true length; the file is complete only then."""
        self.write_header()
        self.file.close()


@dataclass(frozen=True)
class Ragged:
    """Lists of different lengths in two flat arrays: list `row` is values[offsets[row] : offsets[row + 1]]. offsets:
    int64 [n + 1]; values: any type, also a memory map"""

    offsets: np.ndarray
    values: np.ndarray

    @classmethod
    def open(cls, offsets_path, values_path):
        """The lists of two .npy files; the values stay on disk as a memory map."""
        return cls(np.load(offsets_path), np.load(values_path, mmap_mode="r"))

    @classmethod
    def grouped(cls, rows, values, number):
        """Lists 0 to number - 1: each of the `values` goes into the list that `rows` gives it, in the order in which
        they come."""
        counts = np.bincount(rows, minlength=number)
        return cls(offsets_of(counts), values[np.argsort(rows, kind="stable")])

    def __len__(self):
        return len(self.offsets) - 1

    def __getitem__(self, row):
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self):
        """How many values each list has, int64 [n]."""
        return np.diff(self.offsets)

    @property
    def rows(self):
        """The list that each value is in, int64 [all values]."""
        return np.repeat(np.arange(len(self)), self.lengths)


def places_of(offsets, rows):
    """Return the positions of the values of the lists `rows` in the flat array, list after list (int64)."""
    lengths = offsets[rows + 1] - offsets[rows]
    shifts = offsets[rows] - (np.cumsum(lengths) - lengths)
    return np.repeat(shifts, lengths) + np.arange(lengths.sum())


def pair_keys(rows, values):
    """A number (int64) for each pair of a row and a value, both from 0 to 2^31 - 1; sorted they ascend by row, then by
    value. `rows_and_values` takes them apart."""
    return rows.astype(np.int64) << 32 | values


def rows_and_values(keys):
    """(rows int64, values int32) of `pair_keys`."""
    return keys >> 32, (keys & (2**32 - 1)).astype(np.int32)


def are_first(values_QX):
    """bool [Q, X]: no earlier value of the row is the same. values_QX: int32, from 0 on"""
    keys_QX = values_QX.astype(np.int64) << 32 | np.arange(values_QX.shape[1])
    keys_QX.sort(axis=1)  # by value, then by column
    new_QX = np.diff(keys_QX >> 32, axis=1, prepend=-1) != 0
    first_QX = np.empty(values_QX.shape, bool)
    np.put_along_axis(first_QX, keys_QX & (2**32 - 1), new_QX, axis=1)
    return first_QX


def slots_within(lengths_Q):
    """bool [Q, S], S the longest length: True in the first lengths_Q[q] slots of row q."""
    return np.arange(lengths_Q.max(initial=0)) < lengths_Q[:, None]


def in_slots(lengths_Q, values, empty=0):
    """[Q, S]: the first lengths_Q[q] slots of row q take the next of all `values`; the others are `empty`."""
    within_QS = slots_within(lengths_Q)
    values_QS = np.full(within_QS.shape, empty, values.dtype)
    values_QS[within_QS] = values.ravel()
    return values_QS


def offsets_of(lengths):
    """int64 [n + 1]: where each of n lists begins in a flat array, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def open_passages(job, role="passages"):
    """(passage vectors of the `encode` stage, memory-mapped float32 or float16 [rows, D]; chunk offsets). Offsets are
    int64 [passages + 1]: rows offsets[i] to offsets[i + 1] are the chunks of passage i (`encoder.batches.Chunks`). They
    are None if row i is passage i."""
    vectors = np.load(job.input(role, "passages.npy"), mmap_mode="r")
    chunked = CHUNK_OFFSETS in job.inputs[role].manifest["files"]
    return vectors, np.load(job.input(role, CHUNK_OFFSETS)) if chunked else None


class Run(NamedTuple):
    """A retrieval: the ranked passages of some queries, best first. ids: int32 [lines, depth], -1 where a list ends
    early; scores: float32, of the same shape; rows: int32 [lines], the query of each line. A query may have no line, or
    several."""

    ids: np.ndarray
    scores: np.ndarray
    rows: np.ndarray

    @classmethod
    def read(cls, job, role):
        """The run that the stage in `role` made, memory-mapped."""
        return cls(*(np.load(job.input(role, f"{name}.npy"), mmap_mode="r") for name in cls._fields))

    def write(self, job):
        """Write ids.npy, scores.npy and rows.npy as outputs of a job."""
        for name, dtype in zip(self._fields, (np.int32, np.float32, np.int32), strict=True):
            save_array(job.output(f"{name}.npy"), getattr(self, name).astype(dtype, copy=False))
