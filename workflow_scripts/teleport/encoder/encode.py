"""Stage `encode`: the vectors of all passages, of the queries of every split, or of both, from the token maps."""

import json
import time
from collections import Counter

import numpy as np
import torch

from teleport.encoder.batches import batches_at_once
from teleport.encoder.halves import QUERIES, Overlap, halved
from teleport.encoder.model import load_encoders
from teleport.encoder.plain import prepare
from teleport.encoder.precision import compiles, pick_device, resolve_precision
from teleport.encoder.shards import MADE_BY, join, read_shards, shard_rows
from teleport.encoder.side import Side
from teleport.encoder.tokens import open_tokens
from teleport.runtime.arrays import CHUNK_OFFSETS, save_array
from teleport.runtime.blocks import RowBlocks
from teleport.runtime.device_memory import out_of_memory
from teleport.runtime.files import require_free_space
from teleport.settings.encoding import EncodeSettings as Settings  # noqa: F401

# Tokens per batch. CPU: with 4,096 a layer's activations stay in the cache (16,384 took 1.4 times as
# long). CUDA: enough that a batch's arithmetic hides the launching of its kernels.
TOKEN_BUDGET = {"cpu": 4096, "cuda": 65536}
# Texts per block. Batches are made inside a block, so that they never depend on where a run was killed. In a larger
# block more texts have the same length, which a CPU's attention takes together, but a kill costs up to one of them.
BLOCK_TEXTS = {"cpu": 2048, "cuda": 16384}
TOO_LARGE = "Set training.precision to bf16, or take a device with more memory."
NUMBERS = {"fp32": np.float32, "fp16": np.float16}  # encoder.vectors, of passages
COUNTED = ("texts", "real_tokens", "padded_tokens")


@out_of_memory(TOO_LARGE)
def run(job):
    """Encode the texts of `settings.sides`: passages with the passage encoder, queries with the query encoder.

    Writes passages.npy and queries.SPLIT.npy, float32 [n, dim]; passages in float16 with settings.vectors "fp16".
    Where the job has shards the passages are joined from them, and nothing of these is left to encode. A killed run
    continues at its block, with the same bits on a CPU.
    With settings.chunks above 1 the rows of passages.npy are chunks of passages (`encoder.chunks`), which count as
    texts below, and passages.offsets.npy, int64 [passages + 1], says which are whose.

    Facts: dim, dtype, device of the computation, and whether it was compiled; of all jobs and attempts that made the
    vectors texts, real_tokens, padded_tokens, encode_seconds, and, where there are passages, passages_per_second of one
    device; earlier_seconds, the part of encode_seconds that killed runs and shards spent before this process; shards, a
    summary of each, where there are some; of fp16 also those of `Overlap`, over what this process encoded.

    Raises ValueError when a maximum length exceeds the encoder's positions, when the disk is too full, or when a shard
    is unusable.
    """
    sides, facts = open_sides(job)
    shards = read_shards(job, facts, len(sides["passages"].lengths)) if job.shards > 1 else []
    total = sum(len(side.lengths) for side in sides.values())
    # Of a whole that is joined no more than a shard and the queries is on the disk twice.
    sizes = [shard.rows[1] - shard.rows[0] for shard in shards]
    rows = {name: len(side.lengths) for name, side in sides.items()}
    if shards:
        rows["passages"] += max(sizes) - sum(sizes)
    require_free_space(job.resume, sum(vector_bytes(job, name, number, facts) for name, number in rows.items()))
    totals, before = Counter(), 0
    with torch.inference_mode(), batches_at_once(job.threads) as each:
        overlap = open_overlap(job, sides)
        for name, side in sides.items():
            blocks = open_blocks(job, name, side, facts)
            if name == "passages":
                join(blocks, shards)
            totals["earlier"] += blocks.totals["seconds"]
            encode_texts(blocks, name, side, each, lambda n, b=before: job.progress(b + n, total, "texts"), 0, overlap)
            blocks.publish()
            if name == "passages":
                facts["passages_per_second"] = speed(blocks.totals)
            if side.offsets is not None:
                save_array(job.output(CHUNK_OFFSETS), side.offsets)
            totals.update(blocks.totals)
            before += len(side.lengths)
    facts |= {key: totals[key] for key in COUNTED}
    facts |= {"encode_seconds": round(totals["seconds"], 3), "earlier_seconds": round(totals["earlier"], 3)}
    facts |= overlap.facts() if overlap else {}
    return facts | ({"shards": [shard.summary() for shard in shards]} if shards else {})


