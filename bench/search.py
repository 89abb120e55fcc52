"""Exact search: the engines of `retrieve` against faiss's flat index, whose ties and last bits fall as they may.

    python bench/search.py [--passages 400000] [--queries 400] [--dim 768] [--depth 200] [--threads 1]
    python bench/search.py --vectors results/stages/encode/KEY     # of a collection, instead of clusters

Engines score candidates again in float64 and prove the last rank. `largest difference` compares their ids with
faiss's: how far apart, in exact scores, two passages are at most that changed places (0: only ties did).
Opening an index (faiss: copying the vectors; int8: reducing them) is not timed. With one thread the time is that of
the process, which a busy machine disturbs less.
"""

import time
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from rounds import interleaved, parser, report
from teleport.encoder.precision import computes_in_bf16
from teleport.search.engines import computes_in_int8
from teleport.search.flat import FaissFlat
from teleport.search.flat_cpu import ReducedFlat
from teleport.search.flat_torch import TorchFlat
from teleport.search.sharded import Sharded

CLUSTERS = 500


def unit_vectors(count, dim, seed):
    """Random float32 vectors of length 1, [count, dim]."""
    vectors = np.random.default_rng(seed).standard_normal((count, dim), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def clustered_vectors(count, dim, seed):
    """Vectors of length 1 around common centres, as texts lie around topics, [count, dim]."""
    centres = unit_vectors(CLUSTERS, dim, 0)
    numbers = np.random.default_rng(seed).integers(0, CLUSTERS, count)
    vectors = centres[numbers] + unit_vectors(count, dim, seed + 1)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def read_vectors(folder, queries):
    """(passages, at most `queries` queries of the training split) of a finished `encode` stage."""
    passages, lines = (np.load(folder / f"{name}.npy") for name in ("passages", "queries.train"))
    return passages, lines[:queries].copy()


def faiss_index(vectors, threads):
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return index


def open_engines(passages, threads):
    """{name: index} of what this machine can run fast."""
    engines = {"fp32 (faiss)": lambda _, part: FaissFlat(part, threads)}
    if computes_in_int8():
        engines["int8"] = lambda _, part: ReducedFlat(part, threads, "int8")
    if computes_in_bf16(torch.device("cpu")):
        engines["bf16"] = lambda _, part: ReducedFlat(part, threads, "bf16")
    indexes = {name: Sharded(passages, 1, open_shard) for name, open_shard in engines.items()}
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        indexes["CUDA"] = Sharded(passages, count, lambda n, part: TorchFlat(part, f"cuda:{n}", threads))
    return indexes


def agreement(ids_QK, reference_QK, passages, queries):
    """(share of common passages, share of equal ranks, largest exact difference of two passages at the same rank)."""
    overlap = np.mean([np.isin(a, b).mean() for a, b in zip(ids_QK, reference_QK, strict=True)])
    rows, ranks = np.nonzero(ids_QK != reference_QK)
    exact = [
        np.vecdot(passages[ids[rows, ranks]].astype(np.float64), queries[rows].astype(np.float64))
        for ids in (ids_QK, reference_QK)
    ]
    return float(overlap), float((ids_QK == reference_QK).mean()), float(np.abs(exact[0] - exact[1]).max(initial=0))


def main(arguments=None):
    made = parser("Exact search against faiss.", passages=400_000, queries=400, dim=768, depth=200)
    made.add_argument("--vectors", type=Path, help="folder of a finished stage `encode`, instead of made vectors")
    arguments = made.parse_args(arguments)
    torch.set_num_threads(arguments.threads)
    if arguments.vectors:
        passages, queries = read_vectors(arguments.vectors, arguments.queries)
    else:
        passages, queries = (clustered_vectors(n, arguments.dim, n) for n in (arguments.passages, arguments.queries))
    peer, depth = faiss_index(passages, arguments.threads), arguments.depth
    variants = {"faiss IndexFlatIP": lambda: peer.search(queries, depth)[1]}
    for name, index in open_engines(passages, arguments.threads).items():
        variants[f"stage, {name}"] = lambda index=index: index.search(queries, depth)[0]
    figures = {}
    with threadpool_limits(arguments.threads):
        reference = variants["faiss IndexFlatIP"]()
        for name, run in list(variants.items())[1:]:
            common, equal, difference = agreement(run(), reference, passages, queries)
            figures |= {f"same passages, {name}": common, f"same ranks, {name}": equal}
            figures[f"largest difference, {name}"] = difference
        clock = time.process_time if arguments.threads == 1 else time.perf_counter
        seconds = interleaved(variants, arguments.rounds, clock)
    report("search", seconds, ("faiss IndexFlatIP",), len(queries), "queries", arguments, **figures)


if __name__ == "__main__":
    main()
