"""Exact search with an engine that is given, or with an engine for each of some parts."""

from teleport.cpu.int8 import Int8Flat
from teleport.search.flat import Exact
from teleport.search.flat_faiss import FaissFlat, FaissOnGpu
from teleport.search.flat_torch import TorchFlat

EVERYTHING = 2**40  # room for all vectors


def faiss_on_gpu(vectors, most, number=None):
    """faiss's engine of a GPU on that of a number, or on the CPU. A kit without faiss collects these tests too."""
    import faiss

    from teleport.search.engines import on_gpu

    index = faiss.IndexFlatIP(vectors.shape[1]) if number is None else on_gpu(number, vectors)
    return FaissOnGpu(vectors, 1, index, most)


ENGINES = {
    "faiss": lambda number, part, most: FaissFlat(part, 1, most),
    "int8": lambda number, part, most: Int8Flat(part, 1, EVERYTHING, most),
    "faiss on a GPU": lambda number, part, most: faiss_on_gpu(part, most),
    "torch": lambda number, part, most: TorchFlat(part, "cpu", 1, 0, most),
}


def search(engine, queries_QD, depth):
    """(ids, scores) with one engine of all passages."""
    return Exact(engine.vectors, 1, lambda *_: engine, engine.threads).search(queries_QD, depth)
