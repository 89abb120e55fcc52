"""From token ids to packed batches: lengths as the encoder sees them, chunks of long texts, and buckets by length."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from teleport.arrays import Ragged, offsets_of
from teleport.encoder.precision import to_device


@dataclass(frozen=True, eq=False)
class Chunks:
    """All chunks of some texts, text by text, each with a vector of its own: ANCE's MaxP; usually one chunk a text.

    As released (microsoft/ANCE, data/msmarco_data.py and model/models.py): a text is tokenised once, `CLS ids SEP`, cut
    to `most` x max_tokens tokens in all, of which the last is SEP, and split every max_tokens tokens. Each chunk is
    encoded from position 0 on; all but the first begin with an ordinary token, whose vector `pooling: cls` takes. The
    chunks of padding, which the released code masks in training and leaves in its index, do not exist here.
    """

    tokens: Ragged
    max_tokens: int
    most: int = 1

    @cached_property
    def totals(self):
        """Tokens of each text in all its chunks, special tokens included: int64 [n]."""
        return np.minimum(self.tokens.lengths + 2, self.most * self.max_tokens)

    @cached_property
    def offsets(self):
        """int64 [n + 1]: the chunks of text i are those from offsets[i] to offsets[i + 1]; None: each text is one."""
        return offsets_of(-(-self.totals // self.max_tokens)) if self.most > 1 else None

    @cached_property
    def lengths(self):
        """Tokens of each chunk, int64: max_tokens, or what is left in the last one of a text."""
        if self.offsets is None:
            return self.totals
        lengths = np.full(self.offsets[-1], self.max_tokens, np.int64)
        lengths[self.offsets[1:] - 1] = (self.totals - 1) % self.max_tokens + 1
        return lengths

    def packed(self, rows, special):
        """The input of `PackedEncoder` for B chunks, one behind another in the order of `rows`: numpy (ids int64 [T],
        lengths int64 [B]). special: the content of special.json"""
        rows, lengths_B = np.asarray(rows), self.lengths[rows]
        texts_B, starts_B = rows, np.zeros_like(lengths_B)  # of each chunk, its first token in its text
        if self.offsets is not None:
            texts_B = np.searchsorted(self.offsets, rows, side="right") - 1
            starts_B = (rows - self.offsets[texts_B]) * self.max_tokens
        ends_B = np.cumsum(lengths_B)
        begins_B = ends_B - lengths_B
        # Token t of the batch is token t + shift of the map; where it is none, CLS or SEP is put afterwards.
        shift_T = np.repeat(self.tokens.offsets[texts_B] + starts_B - 1 - begins_B, lengths_B)
        cls_B, sep_B = begins_B[starts_B == 0], ends_B[starts_B + lengths_B == self.totals[texts_B]] - 1
        inner_T = np.ones(ends_B[-1], bool)
        inner_T[cls_B] = inner_T[sep_B] = False
        ids_T = np.empty(len(inner_T), np.int64)
        ids_T[inner_T] = self.tokens.values[np.flatnonzero(inner_T) + shift_T[inner_T]]
        ids_T[cls_B], ids_T[sep_B] = special["cls"], special["sep"]
        return ids_T, lengths_B


def length_buckets(lengths, token_budget, padded=False):
    """Batches of texts sorted by length, each of at most token_budget tokens: int64 arrays of positions in `lengths`,
    shortest texts first, ties in their given order. lengths: integers [n], tokens per text as the encoder sees them;
    longer texts get a batch each; padded: whether every text of a batch counts as its longest one"""
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
