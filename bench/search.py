"""Exact search: the stage `retrieve` against faiss's flat index, whose ties and last bits fall as they may.

    python bench/search.py [--passages 20000] [--queries 500] [--dim 384] [--depth 200]

The stage scores candidates again in float64 and proves the last rank, so it costs more than faiss alone.
"""

import numpy as np
import torch

from rounds import interleaved, parser, report
from teleport.encoder.precision import pick_device
from teleport.search.flat import FaissFlat, largest_norm, search
from teleport.search.flat_torch import TorchFlat


def unit_vectors(count, dim, seed):
    """Random float32 vectors of length 1, [count, dim]."""
    vectors = np.random.default_rng(seed).standard_normal((count, dim), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def faiss_index(vectors, threads):
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return index


def main(arguments=None):
    sizes = {"passages": 20000, "queries": 500, "dim": 384, "depth": 200}
    arguments = parser("Exact search against faiss.", **sizes).parse_args(arguments)
    torch.set_num_threads(arguments.threads)
    passages, queries = (unit_vectors(n, arguments.dim, n) for n in (arguments.passages, arguments.queries))
    norm, peer = largest_norm(passages), faiss_index(passages, arguments.threads)
    device = pick_device()
    engines = {"faiss": FaissFlat(passages, arguments.threads), f"torch on {device.type}": TorchFlat(passages, device)}
    depth = arguments.depth
    variants = {"faiss IndexFlatIP": lambda: peer.search(queries, depth)[1]}
    for name, engine in engines.items():
        variants[f"stage, {name}"] = lambda engine=engine: search(engine, queries, depth, norm)[0]
    reference = variants["faiss IndexFlatIP"]()
    overlap = {
        f"same passages, {name}": float(np.mean([np.isin(a, b).mean() for a, b in zip(run(), reference, strict=True)]))
        for name, run in variants.items()
    }
    seconds = interleaved(variants, arguments.rounds)
    report("search", seconds, ("faiss IndexFlatIP",), arguments.queries, "queries", arguments, **overlap)


if __name__ == "__main__":
    main()
