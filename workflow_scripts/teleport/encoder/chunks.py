"""Chunks of long texts, each with a vector of its own: ANCE's MaxP.

As released (microsoft/ANCE, data/msmarco_data.py and model/models.py): a text is tokenised once, `CLS ids SEP`, and cut
to chunks x max_tokens tokens in all, of which the last is SEP; these are split every max_tokens tokens, and each chunk
is encoded by itself, from position 0 on. So the first chunk begins with CLS and all others with an ordinary token,
whose vector is what `pooling: cls` takes there. A text has as many chunks as its tokens fill: the chunks of padding,
which the released code masks in training and leaves in its index, do not exist here.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from teleport.encoder.tokens import packed_parts, padded_lengths
from teleport.runtime.arrays import Ragged, offsets_of


@dataclass(frozen=True, eq=False)
class Chunks:
    """All chunks of some texts, numbered text by text.

    tokens: as `open_tokens` gives them; max_tokens: of a chunk; most: chunks per text
    """

    tokens: Ragged
    max_tokens: int
    most: int

    @cached_property
    def totals(self):
        """Tokens of each text in all its chunks, special tokens included: int64 [n]."""
        return padded_lengths(self.tokens, self.most * self.max_tokens)

    @cached_property
    def offsets(self):
        """int64 [n + 1]: the chunks of text i are those from offsets[i] to offsets[i + 1]."""
        return offsets_of(-(-self.totals // self.max_tokens))

    @cached_property
    def lengths(self):
        """Tokens of each chunk, int64: max_tokens, and what is left in the last one of a text."""
        lengths = np.full(self.offsets[-1], self.max_tokens, np.int64)
        lengths[self.offsets[1:] - 1] = (self.totals - 1) % self.max_tokens + 1
        return lengths

    def packed(self, rows, special):
        """The input of `PackedEncoder` for the chunks `rows`, as `tokens.packed` has it for texts."""
        rows = np.asarray(rows)
        texts = np.searchsorted(self.offsets, rows, side="right") - 1
        starts_B = (rows - self.offsets[texts]) * self.max_tokens
        stops_B = starts_B + self.lengths[rows]
        return packed_parts(self.tokens, texts, starts_B, stops_B, self.totals[texts], special)
