"""Stage `index`: checks that vectors can be searched, and builds the index. Also search with faiss's indexes.

"Flat" means the vectors themselves, which stay where `encode` wrote them. Other indexes are faiss's, by its
`index_factory`; they miss some neighbours. The loss depends on what searches, so the stage `retrieve` measures it: its
manifest has the recall against exact search on a seeded sample of its lines.
"""

import time

import numpy as np

from teleport.refusal import Refusal
from teleport.running.files import require_free_space, write_json
from teleport.running.log import log
from teleport.search.budget import SAMPLE_QUERIES, TRAIN_PER_LIST
from teleport.search.pairs import inner_products, ranked, require_finite
from teleport.settings.search import IndexSettings as Settings  # noqa: F401

SAMPLE, COLLAPSED = 4096, 1e-4  # rows that give the spread; least spread: a hundredth of the length apart
SEED = 1234  # of the vectors that k-means reads
BLOCK = 65536  # vectors added at a time
HEADER = 4096  # most bytes of a file's header
SAMPLE_SEED = 77  # of the lines on which recall is measured
GPU_MOST = 2048  # most neighbours that faiss returns, and lists that it probes, on a GPU
GPU_SHARE = 0.8  # of the free memory of a device that an index may take


def run(job):
    """Check that all passage vectors are finite, build the index and write index.json (metric, index, kind, dim, rows).

    All indexes but Flat also write index.faiss. Facts: num_passages, dim, bytes (of the index; Flat: of the vectors).
    For others also build_seconds.
    """
    path = job.input("passages", "passages.npy")
    vectors = np.load(path, mmap_mode="r")
    require_finite(path, vectors, "passage", job.progress)
    if (apart := spread(vectors)) < COLLAPSED:
        why = "the training of this checkpoint has collapsed. Train with a lower learning rate, or with precision fp32."
        if job.inputs["passages"].manifest.get("inputs", {}).get("checkpoint", "").startswith("pretrained/"):
            why = "the pretrained checkpoint cannot tell the texts apart. Does its tokenizer know them?"
        said = "%s: all vectors are nearly the same (spread %.1e), so rankings are mostly ties: %s"
        log.warning(said, path, apart, why)
    (rows, dim), index = vectors.shape, job.settings.index
    measured = {} if index.kind == "flat" else build_approximate(job, vectors)
    described = {"metric": "inner product", "index": str(index), "kind": index.kind, "dim": dim, "rows": rows}
    write_json(job.output("index.json"), described)
    return {"num_passages": rows, "dim": dim, "bytes": vectors.nbytes} | measured


