"""faiss's approximate indexes: built with a fixed seed, saved, loaded, and measured against exact search."""

import faiss
import numpy as np

from teleport.refusal import Refusal, Remedy
from teleport.search.exact import rescore, stable_topk
from teleport.search.flat import Exact
from teleport.search.flat_faiss import FAISS_SHARE, GPU_MOST, FaissFlat

SEED = 1234  # of k-means: the index depends on the vectors and its parameters alone
TRAIN_PER_LIST = 256  # vectors per centroid that k-means reads; faiss takes no more either
BLOCK = 65536  # vectors added at a time
HEADER = 4096  # bytes of a file that describe it, at most
SAMPLE_SEED, SAMPLE_QUERIES = 77, 200  # of the queries on which recall is measured
WIDER = {
    "ivf": Remedy("raise mining.index.nprobe"),
    "hnsw": Remedy("raise mining.index.efSearch or M"),
}  # what finds more passages


def check_parameters(settings, rows, dim, key="mining.index"):
    """Raise Refusal, naming the configuration's `key`, when no index of these settings fits [rows, dim] vectors."""
    if settings.kind == "ivf" and settings.nlist > rows:
        raise Refusal(f"{key}.nlist {settings.nlist} is more than the {rows} passages: lower it.")
    if settings.kind == "pq" and dim % settings.m:
        raise Refusal(f"{key}.m {settings.m} does not divide the {dim} dimensions: choose a divisor.")
    if settings.kind == "pq" and 2**settings.bits > rows:
        raise Refusal(
            f"{key}.bits {settings.bits} needs {2**settings.bits} passages to train, there are {rows}: lower it."
        )


def file_bytes(settings, rows, dim):
    """What the file of an index of [rows, dim] vectors takes at most: their codes, or themselves with ids or links."""
    if settings.kind == "pq":
        return HEADER + rows * -(-settings.m * settings.bits // 8) + 4 * dim * 2**settings.bits
    if settings.kind == "ivf":
        return HEADER + rows * (4 * dim + 8) + settings.nlist * (4 * dim + 16)
    return HEADER + rows * (4 * dim + 8 * settings.M + 24)  # 2 M links of 4 bytes, and the levels above them


def empty_index(settings, dim):
    """An untrained faiss index of the settings, by inner product."""
    metric = faiss.METRIC_INNER_PRODUCT
    if settings.kind == "hnsw":
        index = faiss.IndexHNSWFlat(dim, settings.M, metric)
        index.hnsw.efConstruction = settings.efConstruction
    elif settings.kind == "pq":
        index = faiss.IndexPQ(dim, settings.m, settings.bits, metric)
        index.pq.cp.seed = SEED
        index.pq.cp.min_points_per_centroid = 1  # small collections are meant: faiss would warn
    else:
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, settings.nlist, metric)
        index.cp.seed = SEED
    return index


def build(settings, vectors, threads, progress):
    """The faiss index of `vectors` (float32 [n, dim], memory map), trained on rows drawn with `SEED`. A graph (hnsw) is
    built by one thread: with more, its edges would depend on which was first."""
    rows, dim = vectors.shape
    faiss.omp_set_num_threads(1 if settings.kind == "hnsw" else threads)
    index = empty_index(settings, dim)
    if not index.is_trained:
        centroids = settings.nlist if settings.kind == "ivf" else 2**settings.bits
        sample = np.sort(np.random.default_rng(SEED).choice(rows, min(rows, TRAIN_PER_LIST * centroids), replace=False))
        index.train(vectors[sample].astype(np.float32))
    for start in range(0, rows, BLOCK):
        index.add(np.ascontiguousarray(vectors[start : start + BLOCK], np.float32))
        progress(min(start + BLOCK, rows), rows, "vectors")
    return index


class Approximate:
    """Search with a faiss index; the scores of what it finds are exact, and order it."""

    overlaps = False

    def __init__(self, index, settings, vectors, threads):
        faiss.omp_set_num_threads(threads)
        if settings.kind == "ivf":
            index.nprobe = settings.nprobe
        if settings.kind == "hnsw":
            index.hnsw.efSearch = settings.efSearch
        self.index, self.settings, self.vectors, self.threads = index, settings, vectors, threads
        self.engine = type(index).__name__

    def search(self, queries_QD, depth, state=None):
        """As `Exact.search`, of what the index finds; Refusal when fewer than `depth` come back for a query."""
        queries_QD = np.ascontiguousarray(queries_QD)
        scores_QK, ids_QK = self.index.search(queries_QD, depth)
        short = np.flatnonzero((ids_QK < 0).any(axis=1))
        if len(short):
            raise Refusal(
                f"mining.index.kind {self.settings.kind} finds only {int((ids_QK[short[0]] >= 0).sum())} passages for "
                f"a query, depth {depth} is asked for ({len(short)} of {len(ids_QK)} queries are concerned): "
                f"{WIDER.get(self.settings.kind, 'choose another kind')}, or lower mining.depth."
            )
        no_doubt_Q = np.full(len(queries_QD), np.inf)
        exact_QK = rescore(self.vectors, queries_QD, scores_QK, ids_QK, depth, no_doubt_Q, self.threads)
        return stable_topk(exact_QK, ids_QK, depth)


