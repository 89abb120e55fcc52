"""Exact search with an engine that is given, or with an engine for each of some parts."""

from teleport.cpu.int8 import Int8Flat
from teleport.search.flat import Exact, FaissFlat
from teleport.search.flat_torch import TorchFlat

EVERYTHING = 2**40  # room for all vectors
ENGINES = {
    "faiss": lambda number, part, most: FaissFlat(part, 1, most),
    "int8": lambda number, part, most: Int8Flat(part, 1, EVERYTHING, most),
    "torch": lambda number, part, most: TorchFlat(part, "cpu", 1, 0, most),
}


def search(engine, queries_QD, depth):
    """(ids, scores) with one engine of all passages."""
    return Exact(engine.vectors, 1, lambda *_: engine, engine.threads).search(queries_QD, depth)