@out_of_memory(TOO_LARGE)
def run_shard(job):
    """Encode the passages of one shard into passages.npy in its own folder, which the job that joins shards reads.

    A killed shard continues at its block, a finished one is not encoded again. Facts: rows (the first and the one after
    the last, of passages or their chunks), block_texts, totals of the counts over all runs, encode_seconds, dim, dtype,
    device, compiled.

    Raises ValueError as `run` does.
    """
    sides, facts = open_sides(job)
    side, block_texts = sides["passages"], BLOCK_TEXTS[sides["passages"].device.type]
    first, last = shard_rows(len(side.lengths), block_texts, job.shard)
    require_free_space(job.resume, vector_bytes(job, "passages", last - first, facts))
    blocks = open_blocks(job, "passages", side, facts, last - first)
    with torch.inference_mode(), batches_at_once(job.threads) as each:
        overlap = open_overlap(job, sides)
        encode_texts(blocks, "passages", side, each, lambda n: job.progress(n, last - first, "texts"), first, overlap)
    facts |= overlap.facts() if overlap else {}
    facts |= {"rows": [first, last], "block_texts": block_texts, "totals": blocks.totals}
    return facts | {"encode_seconds": round(blocks.totals["seconds"], 3)}


def open_sides(job):
    """({"passages" or "queries.SPLIT": Side} of the texts to encode, facts {dim, dtype, device, compiled})."""
    torch.set_num_threads(job.threads)
    settings, device = job.settings, pick_device()
    dtype, compiled = resolve_precision(settings.precision, device), compiles(job.compile, device)
    query_encoder, passage_encoder = load_encoders(job.input("checkpoint", "checkpoint"))
    special = json.loads(job.input("tokens", "special.json").read_text())
    wanted, sides, prepared = [], {}, {}
    if "passage" in settings.sides:
        wanted = [("passages", passage_encoder, "max_passage_tokens", settings.chunks)]
    if "query" in settings.sides:
        splits = job.facts("collection")["splits"]
        wanted += [(f"queries.{split}", query_encoder, "max_query_tokens", 1) for split in splits]
    for name, encoder, key, chunks in wanted:
        limit = getattr(settings, key)
        require_positions(encoder, key, limit)
        if encoder not in prepared:  # a tied one is prepared once
            with torch.inference_mode():
                prepared[encoder] = prepare(encoder.to(device), dtype, compiled)
        tokens = open_tokens(job, name)
        sides[name] = Side(encoder, tokens, limit, special, dtype, compiled, prepared[encoder], chunks)
    facts = {"dim": passage_encoder.dim, "dtype": "float32" if dtype is None else "bfloat16", "device": device.type}
    return sides, facts | {"compiled": compiled}


def open_blocks(job, name, side, facts, rows=None):
    """The vectors of one side as NAME.npy in the job's resume folder, with what earlier runs did of them.

    Nothing is kept of runs on another kind of device or in another precision than those of `facts`. rows: how many
    there are, all of the side's unless given
    """
    rows = len(side.lengths) if rows is None else rows
    array, made = (numbers_of(job, name), (rows, facts["dim"])), {name: facts[name] for name in MADE_BY}
    return RowBlocks(job, {f"{name}.npy": array}, BLOCK_TEXTS[side.device.type], made)


def numbers_of(job, name):
    """The numpy type in which the vectors of one side are kept."""
    return NUMBERS[job.settings.vectors] if name == "passages" else np.float32


def vector_bytes(job, name, rows, facts):
    """The size of so many vectors of one side on the disk."""
    return rows * facts["dim"] * np.dtype(numbers_of(job, name)).itemsize


def open_overlap(job, sides):
    """The `Overlap` of a job whose passages are kept in float16, else None; its queries are of the first split."""
    if job.settings.vectors == "fp32" or "passages" not in sides:
        return None
    side = next((side for name, side in sides.items() if name != "passages"), sides["passages"])
    rows = np.arange(min(QUERIES, len(side.lengths)))
    return Overlap(side.vectors(rows, TOKEN_BUDGET[side.device.type])[0].cpu().numpy())


def encode_texts(blocks, name, side, each, progress, first=0, overlap=None):
    """Encode the texts that `blocks` lacks of one side's from row `first` on; `blocks.totals` counts what was done.

    each: as `Encoded.vectors` takes it
    overlap: where float16 is kept, what compares it with the vectors as they are
    """
    vectors, budget = blocks[f"{name}.npy"], TOKEN_BUDGET[side.device.type]
    for start, stop in blocks:
        started, rows = time.monotonic(), first + np.arange(start, stop)
        found, padded_tokens = side.vectors(rows, budget, each)
        found = found.cpu().numpy()
        vectors[start:stop] = found if vectors.dtype == np.float32 else halved(found)
        if overlap and name == "passages":
            overlap.add(found, vectors[start:stop])
        counts = {"texts": stop - start, "real_tokens": side.count_tokens(rows), "padded_tokens": padded_tokens}
        blocks.totals.update(counts | {"seconds": time.monotonic() - started})
        progress(stop)


def speed(totals):
    """Texts per second of computing; 0 when nothing was computed."""
    return round(totals["texts"] / totals["seconds"], 1) if totals["seconds"] else 0.0


def require_positions(encoder, key, max_tokens):
    """Raise ValueError, naming the configuration's `key`, when texts may be longer than the encoder has positions."""
    if max_tokens > encoder.max_tokens:
        raise ValueError(
            f"encoder.{key} is {max_tokens}, but the checkpoint has {encoder.max_tokens} positions. "
            f"Set encoder.{key} to {encoder.max_tokens} or less."
        )
