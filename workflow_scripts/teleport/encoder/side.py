"""One side of the dual encoder, queries or passages: vectors that are computed, or read where a stage made them."""

import json
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from teleport.arrays import Ragged, in_slots, slots_within
from teleport.encoder.architectures import ARCHITECTURES
from teleport.encoder.batches import Chunks, in_order, length_buckets
from teleport.encoder.model import Encoder, PackedEncoder
from teleport.encoder.precision import pick_device, to_device
from teleport.encoder.tokens import open_tokens
from teleport.on_cpu import cpu_module
from teleport.refusal import Refusal


def prepare(encoder, dtype=None, compiled=False):
    """What encodes packed texts with an `Encoder`; see `PackedEncoder`."""
    if not packs(encoder):
        return PlainEncoder(encoder, dtype)
    cpu = encoder.device.type == "cpu" and cpu_module("encoder")
    return (cpu.CpuEncoder if cpu else PackedEncoder)(encoder, dtype, compiled)


def packs(encoder):
    """Whether an `Encoder` encodes packed texts: where its architecture is covered (see there)."""
    return ARCHITECTURES[encoder.backbone.config.model_type].packed


def batches_at_once(threads):
    """A context that yields the `parallel_map` of `Encoded.vectors`: several batches at once on a CPU with threads."""
    cpu = threads > 1 and pick_device().type == "cpu" and cpu_module("encoder")
    return cpu.batches_at_once(threads) if cpu else nullcontext(map)


class PlainEncoder:
    """An `Encoder` whose backbone is a model of transformers over padded texts; dtype: as for `PackedEncoder`."""

    def __init__(self, encoder, dtype=None):
        self.encoder, self.dtype = encoder, dtype

    def __call__(self, ids_T, lengths_B):
        """As `PackedEncoder.__call__`."""
        device = self.encoder.device
        padded = in_slots(lengths_B, ids_T, self.encoder.backbone.config.pad_token_id), slots_within(lengths_B)
        ids_BT, mask_BT = (to_device(torch.from_numpy(array.astype(np.int64)), device) for array in padded)
        with torch.autocast(device.type, dtype=self.dtype or torch.bfloat16, enabled=self.dtype is not None):
            return self.encoder(ids_BT, mask_BT)


class Encoded:
    """What is encoded by buckets: texts of one side, or of both."""

    def vectors(self, rows, token_budget, parallel_map=map):
        """Float32 [rows, D] on the encoder's device, in the order of `rows`, by buckets of at most `token_budget`
        tokens, of which `parallel_map` may compute several at a time. Their gradients sum to those of one batch, as no
        text's vector depends on another text."""
        buckets = self.buckets(rows, token_budget)
        return in_order(list(parallel_map(lambda bucket: self.encode(rows[bucket]), buckets)), buckets)


@dataclass(frozen=True, eq=False)
class Side(Encoded):
    """Queries or passages: their encoder, their token ids, and the length that they are cut to. special: the content of
    special.json; dtype, compiled: as `PackedEncoder` takes them; prepared: the encoder with its weights converted once,
    where they do not change; most_chunks: with more than 1 a text has as many vectors as it has `Chunks`, and `rows`
    are those of chunks"""

    encoder: Encoder
    tokens: Ragged
    max_tokens: int
    special: dict
    dtype: torch.dtype | None = None
    compiled: bool = False
    prepared: PackedEncoder | PlainEncoder | None = None
    most_chunks: int = 1

    @property
    def device(self):
        return self.encoder.device

    @cached_property
    def chunks(self):
        """The `Chunks` of all texts."""
        return Chunks(self.tokens, self.max_tokens, self.most_chunks)

    @property
    def offsets(self):
        """int64 [texts + 1]: where the chunks of each text lie; None where these have a vector each."""
        return self.chunks.offsets

    @property
    def lengths(self):
        """Tokens of all texts, or chunks, as the encoder sees them, int64 [n]."""
        return self.chunks.lengths

    def buckets(self, rows, token_budget):
        """Positions in `rows` of the texts of each bucket, shortest first; a bucket is encoded in one call."""
        return length_buckets(self.lengths[rows], token_budget, padded=not packs(self.encoder))

    def packed(self, rows):
        """(ids of the texts behind one another int64 [T], tokens of each int64 [rows]) as the encoder takes them."""
        return self.chunks.packed(rows, self.special)

    def encode(self, rows):
        """Float32 [rows, D] on the encoder's device, in one call."""
        return self.encode_packed(*self.packed(rows))

    def encode_packed(self, ids_T, lengths_B):
        """Vectors of a packed batch: token ids [T] of texts of `lengths_B` tokens."""
        return (self.prepared or prepare(self.encoder, self.dtype, self.compiled))(ids_T, lengths_B)

    def count_tokens(self, rows):
        """How many tokens some texts have together, as the encoder sees them."""
        return int(self.lengths[rows].sum())


