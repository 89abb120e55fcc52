"""Vectors on the disk: float32, or float16, which takes half the room and is read as float32 (encoder.vectors)."""

import numpy as np


class Halves:
    """A float16 array [rows, dim] that whoever reads it takes for float32.

    A slice is `Halves` again, so that nothing is read before it is wanted; rows by number, and what numpy makes of it,
    are float32. `stored` is the float16 array itself.
    """

    def __init__(self, stored):
        self.stored = stored

    shape = property(lambda self: self.stored.shape)
    size = property(lambda self: self.stored.size)
    nbytes = property(lambda self: self.stored.nbytes)

    def __len__(self):
        return len(self.stored)

    def __getitem__(self, rows):
        return Halves(self.stored[rows]) if isinstance(rows, slice) else self.stored[rows].astype(np.float32)

    def __array__(self, dtype=None, copy=None):
        return self.stored.astype(np.float32 if dtype is None else dtype)


def open_vectors(path):
    """The vectors in a .npy file, memory-mapped: float32 [rows, dim], or `Halves` of them."""
    array = np.load(path, mmap_mode="r")
    return Halves(array) if array.dtype == np.float16 else array


def as_stored(vectors):
    """The array of `open_vectors` in the numbers that are on the disk; a memory map's own class takes longer to use."""
    return np.asarray(vectors.stored if isinstance(vectors, Halves) else vectors)
