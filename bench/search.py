"""Exact search: the engines of `retrieve` against faiss's flat index, whose ties and last bits fall as they may.

    python bench/search.py [--passages 400000] [--queries 400] [--dim 768] [--depth 200] [--threads 1]
    python bench/search.py --vectors results/stages/encode/KEY     # of a collection, instead of made ones
    python bench/search.py --alone --passages 8841823 --queries 65536     # only the engine that `retrieve` takes here

Engines score candidates again in float64 and prove the last rank. `largest difference` compares their ids with
faiss's, or, without faiss, with a plain sort of a few queries' products in float64: how far apart, in exact scores, two
passages are at most that changed places (0: only ties did).

An index is opened once (faiss: copies the vectors; int8, CUDA: reduce them), which is timed apart. So are the two
halves of a search, proposing candidates and scoring them again; where they run at the same time, as on CUDA, they add
up to more than the whole. With one thread the time is that of the process, which a busy machine disturbs less.
"""

import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from rounds import interleaved, parser, report
from teleport.cpu.int8 import Int8Flat
from teleport.cpu.search import computes_in_int8
from teleport.search.engines import open_exact
from teleport.search.flat import Exact
from teleport.search.flat_faiss import FaissFlat
from vectors import make_vectors, nearest, read_vectors

PEER = "faiss IndexFlatIP"
SAMPLE = 8  # queries that are sorted in full where there is no faiss


def faiss_index(vectors, threads):
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return index


def engines(passages, queries, depth, threads, alone):
    """{name: function that opens it} of what this machine can run fast; or only of what `retrieve` takes."""
    on_cuda = torch.cuda.is_available()
    chosen = partial(open_exact, passages, threads, queries, len(queries), depth)
    opened = {"CUDA" if on_cuda else "CPU": chosen} if alone or on_cuda else {}
    if alone:
        return opened
    kinds = {"fp32 (faiss)": lambda _, part, most: FaissFlat(part, threads, most)}
    if computes_in_int8():
        kinds["int8"] = lambda _, part, most: Int8Flat(part, threads, most_outliers=most)
    return {name: lambda kind=kind: Exact(passages, 1, kind, threads) for name, kind in kinds.items()} | opened


class Timed:
    """Searches with an index, and how long the halves of a search take: proposing by its first part (where there are
    several devices, the others do the same at the same time), and scoring again what all propose.

    proposing: seconds of each search
    """

    def __init__(self, index, clock=time.perf_counter):
        self.index, self.clock, self.proposing, self.ranked = index, clock, [], []
        self.propose_first, self.rank_all, index.part(0).propose = index.part(0).propose, index.rank, self.propose
        index.rank = self.rank

    def propose(self, *arguments):
        """As the engine's method; notes its time."""
        started = self.clock()
        proposal = self.propose_first(*arguments)
        self.proposing[-1] += self.clock() - started
        return proposal

    def rank(self, *arguments):
        """As `Exact.rank`; notes what is scored again."""
        self.ranked.append(arguments)
        return self.rank_all(*arguments)

    def search(self, queries_QD, depth):
        """As `Exact.search`."""
        self.proposing.append(0.0)
        self.ranked.clear()
        return self.index.search(queries_QD, depth)

    def score_again(self):
        """Do again, by itself, the scoring of the candidates of the last search; returns its seconds."""
        started = self.clock()
        for ranked in self.ranked:
            self.rank_all(*ranked)
        return self.clock() - started


def agreement(ids_QK, reference_QK, passages, queries):
    """(share of common passages, share of equal ranks, largest exact difference of two passages at the same rank)."""
    overlap = np.mean([np.isin(a, b).mean() for a, b in zip(ids_QK, reference_QK, strict=True)])
    rows, ranks = np.nonzero(ids_QK != reference_QK)
    exact = [
        np.vecdot(passages[ids[rows, ranks]].astype(np.float64), queries[rows].astype(np.float64))
        for ids in (ids_QK, reference_QK)
    ]
    return float(overlap), float((ids_QK == reference_QK).mean()), float(np.abs(exact[0] - exact[1]).max(initial=0))


def compare(passages, queries, arguments, alone):
    """({variant: seconds}, figures) of every engine, and of faiss unless `alone`."""
    depth, variants, figures, indexes = arguments.depth, {}, {}, {}
    on_processor = arguments.threads == 1 and not torch.cuda.is_available()
    clock = time.process_time if on_processor else time.perf_counter
    if alone:
        reference = nearest(passages, queries[:SAMPLE], depth, arguments.threads)
    else:
        peer = faiss_index(passages, arguments.threads)
        variants[PEER] = lambda: peer.search(queries, depth)[1]
        reference = variants[PEER]()
    for name, open_engine in engines(passages, queries, depth, arguments.threads, alone).items():
        started = time.perf_counter()
        index = indexes[name] = Timed(open_engine(), clock)
        figures[f"seconds to open, {name}"] = round(time.perf_counter() - started, 3)
        variants[f"stage, {name}"] = lambda index=index: index.search(queries, depth)[0]
        ids_QK = variants[f"stage, {name}"]()[: len(reference)]
        common, equal, difference = agreement(ids_QK, reference, passages, queries)
        figures |= {f"same passages, {name}": common, f"same ranks, {name}": equal}
        figures[f"largest difference, {name}"] = difference
    seconds = interleaved(variants, arguments.rounds, clock)
    for name, index in indexes.items():
        figures[f"seconds proposing, {name}"] = round(median(index.proposing[-arguments.rounds :]), 4)
        again = [index.score_again() for _ in range(arguments.rounds)]
        figures[f"seconds scoring again, {name}"] = round(median(again), 4)
    return seconds, figures


def main(arguments=None):
    made = parser("Exact search against faiss.", passages=400_000, queries=400, dim=768, depth=200)
    made.add_argument("--vectors", type=Path, help="folder of a finished stage `encode`, instead of made vectors")
    made.add_argument("--folder", type=Path, help="where the made vectors lie meanwhile; default: the temporary folder")
    made.add_argument("--alone", action="store_true", help="no peers, only the engine that `retrieve` takes here")
    arguments = made.parse_args(arguments)
    alone = arguments.alone or find_spec("faiss") is None
    if alone and not arguments.alone:
        print("faiss, the peer, is not installed here: the engine that `retrieve` takes is measured alone.")
    torch.set_num_threads(arguments.threads)
    with TemporaryDirectory(dir=arguments.folder) as folder, threadpool_limits(arguments.threads):
        if arguments.vectors:
            passages, queries = read_vectors(arguments.vectors, arguments.queries)
        else:
            sizes = {"passages": arguments.passages, "queries": arguments.queries}
            passages, queries = (
                make_vectors(Path(folder, f"{name}.npy"), count, arguments.dim, seed, arguments.threads)
                for seed, (name, count) in enumerate(sizes.items())
            )
        seconds, figures = compare(passages, np.array(queries), arguments, alone)
    report("search", seconds, () if alone else (PEER,), len(queries), "queries", arguments, **figures)


if __name__ == "__main__":
    main()
