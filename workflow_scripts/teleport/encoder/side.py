"""One side of the dual encoder, queries or passages: vectors that are computed, or read where a stage made them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from teleport.encoder.batches import in_order, length_buckets
from teleport.encoder.model import Encoder
from teleport.encoder.packed import PackedEncoder
from teleport.encoder.precision import to_device
from teleport.encoder.tokens import packed, padded_lengths
from teleport.runtime.arrays import Ragged


@dataclass(frozen=True, eq=False)
class Side:
    """Queries or passages: their encoder, their token ids, and the length that they are cut to.

    special: the content of special.json; dtype: the precision of the encoder's products, torch.bfloat16 or None for
    float32; compiled: as `PackedEncoder` takes it; prepared: the encoder with its weights converted once, where they
    do not change. Without it they are converted for every call, so that gradients reach the encoder's parameters.
    """

    encoder: Encoder
    tokens: Ragged
    max_tokens: int
    special: dict
    dtype: torch.dtype | None = None
    compiled: bool = False
    prepared: PackedEncoder | None = None

    @property
    def device(self):
        """Where the encoder computes."""
        return self.encoder.backbone.embeddings.word_embeddings.weight.device

    @cached_property
    def lengths(self):
        """Tokens of all texts as the encoder sees them, int64 [n]."""
        return padded_lengths(self.tokens, self.max_tokens)

    def chunks(self, rows, token_budget):
        """Positions in `rows` of the texts of each chunk, shortest texts first; a chunk is encoded in one call."""
        return length_buckets(self.lengths[rows], token_budget)

    def encode(self, rows):
        """Float32 [rows, dim] on the encoder's device, and how many tokens were encoded."""
        ids_T, lengths_B = packed(self.tokens, rows, self.max_tokens, self.special)
        encoder = self.prepared or PackedEncoder(self.encoder, self.dtype, self.compiled)
        return encoder(ids_T, lengths_B), len(ids_T)

    def vectors(self, rows, token_budget):
        """Float32 [rows, dim] on the encoder's device, in the order of `rows`, and how many tokens were encoded.

        Chunks hold at most `token_budget` tokens, without padding, and all are handed to the device before the first
        is waited for. Their gradients sum to those of one batch, because no text's vector depends on another text.
        """
        chunks = self.chunks(rows, token_budget)
        vectors, tokens = zip(*(self.encode(rows[chunk]) for chunk in chunks), strict=True)
        return in_order(vectors, chunks), sum(tokens)

    def count_tokens(self, rows):
        """How many tokens some texts have together, as the encoder sees them."""
        return int(self.lengths[rows].sum())


@dataclass(frozen=True, eq=False)
class Frozen:
    """A side that is not trained: its vectors are read from what an `encode` stage wrote.

    encoder: the one that made them; array: float32 [n, dim], a memory map; device: where the vectors are wanted
    """

    encoder: Encoder
    array: np.ndarray
    device: torch.device

    def vectors(self, rows, token_budget):
        """Float32 [rows, dim] on the device, in the order of `rows`, and 0: no token is encoded."""
        return to_device(torch.from_numpy(np.array(self.array[rows], np.float32)), self.device), 0

    def count_tokens(self, rows):
        """0: no token is encoded."""
        return 0
