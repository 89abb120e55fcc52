"""Stage `retrieve`: the nearest passages of queries, or of the positives of queries (lookahead anchors)."""

import json
import time

import numpy as np

from teleport.arrays import open_passages, places_of, save_array
from teleport.collection.reader import positives_of_job
from teleport.maxp import first_of_passages
from teleport.running.blocks import RowBlocks
from teleport.running.devices import LARGER, out_of_memory
from teleport.running.log import log
from teleport.search.pairs import require_finite
from teleport.settings.search import IndexSettings
from teleport.settings.search import RetrieveSettings as Settings  # noqa: F401

# Searched at a time. Each block reads the passages once. From a disk of 1 GB/s the reading of passages that do not fit
# in memory then costs a tenth of the products at 200 GFLOP/s.
BLOCK_ROWS = 4096
DEVICE_BLOCK_ROWS = 65536  # on a GPU, which searches a tenth as long


@out_of_memory(LARGER["retrieve"])
def run(job):
    """Search by inner product, ties by the smaller passage number: exactly, or with the index of another kind.

    settings.scores "compressed": the order and the scores are those of what a pq index keeps of the passages.

    settings.of "queries": one line per query of the split. "positives": the lines are the vectors of positive passages
    (ANCE-Tele §4, Eq. 6: lookahead negatives), of the first positive of a query in the order of the judgments (anchor
    "first") or of each (anchor "all"); queries without a positive have no line. A positive in several chunks
    (encoder.chunks) makes a line for each of them. Results are passages, by the best of their chunks. With
    settings.part only its queries have lines.

    Writes ids.npy int32 and scores.npy float32 [lines, depth], rows.npy int32 [lines] (the query row of a line). Facts:
    lines, depth, engine, seconds of searching, lines_per_second of this run; of compressed scores also those of
    `sample_recall`. A depth of more passages than there are is all of them: the stage `check` has refused one that the
    configuration states.
    """
    vectors, offsets = open_passages(job)
    num_passages, depth = len(vectors) if offsets is None else len(offsets) - 1, job.settings.depth
    if num_passages < depth:
        text = "the collection has %d passages, fewer than the depth %d: lists have all of them"
        log.warning(text, num_passages, depth)
        depth = num_passages
    anchors, lines, rows = read_anchors(job, vectors, offsets)
    job.require_room(len(lines) * depth * 8)
    index = open_index(job, vectors, offsets)
    shape, block_rows = (len(lines), depth), BLOCK_ROWS if index.device == "cpu" else DEVICE_BLOCK_ROWS
    blocks = RowBlocks(job, {"ids.npy": (np.int32, shape), "scores.npy": (np.float32, shape)}, block_rows)
    todo, started = len(lines) - blocks.done, time.monotonic()
    job.progress(blocks.done, len(lines), job.settings.of)  # from here on a rate is measured
    for start, stop in blocks:
        block_started = time.monotonic()
        ids_QK, scores_QK = index.search(anchors[lines[start:stop]].astype(np.float32), depth)
        blocks["ids.npy"][start:stop], blocks["scores.npy"][start:stop] = ids_QK, scores_QK
        blocks.totals["seconds"] += time.monotonic() - block_started
        job.progress(stop, len(lines), job.settings.of)
    speed = round(todo / (time.monotonic() - started), 1)
    blocks.publish()
    save_array(job.output("rows.npy"), rows.astype(np.int32))
    facts = {"lines": len(lines), "depth": depth, "engine": index.engine, "device": index.device}
    facts |= {"seconds": round(blocks.totals["seconds"], 3), "lines_per_second": speed}
    if job.settings.scores == "compressed":
        from teleport.search.index import sample_recall

        of_chunks = index if offsets is None else index.index
        facts |= sample_recall(of_chunks, vectors, anchors, depth, job.threads)
    return facts


def read_anchors(job, vectors, offsets):
    """What to search with: (anchors [m, dim]; int64 [lines]: rows of `anchors`; the query row of each line)."""
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


def open_index(job, vectors, offsets):
    """The index of the stage `index`: `Exact`, `Approximate`, or `MaxP` of them."""
    from teleport.search.exact import Exact
    from teleport.search.index import load, read_codes

    path, depth = job.input("index", "index.json"), job.settings.depth
    needed = min(depth, len(vectors)) if offsets is None else chunks_needed(offsets, depth)
    if json.loads(path.read_text(encoding="utf-8"))["kind"] == "flat":
        index = Exact(vectors, threads=job.threads)
    elif job.settings.scores == "compressed":
        index = Exact(read_codes(job.input("index", "index.faiss")), threads=job.threads)
    else:
        settings = IndexSettings.model_validate(job.inputs["index"].manifest["settings"]).index
        index = load(job.input("index", "index.faiss"), settings, vectors, job.threads, needed)
    return index if offsets is None else MaxP(index, offsets)


def chunks_needed(offsets, depth):
    """How many of the best chunks always have the `depth` best passages among them."""
    most = int(np.diff(offsets).max(initial=1))
    return min((depth - 1) * most + 1, int(offsets[-1]))  # of the same passage there are at most `most`


class MaxP:
    """A passage's score is that of its best chunk; passages of equal scores are ranked by the smaller number. index: of
    all chunks, with `search`; offsets: int64 [passages + 1], where each passage's chunks are"""

    def __init__(self, index, offsets):
        self.index, self.offsets = index, offsets
        self.passage_C = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
        self.engine, self.device = f"{index.engine}, best of chunks", index.device

    def search(self, queries_QD, depth):
        """As `Exact.search`: the `depth` passages with the best chunks."""
        chunks_QC, scores_QC = self.index.search(queries_QD, chunks_needed(self.offsets, depth))
        return first_of_passages(self.passage_C[chunks_QC], scores_QC, depth)
