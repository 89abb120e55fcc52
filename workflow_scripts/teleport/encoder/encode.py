"""Stage `encode`: the vectors of all passages, or of the queries of a split, from their token map."""

import time
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from teleport.arrays import CHUNK_OFFSETS, save_array
from teleport.encoder.budget import TOKEN_BUDGET, tokens_within
from teleport.encoder.checkpoint import sides
from teleport.encoder.load import load_encoder
from teleport.encoder.model import prepare
from teleport.encoder.precision import (
    compiles,
    computed_in,
    dtype_name,
    pick_device,
    resolve_precision,
    room_to_encode,
    to_encode,
)
from teleport.encoder.shape import Shape, forward_bytes
from teleport.encoder.side import batches_at_once, open_side
from teleport.refusal import Refusal
from teleport.running.blocks import RowBlocks
from teleport.running.devices import LARGER, out_of_memory
from teleport.running.shards import join, read_shards, shard_rows
from teleport.settings.encoder import EncodeSettings as Settings  # noqa: F401

# Texts per block. Batches are made inside a block, so that they never depend on where a run was killed. In a larger
# block more texts have the same length, and a CPU's attention takes them together. But a kill costs up to one block.
BLOCK_TEXTS = {"cpu": 2048, "cuda": 16384}
MADE_BY = ("dtype", "device", "compiled")  # facts in which all jobs of a stage must agree
DTYPES = {"fp32": np.float32, "fp16": np.float16}  # encoder.vectors, of passages
LARGEST = float(np.finfo(np.float16).max)


@out_of_memory(LARGER["encode"])
def run(job):
    """Encode the texts `settings.of`: passages with the passage encoder, queries with the query encoder.

    Writes passages.npy or queries.SPLIT.npy, float32 [n, dim]; passages in float16 with settings.vectors "fp16", or
    joined from the job's shards. A killed run continues at its block, with the same bits on a CPU. With settings.chunks
    above 1 the rows of passages.npy are chunks of passages (`batches.Chunks`), which count as texts below, and
    passages.offsets.npy, int64 [passages + 1], gives the chunks of each passage.

    Facts: dim, dtype, device, compiled; texts, real_tokens and encode_seconds of all jobs and attempts;
    texts_per_second of one device; earlier_seconds, the part of encode_seconds before this process; shards, a summary
    of each.
    """
    name, (side, facts) = job.settings.of, open_texts(job)
    rows = texts = len(side.lengths)
    shards = read_shards(job, texts, computed, facts) if job.shards > 1 else []
    if apart := [shard.rows for shard in shards if all(path.is_file() for path in shard.files.values())]:
        # Shards are deleted as they are joined, so the disk needs room for the largest one only.
        sizes = [last - first for first, last in apart]
        rows += max(sizes) - sum(sizes)
    job.require_room(vector_bytes(job, rows, facts))
    with torch.inference_mode(), batches_at_once(job.threads) as parallel_map:
        blocks = open_blocks(job, side, facts, texts)
        join(blocks, shards)
        earlier = blocks.totals["seconds"]
        progress = partial(job.progress, total=texts, unit="texts")
        encode_texts(blocks, name, side, parallel_map, progress)
        blocks.publish()
    if side.offsets is not None:
        save_array(job.output(CHUNK_OFFSETS), side.offsets)
    facts |= {key: blocks.totals[key] for key in ("texts", "real_tokens")}
    facts |= {"encode_seconds": round(seconds := blocks.totals["seconds"], 3), "earlier_seconds": round(earlier, 3)}
    facts["texts_per_second"] = round(facts["texts"] / seconds, 1) if seconds else 0.0
    return facts | ({"shards": [shard.summary("encode_seconds") for shard in shards]} if shards else {})


@out_of_memory(LARGER["encode"])
def run_shard(job):
    """Encode the passages of one shard into passages.npy in its own folder, which the job that joins shards reads.

    Facts: rows (the first and the one after the last, of passages or their chunks), block_texts, totals over all
    attempts, encode_seconds, dim, dtype, device, compiled.
    """
    side, facts = open_texts(job)
    block_texts = BLOCK_TEXTS[side.device.type]
    first, last = shard_rows(len(side.lengths), block_texts, job.shard)
    job.require_room(vector_bytes(job, last - first, facts))
    blocks = open_blocks(job, side, facts, last - first)
    with torch.inference_mode(), batches_at_once(job.threads) as parallel_map:
        progress = partial(job.progress, total=last - first, unit="texts")
        encode_texts(blocks, job.settings.of, side, parallel_map, progress, first)
    facts |= {"rows": [first, last], "block_texts": block_texts, "totals": blocks.totals}
    return facts | {"encode_seconds": round(blocks.totals["seconds"], 3)}


