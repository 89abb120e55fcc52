"""Exact search: the stage `retrieve` against faiss's flat index, and against a product with torch.topk.

    python bench/search.py [--passages 400000] [--queries 400] [--dim 768] [--depth 200] [--threads 1]
    python bench/search.py --lengths lognormal    # as those of an encoder that does not normalise
    python bench/search.py --alone --passages 8841823 --queries 65536     # without peers

The stage rescores candidates exactly and orders equal scores by the smaller id; the peers leave ties and last bits to
chance. `largest difference` compares the stage's ids with those of each peer or, without peers, with a full sort of a
few queries' products in float64. It is the largest difference in exact score of two passages that changed ranks (0:
only ties did). Opening the index is timed separately. The product is computed on the stage's device and in its format.
With one thread the time is that of the process, which a busy machine disturbs less.
"""

import time
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from peers import product_and_topk
from rounds import interleaved, parser, report
from teleport.search.exact import Exact
from vectors import LENGTHS, make_vectors, nearest

FAISS, FAISS_GPU, TOPK = "faiss IndexFlatIP", "faiss GpuIndexFlatIP, float16", "a product with torch.topk"
SAMPLE = 8  # queries that are sorted in full if there are no peers
PRODUCTS = {"cpu": 2**26, "cuda": 2**30}  # of one call of torch.topk


def faiss_search(passages, queries, depth, threads):
    """A function that returns the ids by faiss's flat index, int64 [Q, depth]: on a GPU, with vectors in float16, where
    faiss-gpu is installed."""
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatIP(passages.shape[1])
    if faiss_has_gpu():
        options = faiss.GpuIndexFlatConfig()
        options.useFloat16 = True
        resources = faiss.StandardGpuResources()
        index = faiss.GpuIndexFlatIP(resources, passages.shape[1], options)
    index.add(np.asarray(passages))
    return lambda: index.search(queries, depth)[1]


def faiss_has_gpu():
    """Whether faiss is installed for GPUs, and sees one."""
    import faiss

    return getattr(faiss, "get_num_gpus", lambda: 0)() > 0


def topk_search(passages, queries, depth, index):
    """Return the same as `faiss_search`, by products with all passages on the device and in the format of `index`
    (`Exact`)."""
    passages_PD = torch.from_numpy(np.asarray(passages)).to(index.on, index.dtype)
    block = max(depth, PRODUCTS[index.device] // len(queries))

    def search():
        with torch.inference_mode():
            queries_QD = torch.from_numpy(queries).to(index.on, index.dtype)
            return product_and_topk(passages_PD, queries_QD, depth, block)[1].cpu().numpy()

    return search


def agreement(ids_QK, reference_QK, passages, queries):
    """(share of common passages, share of equal ranks, largest exact difference of two passages at the same rank)."""
    overlap = np.mean([np.isin(a, b).mean() for a, b in zip(ids_QK, reference_QK, strict=True)])
    rows, ranks = np.nonzero(ids_QK != reference_QK)
    exact = [
        np.vecdot(passages[ids[rows, ranks]].astype(np.float64), queries[rows].astype(np.float64))
        for ids in (ids_QK, reference_QK)
    ]
    return float(overlap), float((ids_QK == reference_QK).mean()), float(np.abs(exact[0] - exact[1]).max(initial=0))


def compare(passages, queries, arguments):
    """({variant: seconds}, figures) of the stage and, unless `--alone`, of its peers."""
    depth, threads, started = arguments.depth, arguments.threads, time.perf_counter()
    index = Exact(passages, threads=threads)
    figures, variants = {"seconds to open": round(time.perf_counter() - started, 3)}, {}
    if index.device == "cpu":  # a GPU has no room for two
        started = time.perf_counter()
        Exact(passages, threads=threads)
        figures["seconds to open again, from memory"] = round(time.perf_counter() - started, 3)
    if not arguments.alone and find_spec("faiss"):
        variants[FAISS_GPU if faiss_has_gpu() else FAISS] = faiss_search(passages, queries, depth, threads)
    if not arguments.alone:
        variants[TOPK] = topk_search(passages, queries, depth, index)
    stage = f"stage, {index.device}"
    found_QK = index.search(queries, depth)[0]
    references = {name: search() for name, search in variants.items()}
    if not references:
        references["a full sort"] = nearest(passages, queries[:SAMPLE], depth, threads)
    for name, ids_QK in references.items():
        common, equal, difference = agreement(found_QK[: len(ids_QK)], ids_QK, passages, queries)
        figures |= {f"same passages as {name}": common, f"same ranks as {name}": equal}
        figures[f"largest difference from {name}"] = difference
    variants[stage] = lambda: index.search(queries, depth)
    on_processor = threads == 1 and index.device == "cpu"
    return interleaved(variants, arguments.rounds, time.process_time if on_processor else time.perf_counter), figures


def main(arguments=None):
    from threadpoolctl import threadpool_limits  # here: bench/gpu.py may have none

    made = parser("Exact search against its peers.", passages=400_000, queries=400, dim=768, depth=200)
    made.add_argument("--lengths", choices=LENGTHS, default="unit", help="of the vectors")
    made.add_argument("--alone", action="store_true", help="no peers")
    arguments = made.parse_args(arguments)
    torch.set_num_threads(arguments.threads)
    with TemporaryDirectory() as folder, threadpool_limits(arguments.threads):
        sizes, spread = {"passages": arguments.passages, "queries": arguments.queries}, LENGTHS[arguments.lengths]
        passages, queries = (
            make_vectors(Path(folder, f"{name}.npy"), count, arguments.dim, seed, arguments.threads, spread)
            for seed, (name, count) in enumerate(sizes.items())
        )
        seconds, figures = compare(passages, np.array(queries), arguments)
    peers = [name for name in seconds if not name.startswith("stage")]
    report("search", seconds, peers, len(queries), "queries", arguments, **figures)


if __name__ == "__main__":
    main()
