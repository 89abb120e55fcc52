"""One side of the dual encoder, queries or passages: vectors that are computed, or read from a finished stage."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from teleport.arrays import Ragged
from teleport.encoder.batches import Chunks, in_order, length_buckets
from teleport.encoder.model import Encoder
from teleport.encoder.precision import autocast, pick_device, to_device
from teleport.encoder.tokens import open_tokens
from teleport.refusal import Refusal


@contextmanager
def batches_at_once(threads):
    """Yields the `parallel_map` of `Side.vectors`. On a CPU it computes as many batches at once as there are threads,
    one thread each, so that the number of threads changes no bit."""
    if threads == 1 or pick_device().type != "cpu":
        yield map
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield lambda function, batches: pool.map(torch.inference_mode()(function), batches)
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, eq=False)
class Side:
    """Queries or passages: their encoder, their token ids, and the length that they are cut to. special: the content of
    special.json; dtype: torch.bfloat16, or None for float32; compiled: whether its layers are; prepared: the encoder
    with its weights converted once (`model.prepare`), if they do not change; most_chunks: above 1 a text has one vector
    for each of its `Chunks`, and `rows` are rows of chunks"""

    encoder: Encoder
    tokens: Ragged
    max_tokens: int
    special: dict
    dtype: torch.dtype | None = None
    compiled: bool = False
    prepared: Encoder | None = None
    most_chunks: int = 1

    @property
    def device(self):
        return self.encoder.device

    @cached_property
    def chunks(self):
        """The `Chunks` of all texts."""
        return Chunks(self.tokens, self.max_tokens, self.special, self.most_chunks)

    @property
    def offsets(self):
        """int64 [texts + 1]: where the chunks of each text begin; None if each text has one vector."""
        return self.chunks.offsets

    @property
    def lengths(self):
        """Tokens of all texts, or chunks, as the encoder sees them, int64 [n]."""
        return self.chunks.lengths

    def vectors(self, rows, token_budget, parallel_map=map):
        """Float32 [rows, D] on the encoder's device, in the order of `rows`, in buckets of at most `token_budget`
        tokens. `parallel_map` may compute several at a time. Their gradients sum to those of one batch, because no
        text's vector depends on another text."""
        buckets = self.buckets(rows, token_budget)
        return in_order(list(parallel_map(lambda bucket: self.encode(rows[bucket]), buckets)), buckets)

    def buckets(self, rows, token_budget):
        """Positions in `rows` of the texts of each bucket, shortest first; a bucket is encoded in one call."""
        return length_buckets(self.lengths[rows], token_budget, padded=not self.encoder.packs)

    def packed(self, rows):
        """(ids of the texts one after another int64 [T], tokens of each int64 [rows]), the encoder's input."""
        return self.chunks.packed(rows)

    def encode(self, rows):
        """Float32 [rows, D] on the encoder's device, in one call."""
        if self.prepared:
            return self.prepared(*self.packed(rows))
        with autocast(self.device, self.dtype):
            return self.encoder(*self.packed(rows))

    def count_tokens(self, rows):
        """The total number of tokens of some texts, as the encoder sees them."""
        return int(self.lengths[rows].sum())


def open_side(job, name, encoder, dtype):
    """The `Side` of "passages" or "queries.SPLIT" from the token maps of a job, whose settings have both lengths.
    Raises Refusal for texts that may be longer than the encoder has positions for."""
    settings, special = job.settings, json.loads(job.input(f"tokens.{name}", "special.json").read_text())
    key, chunks = ("max_passage_tokens", settings.chunks) if name == "passages" else ("max_query_tokens", 1)
    if (length := getattr(settings, key)) > (most := encoder.max_tokens):
        said = f"encoder.{key} is {length}, but the checkpoint has {most} positions"
        raise Refusal(f"{said}. Set encoder.{key} to {most} or less.")
    return Side(encoder, open_tokens(job, name), length, special, dtype, most_chunks=chunks)


@dataclass(frozen=True, eq=False)
class Frozen:
    """A side that is not trained. Its vectors, `array` [n, D] and `offsets` from `arrays.open_passages`, are the output
    of an `encode` stage. device: of the vectors that `vectors` returns"""

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
