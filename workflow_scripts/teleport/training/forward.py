"""Vectors of one side of a training step, without padding: packed chunks of texts under one autograd graph."""

from dataclasses import dataclass

import numpy as np
import torch

from teleport.encoder.batches import in_order, length_buckets
from teleport.encoder.model import Encoder
from teleport.encoder.packed import PackedEncoder
from teleport.encoder.tokens import TokenMap, packed


@dataclass(frozen=True)
class Side:
    """Queries or passages: their encoder, their token ids, and the length that they are cut to.

    `lengths` are the tokens of all texts as the encoder sees them (`tokens.padded_lengths`), int64 [n]; `dtype` is the
    precision of the encoder's products: torch.bfloat16, or None for float32; `compiled` as `PackedEncoder` takes it.
    """

    encoder: Encoder
    tokens: TokenMap
    lengths: np.ndarray
    max_tokens: int
    special: dict
    dtype: torch.dtype | None = None
    compiled: bool = False

    def chunks(self, rows, token_budget):
        """Positions in `rows` of the texts of each chunk, shortest texts first; a chunk is encoded in one call."""
        return length_buckets(self.lengths[rows], token_budget)

    def encode(self, rows):
        """Float32 [rows, dim] on the encoder's device with its graph, and how many tokens were encoded."""
        ids_T, lengths_B = packed(self.tokens, rows, self.max_tokens, self.special)
        return PackedEncoder(self.encoder, self.dtype, self.compiled)(ids_T, lengths_B), len(ids_T)

    def vectors(self, rows, token_budget):
        """Float32 [rows, dim] on the encoder's device, in the order of `rows`, and how many tokens were encoded.

        Chunks hold at most `token_budget` tokens. Their gradients sum to those of one batch, because no text's
        vector depends on another text.
        """
        chunks = self.chunks(rows, token_budget)
        vectors, tokens = zip(*(self.encode(rows[chunk]) for chunk in chunks), strict=True)
        return in_order(vectors, chunks), sum(tokens)
