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


class Encoded:
    """What is encoded by buckets: texts of one side, or of both."""

    def vectors(self, rows, token_budget, each=map):
        """Float32 [rows, dim] on the encoder's device, in the order of `rows`, and how many tokens were encoded.

        Buckets hold at most `token_budget` tokens, without padding, and all are handed to the device before the first
        is waited for. Their gradients sum to those of one batch, because no text's vector depends on another text.
        each: applies a function to buckets, several at a time where it can, and gives the results in order
        """
        buckets = self.buckets(rows, token_budget)
        vectors, tokens = zip(*each(lambda bucket: self.encode(rows[bucket]), buckets), strict=True)
        return in_order(vectors, buckets), sum(tokens)


@dataclass(frozen=True, eq=False)
class Side(Encoded):
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

    def packed(self, rows):
        """(ids of the texts behind one another int64 [T], tokens of each int64 [rows]) as the encoder takes them."""
        if self.chunked:
            return self.chunked.packed(rows, self.special)
        return packed(self.tokens, rows, self.max_tokens, self.special)

    def encode(self, rows):
        """Float32 [rows, dim] on the encoder's device, and how many tokens were encoded."""
        ids_T, lengths_B = self.packed(rows)
        return self.converted()(ids_T, lengths_B), len(ids_T)

    def converted(self):
        """The encoder with its weights in the precision of its products."""
        return self.prepared or prepare(self.encoder, self.dtype, self.compiled)

    def count_tokens(self, rows):
        """How many tokens some texts have together, as the encoder sees them."""
        return int(self.lengths[rows].sum())


@dataclass(frozen=True, eq=False)
class TiedSides(Encoded):
    """Queries and passages of one encoder together: in a bucket with both, its weights are converted once and each gets
    one gradient. Rows are those of queries, and behind the last one those of passages.
    """

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
        packs = [side.packed(own) for side, own in self.apart(rows) if len(own)]
        ids_T, lengths_B = map(np.concatenate, zip(*packs, strict=True))
        return self.queries.converted()(ids_T, lengths_B), len(ids_T)


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
