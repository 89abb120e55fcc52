"""Stage `retrieve`: the nearest passages of queries, or of the positives of queries (lookahead anchors)."""

import json
import time
from functools import cached_property

import numpy as np

from teleport.arrays import open_passages, save_array
from teleport.maxp import by_passage, chunk_rows, chunks_needed, for_each_chunk, num_passages
from teleport.reader import positives_of_job
from teleport.running.blocks import RowBlocks
from teleport.running.devices import LARGER, out_of_memory
from teleport.running.log import log
from teleport.running.shards import join, read_shards, shard_rows
from teleport.search.budget import BLOCK_ROWS
from teleport.search.pairs import require_finite
from teleport.settings.search import IndexSettings
from teleport.settings.search import RetrieveSettings as Settings  # noqa: F401
from teleport.settings.section import rows_of_part

# Lines searched at a time. Each block reads the passages once. If they do not fit in memory, reading them from a disk
# at 1 GB/s then costs a tenth of the products at 200 GFLOP/s.
DEVICE_BLOCK_ROWS = 65536  # on a GPU, which needs a tenth of the time


@out_of_memory(LARGER["retrieve"])
def run(job):
    """Search by inner product, ties by the smaller passage number: exactly, or with an index of another kind.

    settings.scores "compressed": order and scores come from the codes that a pq index keeps of the passages.
    settings.parameters: of the searches of an index of another kind.

    settings.of "queries": one line per query of the split. "positives": the lines are the vectors of positive passages
    (ANCE-Tele §4, Eq. 6: lookahead negatives), of the first positive of a query in the order of the judgments (anchor
    "first") or of each (anchor "all"). Queries without a positive have no line; a positive in several chunks
    (encoder.chunks) has a line for each. Results are passages, by the best of their chunks. With settings.part only its
    queries have lines. A job of several shards joins their lines and searches nothing.

    Writes ids.npy int32 and scores.npy float32 [lines, depth], rows.npy int32 [lines] (the query row of a line). Facts:
    lines, depth, engine, seconds of searching, earlier_seconds, the part of these before this process, lines_per_second
    of this run; of an index of another kind also those of `sample_recall`, and with shards who made each. A depth
    beyond the number of passages means all of them: the stage `check` has refused such a depth if the configuration
    states it.
    """
    search = Search(job)
    shards = read_shards(job, len(search.lines)) if job.shards > 1 else []
    blocks = search.open_blocks(0, len(search.lines))
    join(blocks, shards)
    facts = {"lines": len(search.lines), "depth": search.depth, "earlier_seconds": round(blocks.totals["seconds"], 3)}
    facts |= shards[0].facts["by"] if shards else search.run(blocks)
    blocks.publish()
    save_array(job.output("rows.npy"), search.rows.astype(np.int32))
    facts["seconds"] = round(blocks.totals["seconds"], 3)
    return facts | ({"shards": [shard.summary("seconds") for shard in shards]} if shards else {})


@out_of_memory(LARGER["retrieve"])
def run_shard(job):
    """Search the lines of one shard into ids.npy and scores.npy in its own folder, which the joining job reads.

    Facts: rows (the first line and the one after the last), by (`Search.run`), totals over all attempts, seconds.
    """
    search = Search(job)
    # The bits of an exact search do not depend on blocks; an approximate one needs the blocks of the whole search.
    first, last = shard_rows(len(search.lines), 1 if search.index.exact else search.block_rows, job.shard)
    blocks = search.open_blocks(first, last)
    by = search.run(blocks, first)
    facts = {"rows": [first, last], "by": by, "totals": blocks.totals}
    return facts | {"seconds": round(blocks.totals["seconds"], 3)}


