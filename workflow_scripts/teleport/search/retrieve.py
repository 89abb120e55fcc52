"""Stage `retrieve`: the nearest passages of queries, or of the positives of queries (lookahead anchors)."""

import json
import time

import numpy as np

from teleport.collection.reader import positives_of_job
from teleport.runtime.arrays import save_array
from teleport.runtime.blocks import RowBlocks
from teleport.runtime.device_memory import out_of_memory
from teleport.runtime.files import require_free_space
from teleport.search.engines import open_exact
from teleport.search.flat import require_finite
from teleport.settings.search import IndexSettings
from teleport.settings.search import RetrieveSettings as Settings  # noqa: F401

# Searched at a time. Each block reads the passages once, and a killed run loses a block. From a disk of 1 GB/s the
# reading of passages that do not fit in memory then costs a twentieth of the products at 200 GFLOP/s.
BLOCK_ROWS = 8192
DEVICE_BLOCK_ROWS = 65536  # on a GPU: several steps of flat_torch, of which only the last waits for the host


@out_of_memory(
    "Lower mining.depth or evaluation.depth, or let several GPUs share the passages with --set-resources "
    "retrieve:gpu=N."
)
def run(job):
    """Search by inner product, ties by the smaller passage number: exactly, or with the index of another kind.

    settings.of "queries": one line per query of the split. "positives": the lines are the vectors of positive
    passages (ANCE-Tele §4, Eq. 6: lookahead negatives), of the first positive of a query in the order of the judgments
    (anchor "first") or of each (anchor "all"); queries without a positive have no line. With settings.part only its
    queries have lines.

    Writes ids.npy int32 and scores.npy float32 [lines, depth], rows.npy int32 [lines] (the query row of a line).
    Facts: lines, depth, engine, lines_per_second of this run. Raises ValueError when there are fewer passages than
    `depth`, when an approximate index finds fewer, or when a vector to search for is not finite.
    """
    depth = job.settings.depth
    vectors = np.load(job.input("passages", "passages.npy"), mmap_mode="r")
    anchors, lines, rows = read_anchors(job, vectors)
    require_free_space(job.resume, len(lines) * depth * 8)
    index = open_index(job, vectors, len(lines))
    shape, block_rows = (len(lines), depth), DEVICE_BLOCK_ROWS if index.overlaps else BLOCK_ROWS
    blocks = RowBlocks(job, {"ids.npy": (np.int32, shape), "scores.npy": (np.float32, shape)}, block_rows)
    todo, started = len(lines) - blocks.done, time.monotonic()
    for start, stop in blocks:
        ids_QK, scores_QK = index.search(anchors[lines[start:stop]], depth)
        blocks["ids.npy"][start:stop], blocks["scores.npy"][start:stop] = ids_QK, scores_QK
        job.progress(stop, len(lines), job.settings.of)
    blocks.publish()
    save_array(job.output("rows.npy"), rows.astype(np.int32))
    speed = round(todo / (time.monotonic() - started), 1)
    return {"lines": len(lines), "depth": depth, "engine": index.engine, "lines_per_second": speed}


def read_anchors(job, vectors):
    """What to search with: (anchors float32 [m, dim]; int64 [lines]: rows of `anchors`; the query row of each line)."""
    settings = job.settings
    if settings.of == "positives":
        positives = positives_of_job(job, settings.split)
        rows, lines = lookahead_anchors(positives, settings.anchor)
        kept = slice(*np.searchsorted(rows, settings.part.rows(len(positives)))) if settings.part else slice(None)
        return vectors, lines[kept], rows[kept]
    path = job.input("queries", f"queries.{settings.split}.npy")
    anchors = np.load(path, mmap_mode="r")
    require_finite(path, anchors, "query")
    rows = np.arange(*settings.part.rows(len(anchors))) if settings.part else np.arange(len(anchors))
    return anchors, rows, rows


def lookahead_anchors(positives, anchor):
    """(query rows, passage rows), int64 [lines], of each query's first positive (`Ragged`), or of all ("all")."""
    if anchor == "first":
        queries = np.flatnonzero(positives.lengths)
        return queries, positives.values[positives.offsets[queries]].astype(np.int64)
    return positives.rows, positives.values.astype(np.int64)


def open_index(job, vectors, lines):
    """The index of the stage `index`, ready to search `lines` vectors: `Sharded` or `Approximate`."""
    description = json.loads(job.input("index", "index.json").read_text(encoding="utf-8"))
    if description["kind"] == "flat":
        return open_exact(vectors, job.threads, lines)
    from teleport.search.approximate import load

    settings = IndexSettings.model_validate(job.inputs["index"].manifest["settings"]).index
    return load(job.input("index", "index.faiss"), settings, vectors, job.threads, job.settings.depth)