def open_side(job, name, encoder, dtype, compiled, prepared=None):
    """The `Side` of "passages" or "queries.SPLIT" from the token maps of a job, whose settings have both lengths.
    Raises Refusal for texts that may be longer than the encoder has positions for."""
    settings, special = job.settings, json.loads(job.input("tokens", "special.json").read_text())
    key, chunks = ("max_passage_tokens", settings.chunks) if name == "passages" else ("max_query_tokens", 1)
    if (length := getattr(settings, key)) > (most := encoder.max_tokens):
        said = f"encoder.{key} is {length}, but the checkpoint has {most} positions"
        raise Refusal(f"{said}. Set encoder.{key} to {most} or less.")
    return Side(encoder, open_tokens(job, name), length, special, dtype, compiled, prepared, chunks)


@dataclass(frozen=True, eq=False)
class TiedSides(Encoded):
    """Queries and passages of one encoder together: in a bucket with both, its weights are converted once and each gets
    one gradient. Rows are those of queries, and behind the last one those of passages."""

    queries: Side
    passages: Side

    def rows(self, queries_Q, passages_P):
        """Of some queries and some passages (int64), in this order."""
        return np.concatenate([queries_Q, len(self.queries.lengths) + passages_P])

    def apart(self, rows):
        """(side, its own rows) of the queries and of the passages among `rows`."""
        first = len(self.queries.lengths)
        return (self.queries, rows[rows < first]), (self.passages, rows[rows >= first] - first)

    def buckets(self, rows, token_budget):
        """As those of a `Side`, but for the queries of a bucket, which come before its passages."""
        lengths, of_passage = np.empty_like(rows), rows >= len(self.queries.lengths)
        for which, (side, own) in zip((~of_passage, of_passage), self.apart(rows), strict=True):
            lengths[which] = side.lengths[own]
        buckets = length_buckets(lengths, token_budget)
        return [bucket[np.argsort(of_passage[bucket], kind="stable")] for bucket in buckets]

    def encode(self, rows):
        """As that of a `Side`; the queries among `rows` come first."""
        both = [side.packed(own) for side, own in self.apart(rows) if len(own)]
        return self.queries.encode_packed(*map(np.concatenate, zip(*both, strict=True)))


@dataclass(frozen=True, eq=False)
class Frozen:
    """A side that is not trained: its vectors, `array` [n, D] and `offsets` as `arrays.open_passages` gives them, are
    read from what an `encode` stage wrote. device: where the vectors are wanted"""

    encoder: Encoder
    array: np.ndarray
    offsets: np.ndarray | None
    device: torch.device

    def vectors(self, rows, token_budget):
        """Float32 [rows, D] on the device, in the order of `rows`; no token is encoded."""
        return to_device(torch.from_numpy(np.array(self.array[rows], np.float32)), self.device)

    def count_tokens(self, rows):
        """0: nothing is encoded."""
        return 0
