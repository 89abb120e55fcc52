"""Stage `retrieve`: the nearest passages of queries, or of the positives of queries (lookahead anchors)."""

import shutil
import time

import numpy as np
import pyarrow.parquet as pq

from teleport.encoder.blocks import RowBlocks
from teleport.search.flat import FaissFlat, largest_norm, search
from teleport.stage import require_free_space

BLOCK_ROWS = 2048  # searched at a time: small blocks read the passages more often, large ones cost more when killed


def run(job):
    """Search exactly, by inner product, ties by the smaller passage number.

    settings.of "queries": one line per query of the split. "positives": the lines are the vectors of positive
    passages (ANCE-Tele §4.2, lookahead negatives), of the first positive of a query in the order of the judgments
    (anchor "first") or of each (anchor "all"); queries without a positive have no line.

    Writes ids.npy int32 and scores.npy float32 [lines, depth], rows.npy int32 [lines] (the query row of a line).
    Facts: lines, depth, engine, lines_per_second of this run.

    Raises ValueError when there are fewer passages than `depth`, or a vector to search for is not finite.
    """
    depth = job.settings.depth
    vectors = np.load(job.input("encode", "passages.npy"), mmap_mode="c")
    anchors, lines, rows = read_anchors(job, vectors)
    require_free_space(job.resume, len(lines) * depth * 8)
    index, max_norm = open_index(vectors, job.threads), largest_norm(vectors)
    shape = (len(lines), depth)
    blocks = RowBlocks(job, {"ids.npy": (np.int32, shape), "scores.npy": (np.float32, shape)}, BLOCK_ROWS)
    todo, started = len(lines) - blocks.done, time.monotonic()
    for start, stop in blocks:
        ids_QK, scores_QK = search(index, anchors[lines[start:stop]], depth, max_norm)
        blocks["ids.npy"][start:stop], blocks["scores.npy"][start:stop] = ids_QK, scores_QK
        job.progress(stop, len(lines), job.settings.of)
    blocks.publish()
    with open(job.output("rows.npy"), "wb") as file:
        np.save(file, rows.astype(np.int32))
    speed = round(todo / (time.monotonic() - started), 1)
    return {"lines": len(lines), "depth": depth, "engine": type(index).__name__, "lines_per_second": speed}


def read_anchors(job, vectors):
    """What to search with: (anchors float32 [m, dim], lines int64: rows of `anchors`, query rows int64 of the lines).

    vectors: the passages' vectors, of which the positives are rows
    """
    settings = job.settings
    if settings.of == "positives":
        qrels = pq.read_table(job.input("collection", f"qrels.{settings.split}.parquet"))
        rows, lines = positives(qrels, job.facts("collection")["positive_grade"], settings.anchor)
        return vectors, lines, rows
    path = job.input("encode", f"queries.{settings.split}.npy")
    anchors = np.load(path, mmap_mode="r")
    finite = np.isfinite(anchors).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"{path}: the vector of query row {int(np.argmin(finite))} is not finite. The checkpoint that made it is "
            "broken: train with a lower learning rate, or with precision fp32."
        )
    rows = np.arange(len(anchors))
    return anchors, rows, rows


def positives(qrels, positive_grade, anchor):
    """(query rows, passage rows), int64 [lines], of the positives in a judgments table.

    qrels: pyarrow table with the integer columns query, passage, grade; anchor: "first" or "all"
    Lines are sorted by query row; the positives of one query keep the order of the table.
    """
    query, passage, grade = (qrels.column(name).to_numpy() for name in ("query", "passage", "grade"))
    positive = np.flatnonzero(grade >= positive_grade)
    positive = positive[np.argsort(query[positive], kind="stable")]
    if anchor == "first":
        positive = positive[np.unique(query[positive], return_index=True)[1]]
    return query[positive].astype(np.int64), passage[positive].astype(np.int64)


def open_index(vectors, threads):
    """The flat index on a CUDA device when there is one, else with faiss; torch is loaded in the first case only."""
    if shutil.which("nvidia-smi"):
        import torch

        from teleport.search.flat_torch import TorchFlat

        if torch.cuda.is_available():
            return TorchFlat(vectors, "cuda")
    return FaissFlat(vectors, threads)
