"""Stage `encode`: the vectors of all passages and of the queries of every split, from the token maps."""

import json
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch

from teleport.encoder.batches import in_order, length_buckets
from teleport.encoder.model import load_encoders
from teleport.encoder.packed import PackedEncoder
from teleport.encoder.precision import compiles, pick_device, resolve_precision
from teleport.encoder.shards import MADE_BY, join, read_shards, shard_rows
from teleport.encoder.tokens import TokenMap, packed, padded_lengths
from teleport.runtime.blocks import RowBlocks
from teleport.runtime.device_memory import out_of_memory
from teleport.runtime.files import require_free_space

# Tokens per batch. CPU: with 4,096 a layer's activations stay in the cache (16,384 took 1.4 times as
# long). CUDA: enough that a batch's arithmetic hides the launching of its kernels.
TOKEN_BUDGET = {"cpu": 4096, "cuda": 65536}
# Texts per block. Batches are made inside a block, so that they never depend on where a run was killed. In a larger
# block more texts have the same length, which a CPU's attention takes together, but a kill costs up to one of them.
BLOCK_TEXTS = {"cpu": 2048, "cuda": 16384}
TOO_LARGE = "Set training.precision to bf16, or take a device with more memory."
COUNTED = ("texts", "real_tokens", "padded_tokens")


@dataclass(frozen=True)
class Side:
    """How one kind of text is encoded; `special` is the content of special.json."""

    encoder: PackedEncoder
    max_tokens: int
    special: dict
    device: torch.device

    def encode(self, tokens, rows, lengths, vectors):
        """Write the vectors of the texts `rows` (a contiguous int64 array) into `vectors` [n, dim].

        All batches are handed to the device before the first vector is waited for.

        lengths: int64 [rows], tokens of these texts as the encoder sees them
        returns: tokens that were encoded: the rows of every token-wise operation
        """
        batches, found, encoded = length_buckets(lengths, TOKEN_BUDGET[self.device.type]), [], 0
        for batch in batches:
            ids_T, lengths_B = packed(tokens, rows[batch], self.max_tokens, self.special)
            found.append(self.encoder(ids_T, lengths_B))
            encoded += len(ids_T)
        vectors[rows] = in_order(found, batches).cpu().numpy()
        return encoded


@out_of_memory(TOO_LARGE)
def run(job):
    """Encode passages with the passage encoder and queries with the query encoder.

    Writes passages.npy and queries.SPLIT.npy, float32 [n, dim]. Where the job has shards the passages are joined from
    them, and nothing of these is left to encode. A killed run continues at its block, with the same bits on a CPU.

    Facts: dim, dtype, device of the computation, and whether it was compiled; of all jobs and attempts that made the
    vectors texts, real_tokens, padded_tokens, encode_seconds, and passages_per_second of one device; earlier_seconds,
    the part of encode_seconds that killed runs and shards spent before this process; shards, a summary of each, where
    there are some.

    Raises ValueError when a maximum length exceeds the encoder's positions, when the disk is too full, or when a shard
    is unusable.
    """
    passages, queries, facts = open_sides(job)
    sides = {"passages": passages} | {f"queries.{split}": queries for split in job.facts("collection")["splits"]}
    maps = {name: open_map(job, name) for name in sides}
    shards = read_shards(job, facts, len(maps["passages"])) if job.shards > 1 else []
    total = sum(map(len, maps.values()))
    # Of a whole that is joined no more than a shard and the queries is on the disk twice.
    twice = [shard.rows[1] - shard.rows[0] for shard in shards] or [len(maps["passages"])]
    require_free_space(job.resume, (total - len(maps["passages"]) + max(twice)) * passages.encoder.dim * 4)
    totals, before = Counter(), 0
    with torch.inference_mode():
        for name, side in sides.items():
            blocks = open_blocks(job, name, side, maps[name], facts)
            if name == "passages":
                join(blocks, shards)
            totals["earlier"] += blocks.totals["seconds"]
            encode_texts(blocks, name, side, maps[name], lambda n, b=before: job.progress(b + n, total, "texts"))
            blocks.publish()
            if name == "passages":
                facts["passages_per_second"] = speed(blocks.totals)
            totals.update(blocks.totals)
            before += len(maps[name])
    facts |= {key: totals[key] for key in COUNTED}
    facts |= {"encode_seconds": round(totals["seconds"], 3), "earlier_seconds": round(totals["earlier"], 3)}
    return facts | ({"shards": [shard.summary() for shard in shards]} if shards else {})