def spread(vectors):
    """Mean squared distance from the mean over mean squared length, for a sample: 0 if all vectors are the same."""
    sample = np.asarray(vectors[:: max(1, len(vectors) // SAMPLE)], np.float64)
    return float(((sample - sample.mean(axis=0)) ** 2).sum() / max((sample**2).sum(), np.finfo(float).tiny))


def build_approximate(job, vectors):
    """Write index.faiss; returns its facts."""
    import faiss

    settings = job.settings.index
    check_fits(settings, *vectors.shape)
    require_free_space(job.folder, file_bytes(settings, *vectors.shape))
    started, path = time.monotonic(), job.output("index.faiss")
    index = build(settings, vectors, job.threads, job.progress)
    seconds = round(time.monotonic() - started, 3)
    faiss.write_index(index, str(path))
    return {"bytes": path.stat().st_size, "build_seconds": seconds}


def check_fits(settings, rows, dim):
    """Raise Refusal when no index of these settings fits [rows, dim] vectors."""
    if settings.kind == "pq" and dim % settings.numbers[0]:
        problem = f"{settings.numbers[0]} parts do not divide the {dim} dimensions"
        raise Refusal(f"{settings.keys} {settings}: {problem}. Choose a divisor.")
    if settings.centroids > rows:
        fewer = (
            "Lower the number."
            if settings.kind == "ivf"
            else f"Take fewer bits, as in PQ{settings.numbers[0]}x4, or Flat."
        )
        problem = f"{settings.centroids} centroids are more than the {rows} passages"
        raise Refusal(f"{settings.keys} {settings}: {problem}. {fewer}")


def file_bytes(settings, rows, dim):
    """Return the largest size in bytes of the file of an index of [rows, dim] vectors: codes, or vectors with ids or
    links."""
    number = settings.numbers[0]
    if settings.kind == "pq":
        return HEADER + rows * -(-number * settings.bits // 8) + 4 * dim * 2**settings.bits
    if settings.kind == "ivf":
        return HEADER + rows * (4 * dim + 8) + number * (4 * dim + 16)
    return HEADER + rows * (4 * dim + 8 * number + 24)  # 2 M links of 4 bytes, and the levels above them


def build(settings, vectors, threads, progress):
    """The faiss index of `vectors` (float32 [n, dim], memory map) by inner product, trained on rows drawn with `SEED`.
    One thread builds a graph: with more, its edges would depend on timing."""
    import faiss

    rows, dim = vectors.shape
    faiss.omp_set_num_threads(1 if settings.kind == "hnsw" else threads)
    index = faiss.index_factory(dim, settings.factory, faiss.METRIC_INNER_PRODUCT)
    set_parameters(index, settings)
    if settings.kind == "pq":
        index.pq.cp.min_points_per_centroid = 1  # small collections are intended: faiss would warn
    if not index.is_trained:
        count = min(rows, TRAIN_PER_LIST * settings.centroids)
        sample = np.sort(np.random.default_rng(SEED).choice(rows, count, replace=False))
        index.train(vectors[sample].astype(np.float32))
    for start in range(0, rows, BLOCK):
        index.add(np.ascontiguousarray(vectors[start : start + BLOCK], np.float32))
        progress(min(start + BLOCK, rows), rows, "vectors")
    return index


def set_parameters(index, settings):
    """Set parameters of a faiss index, such as nprobe=64."""
    import faiss

    if settings.parameters:
        faiss.ParameterSpace().set_index_parameters(index, settings.parameters)


class Approximate:
    """Search with a faiss index; the passages it returns are ordered by their exact scores."""

    exact = False

    def __init__(self, index, settings, vectors, threads):
        import faiss

        faiss.omp_set_num_threads(threads)
        self.index, self.settings, self.vectors = index, settings, vectors
        self.engine = type(index).__name__
        self.device = "cuda" if self.engine.startswith("Gpu") else "cpu"

    def search(self, queries_QD, depth):
        """Return the same as `Exact.search`, among the passages that the index returns. Raises Refusal if they are
        fewer than `depth` for a query, and for scores beyond float32."""
        queries_QD = np.ascontiguousarray(queries_QD, np.float32)
        _, ids_QK = self.index.search(queries_QD, depth)
        short = np.flatnonzero((ids_QK < 0).any(axis=1))
        if len(short):
            wider = {"ivf": "raise its nprobe", "hnsw": "raise its efSearch"}
            raise Refusal(
                f"mining.index {self.settings} finds only {int((ids_QK[short[0]] >= 0).sum())} passages for a query, "
                f"but depth is {depth} ({len(short)} of {len(ids_QK)} queries have too few): "
                f"{wider.get(self.settings.kind, 'choose another index')}, or lower mining.depth."
            )
        scores_QK = np.empty(ids_QK.shape, np.float32)
        for query, ids, scores in zip(queries_QD.astype(np.float64), ids_QK, scores_QK, strict=True):
            scores[:] = inner_products(query, self.vectors.take(ids, axis=0))
        return ranked(scores_QK, ids_QK, depth)


def load(path, settings, vectors, threads, depth):
    """The saved index, searched with the parameters of `settings` (Index), on the first GPU if it has room and this
    faiss supports the index and the depth there."""
    import faiss

    index = faiss.read_index(str(path))
    set_parameters(index, settings)
    on_gpu = settings.kind == "ivf" and max(depth, index.nprobe) <= GPU_MOST
    if on_gpu and hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() and has_room(path):
        return Approximate(faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index), settings, vectors, threads)
    return Approximate(index, settings, vectors, threads)


def has_room(path):
    """Whether the first GPU has room for the saved index at `path` (Path)."""
    import torch

    return path.stat().st_size <= GPU_SHARE * torch.cuda.mem_get_info(0)[0]


class Decoded:
    """The passages of a faiss.IndexPQ as an array of float32 [n, D]. Reading decodes them; slicing does not. index:
    trained and filled; rows: range of its passages, by default all"""

    dtype = np.dtype(np.float32)

    def __init__(self, index, rows=None):
        self.index, self.rows = index, range(index.ntotal) if rows is None else rows
        self.shape = len(self.rows), index.d

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, rows):
        return Decoded(self.index, self.rows[rows])

    def __array__(self, dtype=None, copy=None):
        return self.take(np.arange(len(self))).astype(dtype or self.dtype, copy=False)

    def take(self, ids, axis=0, out=None, mode=None):
        """The vectors [..., D] of passages (int [...]), as from an array; into `out` if given."""
        ids = self.rows.start + self.rows.step * np.ascontiguousarray(ids, np.int64)
        out = np.empty((*ids.shape, self.shape[1]), np.float32) if out is None else out
        self.index.reconstruct_batch(ids.ravel(), out.reshape(-1, self.shape[1]))
        return out


def read_codes(path):
    """The passages that the saved IndexPQ at `path` encodes, as `Decoded`."""
    import faiss

    return Decoded(faiss.read_index(str(path)))


def sample_recall(index, vectors, anchors, lines, depth, threads):
    """Facts of an index's recall at a depth (it has `search`), on at most `SAMPLE_QUERIES` of `lines` (rows of
    `anchors`)."""
    import torch

    from teleport.search.exact import Exact

    torch.set_num_threads(threads)
    count = min(len(lines), SAMPLE_QUERIES)
    chosen = np.sort(np.random.default_rng(SAMPLE_SEED).choice(len(lines), count, replace=False))
    sample = anchors[lines[chosen]].astype(np.float32)
    exact, _ = Exact(vectors, threads=threads).search(sample, depth)
    ids, _ = index.search(sample, depth)
    return {"recall": round(recall(ids, exact), 4), "recall_depth": depth, "recall_queries": count}


def recall(ids_QK, exact_QK):
    """The mean share of the exact neighbours `exact_QK` that are in `ids_QK`."""
    return float(np.mean([np.isin(exact, ids).mean() for exact, ids in zip(exact_QK, ids_QK, strict=True)]))
