"""One side of the dual encoder, queries or passages: vectors that are computed, or read where a stage made them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from teleport.encoder.batches import in_order, length_buckets
from teleport.encoder.chunks import Chunks
from teleport.encoder.model import Encoder
from teleport.encoder.packed import PackedEncoder
from teleport.encoder.plain import PlainEncoder, prepare
from teleport.encoder.precision import to_device
from teleport.encoder.tokens import packed, padded_lengths
from teleport.runtime.arrays import Ragged


@dataclass(frozen=True, eq=False)
class Side:
    """Queries or passages: their encoder, their token ids, and the length that they are cut to.

    special: the content of special.json; dtype: the precision of the encoder's products, torch.bfloat16 or None for
    float32; compiled: as `PackedEncoder` takes it; prepared: the encoder with its weights converted once, where they
    do not change. Without it they are converted for every call, so that gradients reach the encoder's parameters.
    most_chunks: with more than 1 a text has as many vectors as it has `Chunks`, and `rows` are numbers of chunks.
    """

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
        """Where the encoder computes."""
        return next(self.encoder.parameters()).device

    @cached_property
    def chunked(self):
        """The `Chunks` of all texts; None where these have a vector each."""
        return Chunks(self.tokens, self.max_tokens, self.most_chunks) if self.most_chunks > 1 else None

    @property
    def offsets(self):
        """int64 [texts + 1]: where the chunks of each text lie; None where these have a vector each."""
        return self.chunked and self.chunked.offsets

    @cached_property
    def lengths(self):
        """Tokens of all texts, or chunks, as the encoder sees them, int64 [n]."""
        return self.chunked.lengths if self.chunked else padded_lengths(self.tokens, self.max_tokens)

    def buckets(self, rows, token_budget):
        """Positions in `rows` of the texts of each bucket, shortest first; a bucket is encoded in one call."""
        return length_buckets(self.lengths[rows], token_budget)

    def encode(self, rows):
        """Float32 [rows, dim] on the encoder's device, and how many tokens were encoded."""
        if self.chunked:
            ids_T, lengths_B = self.chunked.packed(rows, self.special)
        else:
            ids_T, lengths_B = packed(self.tokens, rows, self.max_tokens, self.special)
        encoder = self.prepared or prepare(self.encoder, self.dtype, self.compiled)
        return encoder(ids_T, lengths_B), len(ids_T)

    def vectors(self, rows, token_budget):
        """Float32 [rows, dim] on the encoder's device, in the order of `rows`, and how many tokens were encoded.

        Buckets hold at most `token_budget` tokens, without padding, and all are handed to the device before the first
        is waited for. Their gradients sum to those of one batch, because no text's vector depends on another text.
        """
        buckets = self.buckets(rows, token_budget)
        vectors, tokens = zip(*(self.encode(rows[bucket]) for bucket in buckets), strict=True)
        return in_order(vectors, buckets), sum(tokens)

    def count_tokens(self, rows):
        """How many tokens some texts have together, as the encoder sees them."""
        return int(self.lengths[rows].sum())


@dataclass(frozen=True, eq=False)
class Frozen:
    """A side that is not trained: its vectors are read from what an `encode` stage wrote.

    encoder: the one that made them; array: float32 [n, dim], a memory map; offsets: int64 [texts + 1], where the
    vectors of each text's chunks are, or None: one each; device: where the vectors are wanted
    """

    encoder: Encoder
    array: np.ndarray
    offsets: np.ndarray | None
    device: torch.device

    def vectors(self, rows, token_budget):
        """Float32 [rows, dim] on the device, in the order of `rows`, and 0: no token is encoded."""
        return to_device(torch.from_numpy(np.array(self.array[rows], np.float32)), self.device), 0

    def count_tokens(self, rows):
        """0: no token is encoded."""
        return 0