@out_of_memory(TOO_LARGE)
def run_shard(job):
    """Encode the passages of one shard into passages.npy in its own folder, which the job that joins shards reads.

    A killed shard continues at its block, a finished one is not encoded again. Facts: rows (the first passage and the
    one after the last), block_texts, totals of the counts over all runs, encode_seconds, dim, dtype, device, compiled.

    Raises ValueError as `run` does.
    """
    side, _, facts = open_sides(job)
    tokens, block_texts = open_map(job, "passages"), BLOCK_TEXTS[side.device.type]
    first, last = shard_rows(len(tokens), block_texts, job.shard)
    tokens = tokens.part(first, last)
    require_free_space(job.resume, len(tokens) * side.encoder.dim * 4)
    blocks = open_blocks(job, "passages", side, tokens, facts)
    with torch.inference_mode():
        encode_texts(blocks, "passages", side, tokens, lambda n: job.progress(n, len(tokens), "texts"))
    facts |= {"rows": [first, last], "block_texts": block_texts, "totals": blocks.totals}
    return facts | {"encode_seconds": round(blocks.totals["seconds"], 3)}


def open_sides(job):
    """(passages: Side, queries: Side, facts {dim, dtype, device, compiled})."""
    torch.set_num_threads(job.threads)
    settings, device = job.settings, pick_device()
    dtype, compiled = resolve_precision(settings.precision, device), compiles(job.compile, device)
    query_encoder, passage_encoder = load_encoders(job.input("checkpoint", "checkpoint"))
    check_positions(passage_encoder, settings)
    special = json.loads(job.input("tokens", "special.json").read_text())
    with torch.inference_mode():
        encoders = {encoder.to(device) for encoder in (query_encoder, passage_encoder)}
        packs = {encoder: PackedEncoder(encoder, dtype, compiled) for encoder in encoders}
    queries = Side(packs[query_encoder], settings.max_query_tokens, special, device)
    passages = Side(packs[passage_encoder], settings.max_passage_tokens, special, device)
    facts = {"dim": passage_encoder.dim, "dtype": "float32" if dtype is None else "bfloat16", "device": device.type}
    return passages, queries, facts | {"compiled": compiled}


def open_blocks(job, name, side, tokens, facts):
    """The vectors of one token map as NAME.npy in the job's resume folder, with what earlier runs did of them.

    Nothing is kept of runs on another kind of device or in another precision than those of `facts`.
    """
    array, made = (np.float32, (len(tokens), side.encoder.dim)), {name: facts[name] for name in MADE_BY}
    return RowBlocks(job, {f"{name}.npy": array}, BLOCK_TEXTS[side.device.type], made)


def encode_texts(blocks, name, side, tokens, progress):
    """Encode all texts of one token map that `blocks` lacks, and count in `blocks.totals` what was done."""
    lengths, vectors = padded_lengths(tokens, side.max_tokens), blocks[f"{name}.npy"]
    for start, stop in blocks:
        started = time.monotonic()
        padded_tokens = side.encode(tokens, np.arange(start, stop), lengths[start:stop], vectors)
        counts = {"texts": stop - start, "real_tokens": int(lengths[start:stop].sum()), "padded_tokens": padded_tokens}
        blocks.totals.update(counts | {"seconds": time.monotonic() - started})
        progress(stop)


def speed(totals):
    """Texts per second of computing; 0 when nothing was computed."""
    return round(totals["texts"] / totals["seconds"], 1) if totals["seconds"] else 0.0


def open_map(job, name):
    """The token map of `passages` or `queries.SPLIT`."""
    return TokenMap(job.input("tokens", f"{name}.ids.npy"), job.input("tokens", f"{name}.offsets.npy"))


def check_positions(encoder, settings):
    """Raise ValueError when texts may be longer than the encoder has positions."""
    for key in ("max_query_tokens", "max_passage_tokens"):
        if getattr(settings, key) > encoder.max_tokens:
            raise ValueError(
                f"encoder.{key} is {getattr(settings, key)}, but the checkpoint has {encoder.max_tokens} positions. "
                f"Set encoder.{key} to {encoder.max_tokens} or less."
            )
