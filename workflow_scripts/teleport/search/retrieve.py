"""Stage `retrieve`: the nearest passages of queries, or of the positives of queries (lookahead anchors)."""

import json
import time

import numpy as np

from teleport.collection.reader import positives_of_job
from teleport.runtime.arrays import open_passages, places_of, save_array
from teleport.runtime.blocks import RowBlocks
from teleport.runtime.device_memory import out_of_memory
from teleport.runtime.files import require_free_space
from teleport.runtime.log import log
from teleport.search.engines import open_exact
from teleport.search.flat import require_finite
from teleport.search.maxp import MaxP, chunks_needed
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

    settings.scores "compressed": the order and the scores are those of what a pq index keeps of the passages.

    settings.of "queries": one line per query of the split. "positives": the lines are the vectors of positive
    passages (ANCE-Tele §4, Eq. 6: lookahead negatives), of the first positive of a query in the order of the judgments
    (anchor "first") or of each (anchor "all"); queries without a positive have no line. A positive in several chunks
    (encoder.chunks) makes a line for each of them. What is found are passages, by the best of their chunks.
    With settings.part only its queries have lines.

    Writes ids.npy int32 and scores.npy float32 [lines, depth], rows.npy int32 [lines] (the query row of a line).
    Facts: lines, depth, engine, seconds of searching, lines_per_second of this run; of compressed scores also those of
    `sample_recall`. A depth of more passages than there are is all of them: the stage `check` has refused one that the
    configuration states. Raises ValueError when an approximate index finds fewer, or when a vector to search for is not
    finite.
    """
    vectors, offsets = open_passages(job)
    depth = cut_depth(job.settings.depth, vectors, offsets)
    anchors, lines, rows = read_anchors(job, vectors, offsets)
    require_free_space(job.resume, len(lines) * depth * 8)
    index = open_index(job, vectors, offsets, len(lines), depth)
    shape, block_rows = (len(lines), depth), DEVICE_BLOCK_ROWS if index.overlaps else BLOCK_ROWS
    blocks = RowBlocks(job, {"ids.npy": (np.int32, shape), "scores.npy": (np.float32, shape)}, block_rows)
    todo, started = len(lines) - blocks.done, time.monotonic()
    for start, stop in blocks:
        begun = time.monotonic()
        ids_QK, scores_QK = index.search(anchors[lines[start:stop]], depth)
        blocks["ids.npy"][start:stop], blocks["scores.npy"][start:stop] = ids_QK, scores_QK
        blocks.totals["seconds"] += time.monotonic() - begun
        job.progress(stop, len(lines), job.settings.of)
    speed = round(todo / (time.monotonic() - started), 1)
    blocks.publish()
    save_array(job.output("rows.npy"), rows.astype(np.int32))
    facts = {"lines": len(lines), "depth": depth, "engine": index.engine}
    facts |= {"seconds": round(blocks.totals["seconds"], 3), "lines_per_second": speed}
    if job.settings.scores == "compressed":
        from teleport.search.approximate import sample_recall

        single = index if offsets is None else index.index  # its recall is that of chunks
        facts |= sample_recall(single, vectors, anchors, depth, job.threads)
    return facts


def cut_depth(depth, vectors, offsets):
    """The depth, or the number of passages where that is less."""
    passages = len(vectors) if offsets is None else len(offsets) - 1
    if passages < depth:
        log.warning("the collection has %d passages, fewer than the depth %d: lists have all of them", passages, depth)
    return min(depth, passages)


def read_anchors(job, vectors, offsets):
    """What to search with: (anchors float32 [m, dim]; int64 [lines]: rows of `anchors`; the query row of each line)."""
    settings = job.settings
    if settings.of == "positives":
        positives = positives_of_job(job, settings.split)
        rows, passages = lookahead_anchors(positives, settings.anchor)
        if settings.part:
            kept = slice(*np.searchsorted(rows, settings.part.rows(len(positives))))
            rows, passages = rows[kept], passages[kept]
        if offsets is None:
            return vectors, passages, rows
        return vectors, places_of(offsets, passages), np.repeat(rows, np.diff(offsets)[passages])
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


def open_index(job, vectors, offsets, lines, depth):
    """The index of the stage `index`, ready for `lines` vectors: `Sharded`, `Approximate`, `Compressed`, or `MaxP`."""
    index = open_kind(job, vectors, offsets, lines, depth)
    return index if offsets is None else MaxP(index, offsets)


def open_kind(job, vectors, offsets, lines, depth):
    """What `open_index` gives, over single vectors."""
    description = json.loads(job.input("index", "index.json").read_text(encoding="utf-8"))
    if description["kind"] == "flat":
        return open_exact(vectors, job.threads, lines)
    if job.settings.scores == "compressed":
        from teleport.search.compressed import load

        return load(job.input("index", "index.faiss"), job.threads)
    from teleport.search.approximate import load

    settings = IndexSettings.model_validate(job.inputs["index"].manifest["settings"]).index
    rows = depth if offsets is None else chunks_needed(offsets, depth)
    return load(job.input("index", "index.faiss"), settings, vectors, job.threads, rows)