class Search:
    """The search of a job: its depth, its lines (`read_anchors`), and the index: its text and kind, and itself, opened
    when needed."""

    def __init__(self, job):
        self.job, self.depth = job, job.settings.depth
        self.vectors, self.offsets = open_passages(job)
        if (number := num_passages(self.vectors, self.offsets)) < self.depth:
            text = "the collection has %d passages, fewer than the depth %d: each list has all of them"
            log.warning(text, number, self.depth)
            self.depth = number
        self.anchors, self.lines, self.rows = read_anchors(job, self.vectors, self.offsets)
        self.described = json.loads(job.input("index", "index.json").read_text(encoding="utf-8"))

    @cached_property
    def index(self):
        return open_index(self.job, self.described["kind"], self.vectors, self.offsets)

    @property
    def block_rows(self):
        device = "cpu" if self.job.shards > 1 else self.index.device  # joining shards opens no index
        return BLOCK_ROWS if device == "cpu" else DEVICE_BLOCK_ROWS

    def open_blocks(self, first, last):
        """The lists of lines `first` to `last` (RowBlocks), with the results of earlier attempts."""
        shape = last - first, self.depth
        self.job.require_room(shape[0] * self.depth * 8)
        arrays = {"ids.npy": (np.int32, shape), "scores.npy": (np.float32, shape)}
        return RowBlocks(self.job, arrays, self.block_rows)

    def run(self, blocks, first=0):
        """Search the lines that `blocks` does not have yet; its first line is `first`. Returns facts: engine, device,
        lines_per_second, and for the first line those of `recall`, which joining shards takes from the first."""
        index, todo, started = self.index, blocks.rows - blocks.done, time.monotonic()
        self.job.progress(blocks.done, blocks.rows, self.job.settings.of)  # the rate is measured from here on
        for start, stop in blocks:
            block_started = time.monotonic()
            lines = self.lines[first + start : first + stop]
            ids_QK, scores_QK = index.search(self.anchors[lines].astype(np.float32), self.depth)
            blocks["ids.npy"][start:stop], blocks["scores.npy"][start:stop] = ids_QK, scores_QK
            blocks.totals["seconds"] += time.monotonic() - block_started
            self.job.progress(stop, blocks.rows, self.job.settings.of)
        speed = round(todo / (time.monotonic() - started), 1)
        facts = {"engine": index.engine, "device": index.device, "lines_per_second": speed}
        return facts | (self.recall() if first == 0 else {})

    def recall(self):
        """Return the facts of `sample_recall`; none for the exact index, and without lines."""
        from teleport.search.index import sample_recall

        if self.described["kind"] == "flat" or not len(self.lines):
            return {}
        of_chunks = getattr(self.index, "chunks", self.index)
        facts = sample_recall(of_chunks, self.vectors, self.anchors, self.lines, self.depth, self.job.threads)
        text, name = "%s finds %.2f %% of the %d exact neighbours of %d queries", self.described["index"]
        searched = f"{name} {self.job.settings.parameters}".strip()
        log.info(text, searched, 100 * facts["recall"], self.depth, facts["recall_queries"])
        return facts


def read_anchors(job, vectors, offsets):
    """Return what to search with: (anchors [m, dim]; int64 [lines]: rows of `anchors`; the query row of each line)."""
    settings = job.settings
    if settings.of == "positives":
        positives = positives_of_job(job, settings.split)
        rows, passages = lookahead_anchors(positives, settings.anchor)
        if settings.part:
            kept = slice(*np.searchsorted(rows, settings.part.rows(len(positives))))
            rows, passages = rows[kept], passages[kept]
        return vectors, chunk_rows(passages, offsets), for_each_chunk(rows, passages, offsets)
    path = job.input("queries", f"queries.{settings.split}.npy")
    anchors = np.load(path, mmap_mode="r")
    require_finite(path, anchors, "query")
    rows = np.arange(*rows_of_part(settings.part, len(anchors)))
    return anchors, rows, rows


def lookahead_anchors(positives, anchor):
    """(query rows, passage rows), int64 [lines]: each query's first positive (`Ragged`), or with "all" every
    positive."""
    if anchor == "first":
        queries = np.flatnonzero(positives.lengths)
        return queries, positives.values[positives.offsets[queries]].astype(np.int64)
    return positives.rows, positives.values.astype(np.int64)


def open_index(job, kind, vectors, offsets):
    """The index of the stage `index`, of a kind: `Exact`, `Approximate`, or `maxp.MaxP` of them."""
    import torch

    from teleport.search.exact import Exact
    from teleport.search.index import load, read_codes

    torch.set_num_threads(job.threads)
    if kind == "flat":
        index = Exact(vectors, threads=job.threads)
    elif job.settings.scores == "compressed":
        index = Exact(read_codes(job.input("index", "index.faiss")), threads=job.threads)
    else:
        built = IndexSettings.model_validate(job.inputs["index"].manifest["settings"]).index
        settings = built.model_copy(update={"parameters": job.settings.parameters})
        needed = min(chunks_needed(offsets, job.settings.depth), len(vectors))
        index = load(job.input("index", "index.faiss"), settings, vectors, job.threads, needed)
    return by_passage(index, offsets)
