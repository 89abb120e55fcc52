"""Stage `encode`: the vectors of all passages and of the queries of every split, from the token maps."""

import json
import time
from dataclasses import dataclass

import numpy as np
import torch

from teleport.encoder.batches import length_buckets
from teleport.encoder.blocks import RowBlocks
from teleport.encoder.model import load_encoders
from teleport.encoder.packed import PackedEncoder
from teleport.encoder.precision import pick_device, resolve_precision
from teleport.encoder.tokens import TokenMap, packed, padded_lengths
from teleport.stage import require_free_space

# Tokens per batch. CPU: with 4,096 a layer's activations stay in the cache (16,384 took 1.4 times as
# long). CUDA: enough that a batch's arithmetic hides the launching of its kernels.
TOKEN_BUDGET = {"cpu": 4096, "cuda": 65536}
# Texts per block. Batches are made inside a block, so that they never depend on where a run was killed. In a larger
# block more texts have the same length, which a CPU's attention takes together, but a kill costs up to one of them.
BLOCK_TEXTS = {"cpu": 2048, "cuda": 16384}


@dataclass(frozen=True)
class Side:
    """How one kind of text is encoded; `special` is the content of special.json."""

    encoder: PackedEncoder
    max_tokens: int
    special: dict
    device: torch.device

    def encode(self, tokens, rows, lengths, vectors):
        """Write the vectors of the texts `rows` (a contiguous int64 array) into `vectors` [n, dim], batch by batch.

        lengths: int64 [rows], tokens of these texts as the encoder sees them
        returns: tokens that were encoded: the rows of every token-wise operation
        """
        encoded = 0
        for batch in length_buckets(lengths, TOKEN_BUDGET[self.device.type]):
            ids_T, lengths_B = packed(tokens, rows[batch], self.max_tokens, self.special)
            vectors[rows[batch]] = self.encoder(ids_T, lengths_B).cpu().numpy()
            encoded += len(ids_T)
        return encoded


def run(job):
    """Encode passages with the passage encoder and queries with the query encoder.

    Writes passages.npy and queries.SPLIT.npy, float32 [n, dim]. A killed run continues at its block, with the same
    bits on a CPU. Facts: dim, dtype of the computation; passages_per_second, and texts, real_tokens, padded_tokens,
    which count what this run encoded itself (the rest of it, when it continued a killed one).

    Raises ValueError when a maximum length exceeds the encoder's positions, or when the disk is too full.
    """
    torch.set_num_threads(job.threads)
    settings, device = job.settings, pick_device()
    dtype = resolve_precision(settings.precision, device)
    query_encoder, passage_encoder = load_encoders(job.input("checkpoint", "checkpoint"))
    check_positions(passage_encoder, settings)
    special = json.loads(job.input("tokens", "special.json").read_text())
    with torch.inference_mode():
        packs = {encoder: PackedEncoder(encoder.to(device), dtype) for encoder in (query_encoder, passage_encoder)}
    queries = Side(packs[query_encoder], settings.max_query_tokens, special, device)
    passages = Side(packs[passage_encoder], settings.max_passage_tokens, special, device)
    sides = {"passages": passages} | {f"queries.{split}": queries for split in job.facts("collection")["splits"]}
    maps = {name: open_map(job, name) for name in sides}
    total = sum(map(len, maps.values()))
    require_free_space(job.resume, total * passage_encoder.dim * 4)
    facts = {"dim": passage_encoder.dim, "dtype": "float32" if dtype is None else "bfloat16"}
    facts |= {"texts": 0, "real_tokens": 0, "padded_tokens": 0}
    with torch.inference_mode():
        before = 0
        for name, side in sides.items():
            started = time.monotonic()
            done = encode_texts(job, name, side, maps[name], lambda n, b=before: job.progress(b + n, total, "texts"))
            if name == "passages":
                facts["passages_per_second"] = round(done["texts"] / (time.monotonic() - started), 1)
            facts |= {key: facts[key] + count for key, count in done.items()}
            before += len(maps[name])
    return facts


def encode_texts(job, name, side, tokens, progress):
    """Encode all texts of one token map into NAME.npy, resumably; returns the counts of what this run did."""
    lengths = padded_lengths(tokens, side.max_tokens)
    file = f"{name}.npy"
    array = (np.float32, (len(tokens), side.encoder.dim))
    blocks = RowBlocks(job, {file: array}, BLOCK_TEXTS[side.device.type])
    done = {"texts": 0, "real_tokens": 0, "padded_tokens": 0}
    for start, stop in blocks:
        done["padded_tokens"] += side.encode(tokens, np.arange(start, stop), lengths[start:stop], blocks[file])
        done["real_tokens"] += int(lengths[start:stop].sum())
        done["texts"] += stop - start
        progress(stop)
    blocks.publish()
    return done


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
