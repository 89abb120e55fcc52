"""Stage `retrieve`: the nearest passages of queries, or of the positives of queries (lookahead anchors)."""

import hashlib
import json
import time

import numpy as np

from teleport.arrays import open_passages, places_of, save_array
from teleport.collection.reader import positives_of_job
from teleport.maxp import first_of_passages
from teleport.running.blocks import RowBlocks
from teleport.running.devices import LARGER, out_of_memory
from teleport.running.log import log
from teleport.search.engines import PART_ROWS, open_exact
from teleport.search.exact import require_finite
from teleport.search.flat import Exact, Proposals
from teleport.settings.search import IndexSettings
from teleport.settings.search import RetrieveSettings as Settings  # noqa: F401

# Searched at a time. Each block reads the passages once. From a disk of 1 GB/s the reading of passages that do not fit
# in memory then costs a tenth of the products at 200 GFLOP/s.
BLOCK_ROWS = 4096
SAMPLE_SEED, SAMPLE_LINES = 78, 1024  # of the lines that engines are probed with
DEVICE_BLOCK_ROWS = 65536  # on a GPU: several steps of flat_torch, of which only the last waits for the host


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
    index = open_index(job, vectors, offsets, lines, anchors)
    state = PartsDone(job, len(lines))
    shape, block_rows = (len(lines), depth), DEVICE_BLOCK_ROWS if index.overlaps else BLOCK_ROWS
    blocks = RowBlocks(job, {"ids.npy": (np.int32, shape), "scores.npy": (np.float32, shape)}, block_rows)
    todo, started = len(lines) - blocks.done, time.monotonic()
    job.progress(blocks.done, len(lines), job.settings.of)  # from here on a rate is measured
    for start, stop in blocks:
        block_started = time.monotonic()
        state.first = start
        ids_QK, scores_QK = index.search(anchors[lines[start:stop]].astype(np.float32), depth, state)
        blocks["ids.npy"][start:stop], blocks["scores.npy"][start:stop] = ids_QK, scores_QK
        blocks.totals["seconds"] += time.monotonic() - block_started
        job.progress(stop, len(lines), job.settings.of)
    speed = round(todo / (time.monotonic() - started), 1)
    blocks.publish()
    save_array(job.output("rows.npy"), rows.astype(np.int32))
    facts = {"lines": len(lines), "depth": depth, "engine": index.engine}
    facts["device"] = "cuda" if index.overlaps or index.engine.startswith("Gpu") else "cpu"  # faiss's GpuIndexIVFFlat
    facts |= {"seconds": round(blocks.totals["seconds"], 3), "lines_per_second": speed}
    if job.settings.scores == "compressed":
        from teleport.search.approximate import sample_recall

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


class PartsDone:
    """The proposals of the lines that are being searched, saved between parts of the passages (`flat.Exact.propose`).
    first: the first line of the block that is searched, of `total`; told: of how many lines was told"""

    def __init__(self, job, total):
        self.job, self.total, self.first, self.told, self.saved = job, total, 0, 0, time.monotonic()
        self.path = job.resume / "proposals.npz"

    def identity(self, queries_QD, count):
        """What must be the same for proposals to be taken up, uint8 [n]."""
        return np.frombuffer(hashlib.sha256(queries_QD.tobytes() + str(count).encode()).digest(), np.uint8)

    def load(self, queries_QD, count):
        """(how many parts are done, of a search of these queries that was killed; their `Proposals` or None)."""
        if not self.path.is_file():
            return 0, None
        with np.load(self.path) as saved:
            if not np.array_equal(saved["identity"], self.identity(queries_QD, count)):
                return 0, None
            return int(saved["done"]), Proposals(*(saved[name] for name in Proposals._fields))

    def save(self, queries_QD, count, done, parts, proposals):
        """Report the progress, and save what is proposed every `save_every` seconds."""
        if done < parts:
            # Those whose last rank is not settled are searched again: no progress, and no step back either.
            self.told = max(self.told, self.first + len(queries_QD) * done // parts)
            self.job.progress(self.told, self.total, self.job.settings.of)
            if time.monotonic() - self.saved >= self.job.save_every:
                with open(part := self.path.with_suffix(".part"), "wb") as file:
                    identity = self.identity(queries_QD, count)
                    np.savez(file, identity=identity, done=done, **proposals._asdict())
                part.replace(self.path)
                self.saved = time.monotonic()


def open_index(job, vectors, offsets, lines, anchors):
    """The index of the stage `index`: `Exact`, `Approximate`, or `MaxP` of them."""
    depth = job.settings.depth
    path = job.input("index", "index.json")
    needed = min(depth, len(vectors)) if offsets is None else chunks_needed(offsets, depth)
    if json.loads(path.read_text(encoding="utf-8"))["kind"] == "flat":
        sample = lines[np.sort(np.random.default_rng(SAMPLE_SEED).permutation(len(lines))[:SAMPLE_LINES])]
        index = open_exact(vectors, job.threads, anchors[sample].astype(np.float32), len(lines), needed, job.engine)
    elif job.settings.scores == "compressed":
        from teleport.search.approximate import PqCodes, read_codes

        decoded = read_codes(job.input("index", "index.faiss"))
        parts = -(-len(decoded) // PART_ROWS)
        index = Exact(decoded, parts, lambda _, part, most: PqCodes(part, job.threads), job.threads)
    else:
        from teleport.search.approximate import load

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
        self.engine, self.overlaps = f"{index.engine}, best of chunks", index.overlaps

    def search(self, queries_QD, depth, state=None):
        """As `Exact.search`: the `depth` passages with the best chunks."""
        chunks_QC, scores_QC = self.index.search(queries_QD, chunks_needed(self.offsets, depth), state)
        return first_of_passages(self.passage_C[chunks_QC], scores_QC, depth)
