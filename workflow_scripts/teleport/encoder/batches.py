"""Packed batches of token ids: lengths as the encoder sees them, chunks of long texts, and buckets by length."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from teleport.arrays import Ragged, offsets_of
from teleport.encoder.precision import to_device


@dataclass(frozen=True, eq=False)
class Chunks:
    """All chunks of some texts, text by text. Each chunk has a vector (ANCE's MaxP); usually a text is one chunk.

    tokens: ids without special tokens; special: the content of special.json, whose lists `before` and `after` are put
    around a text. A text is cut to `most` x max_tokens tokens in all, the last of them `after`, and split every
    max_tokens tokens (microsoft/ANCE, data/msmarco_data.py and model/models.py). Each chunk is encoded from position 0
    on. All but the first begin with an ordinary token, and `pooling: cls` takes its vector. The released code also has
    chunks of padding, which it masks in training and leaves in its index; they do not exist here.
    """

    tokens: Ragged
    max_tokens: int
    special: dict
    most: int = 1

    @cached_property
    def totals(self):
        """Tokens of each text in all its chunks, special tokens included: int64 [n]; at least one, so that an empty
        text has a vector."""
        around = len(self.special["before"]) + len(self.special["after"])
        return np.clip(self.tokens.lengths + around, 1, self.most * self.max_tokens)

    @cached_property
    def offsets(self):
        """int64 [n + 1]: text i has the chunks offsets[i] to offsets[i + 1] - 1; None: each text is one chunk."""
        return offsets_of(-(-self.totals // self.max_tokens)) if self.most > 1 else None

    @cached_property
    def lengths(self):
        """Tokens of each chunk, int64: max_tokens, or the rest in the last chunk of a text."""
        if self.offsets is None:
            return self.totals
        lengths = np.full(self.offsets[-1], self.max_tokens, np.int64)
        lengths[self.offsets[1:] - 1] = (self.totals - 1) % self.max_tokens + 1
        return lengths

    def packed(self, rows):
        """The input of an `Encoder` for B chunks, one after another in the order of `rows`: numpy (ids int64 [T],
        lengths int64 [B])."""
        rows, lengths_B = np.asarray(rows), self.lengths[rows]
        texts_B, starts_B = rows, np.zeros_like(lengths_B)  # of each chunk: its text, its first token in the text
        if self.offsets is not None:
            texts_B = np.searchsorted(self.offsets, rows, side="right") - 1
            starts_B = (rows - self.offsets[texts_B]) * self.max_tokens
        before, after = self.special["before"], self.special["after"]
        begins_B = np.cumsum(lengths_B) - lengths_B
        place_T = np.arange(lengths_B.sum()) + np.repeat(starts_B - begins_B, lengths_B)  # in its text
        left_T = np.repeat(self.totals[texts_B], lengths_B) - place_T  # tokens from here to the text's end
        own_T = (place_T >= len(before)) & (left_T > len(after))
        row_T = place_T + np.repeat(self.tokens.offsets[texts_B] - len(before), lengths_B)  # in the token map
        own_T &= row_T < np.repeat(self.tokens.offsets[texts_B + 1], lengths_B)
        ids_T = np.full(len(place_T), self.special["pad"] or 0, np.int64)  # only an empty text keeps it
        ids_T[own_T] = self.tokens.values[row_T[own_T]]
        for place, token in enumerate(before):
            ids_T[place_T == place] = token
        for left, token in enumerate(reversed(after), 1):
            ids_T[left_T == left] = token
        return ids_T, lengths_B


def length_buckets(lengths, token_budget, padded=False):
    """Batches of texts sorted by length, each of at most token_budget tokens: int64 arrays of positions in `lengths`,
    shortest texts first, ties in their given order. lengths: integers [n], tokens per text as the encoder sees them;
    longer texts get a batch each; padded: whether every text of a batch counts like its longest one"""
    order, batches, start = np.argsort(lengths, kind="stable"), [], 0
    ascending = np.asarray(lengths)[order]
    while start < len(order):
        ahead = ascending[start : start + token_budget]
        totals = ahead * np.arange(1, len(ahead) + 1) if padded else np.cumsum(ahead)
        stop = start + max(1, int(np.searchsorted(totals, token_budget, side="right")))
        batches.append(order[start:stop])
        start = stop
    return batches


def in_order(vectors, batches):
    """One tensor [n, D] of the vectors of all batches, each row in the position that its batch names."""
    positions = torch.from_numpy(np.argsort(np.concatenate(batches)))
    return torch.cat(vectors)[to_device(positions, vectors[0].device)]