def load(path, settings, vectors, threads, depth):
    """The saved index of `settings`, on the first GPU where that has room for it and this faiss can search there for it
    and the depth."""
    index = faiss.read_index(str(path))
    on_gpu = settings.kind == "ivf" and max(depth, settings.nprobe) <= GPU_MOST
    if on_gpu and hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() and has_room(path):
        index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
    return Approximate(index, settings, vectors, threads)


def has_room(path):
    """Whether the first GPU has room for the saved index at `path` (Path)."""
    import torch

    return path.stat().st_size <= FAISS_SHARE * torch.cuda.mem_get_info(0)[0]


class Decoded:
    """What a faiss.IndexPQ keeps of its passages, as an array of float32 [n, D] that is decoded where it is read, not
    sliced. index: trained and filled; rows: range of its passages, all of them by default"""

    dtype = np.dtype(np.float32)

    def __init__(self, index, rows=None):
        self.index, self.rows = index, range(index.ntotal) if rows is None else rows
        self.shape = len(self.rows), index.d
        self.size = len(self.rows) * index.d

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, rows):
        return Decoded(self.index, self.rows[rows])

    def __array__(self, dtype=None, copy=None):
        return self.take(np.arange(len(self))).astype(dtype or self.dtype, copy=False)

    def take(self, ids, axis=0, out=None, mode=None):
        """The vectors [..., D] of passages (int [...]), as of an array; into `out` where it is given."""
        ids = self.rows.start + self.rows.step * np.ascontiguousarray(ids, np.int64)
        out = np.empty((*ids.shape, self.shape[1]), np.float32) if out is None else out
        self.index.reconstruct_batch(ids.ravel(), out.reshape(-1, self.shape[1]))
        return out


class PqCodes(FaissFlat):
    """Candidates by faiss from `Decoded` passages: sums of a table of products, one for each code (Jégou et al. 2011).
    So exact scores are products with the decoded passages, and those of the same code tie."""

    outliers = np.zeros(0, np.int64)

    def __init__(self, vectors, threads, most_outliers=0):
        self.vectors, self.threads, self.index, pq = vectors, threads, vectors.index, vectors.index.pq
        if len(vectors) < self.index.ntotal:
            self.index = faiss.clone_index(vectors.index)
            self.index.reset()
            codes = faiss.vector_to_array(vectors.index.codes).reshape(-1, pq.code_size)
            self.index.add_sa_codes(codes[vectors.rows.start : vectors.rows.stop])
        centroids = faiss.vector_to_array(pq.centroids).reshape(pq.M, pq.ksub, pq.dsub)
        self.max_norm = float(np.sqrt(np.vecdot(centroids, centroids).max(axis=1).sum(dtype=np.float64)))

    def propose(self, queries_QD, depth, count, errors_Q, last_Q):
        faiss.omp_set_num_threads(self.threads)  # it holds for the thread that calls
        scores_QM, ids_QM = self.index.search(np.ascontiguousarray(queries_QD), count)
        return scores_QM, ids_QM, scores_QM[:, -1].astype(np.float64)


def read_codes(path):
    """`Decoded`: what the saved IndexPQ at `path` keeps of the passages."""
    return Decoded(faiss.read_index(str(path)))


def sample_recall(index, vectors, queries, depth, threads):
    """Facts of the recall at a depth of an index (with `search`), on at most `SAMPLE_QUERIES` of `queries`."""
    count = min(len(queries), SAMPLE_QUERIES)
    rows = np.sort(np.random.default_rng(SAMPLE_SEED).choice(len(queries), count, replace=False))
    sample = queries[rows].astype(np.float32)
    exact, _ = Exact(vectors, 1, lambda _, part, most: FaissFlat(part, threads, most), threads).search(sample, depth)
    ids, _ = index.search(sample, depth)
    return {"recall": round(recall(ids, exact), 4), "recall_depth": depth, "recall_queries": count}


def recall(ids_QK, exact_QK):
    """The mean share of the exact neighbours `exact_QK` that are in `ids_QK`."""
    return float(np.mean([np.isin(exact, ids).mean() for exact, ids in zip(exact_QK, ids_QK, strict=True)]))