def open_texts(job):
    """(the `Side` of the texts to encode, facts {dim, dtype, device, compiled})."""
    torch.set_num_threads(job.threads)
    settings, device = job.settings, pick_device()
    dtype = resolve_precision(settings.precision, device)
    query, passage = sides(job.input("checkpoint", "checkpoint"))
    encoder = to_encode(load_encoder(passage if settings.of == "passages" else query), device, dtype)
    encoder.truncate(settings.truncate_dim)
    side = open_side(job, settings.of, encoder, dtype)
    compiled = compiles(job.compile, device, int(side.lengths.sum()))
    with torch.inference_mode():
        side = replace(side, compiled=compiled, prepared=prepare(encoder, dtype, compiled))
    facts = {"dim": encoder.dim, "dtype": dtype_name(dtype), "device": device.type}
    return side, facts | {"compiled": compiled}


def computed(facts):
    """How vectors were computed, in words, from the facts of a stage or shard."""
    return computed_in(*(facts[name] for name in MADE_BY))


def open_blocks(job, side, facts, rows):
    """`rows` vectors as NAME.npy in the job's resume folder. They continue earlier attempts on this kind of device and
    in this precision (`facts`)."""
    array, made = (dtype_of(job), (rows, facts["dim"])), {name: facts[name] for name in MADE_BY}
    return RowBlocks(job, {f"{job.settings.of}.npy": array}, BLOCK_TEXTS[side.device.type], made)


def dtype_of(job):
    """The numpy type in which the vectors are stored."""
    return DTYPES[job.settings.vectors] if job.settings.of == "passages" else np.float32


def vector_bytes(job, rows, facts):
    """Bytes of `rows` vectors on the disk."""
    return rows * facts["dim"] * np.dtype(dtype_of(job)).itemsize


def tokens_at_once(side):
    """How many tokens of a `Side` are encoded at once."""
    room = room_to_encode(side.encoder, side.device, side.dtype)
    per_token = forward_bytes(Shape.of(side.encoder), side.dtype is not None)
    return tokens_within(TOKEN_BUDGET["encode"][side.device.type], room, per_token)


def encode_texts(blocks, name, side, parallel_map, progress, first=0):
    """Encode the texts of one side, from row `first` on, that `blocks` does not have yet; `blocks.totals` sums the
    work. parallel_map: as for `Side.vectors`; progress: called with the number of finished texts"""
    stored, budget = blocks[f"{name}.npy"], tokens_at_once(side)
    progress(blocks.done)  # from here on a rate is measured
    for start, stop in blocks:
        started, rows = time.monotonic(), first + np.arange(start, stop)
        lengths, report = side.lengths[rows], lambda done, start=start: progress(start + done)
        bucket_map = partial(map_with_progress, parallel_map, lengths, report)
        vectors = side.vectors(rows, budget, bucket_map).cpu().numpy()
        blocks.beside(partial(store, vectors, stored[start:stop]))
        counts = {"texts": stop - start, "real_tokens": side.count_tokens(rows)}
        blocks.totals.update(counts | {"seconds": time.monotonic() - started})


def map_with_progress(parallel_map, lengths, progress, function, buckets):
    """`parallel_map` over the buckets of a block; reports progress by each bucket's share of the tokens. A block takes
    a slow machine a minute, and its short texts come first."""
    tokens, done = max(int(lengths.sum()), 1), 0
    for bucket, vectors in zip(buckets, parallel_map(function, buckets), strict=True):
        done += int(lengths[bucket].sum())
        progress(len(lengths) * done // tokens)
        yield vectors


def store(vectors, stored):
    """Write a block of vectors into its rows of the file."""
    if stored.dtype == np.float16:
        require_float16(vectors)
    stored[:] = vectors


def require_float16(vectors):
    """Raise Refusal when a value of float32 vectors overflows float16."""
    if (largest := np.abs(vectors).max(initial=0)) > LARGEST:
        raise Refusal(
            f"encoder.vectors: fp16 holds values up to {LARGEST:.0f}, but a passage's vector has {largest:g}. Set "
            "encoder.vectors to fp32."
        )
