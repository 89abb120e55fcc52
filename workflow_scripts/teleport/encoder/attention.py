"""Attention within each text of a packed batch: the texts lie one after another in [T, ...], and nothing is padded.

CPU: module `grouped`, neighbouring texts of equal length together; batches are sorted by length, so there are few such
groups. CUDA: torch's variable-length kernels, which read the packed rows where they lie and draw the dropout.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
import torch
from torch.nn import functional

from teleport.encoder.grouped import GroupedAttention
from teleport.encoder.precision import to_device

WIDTHS = 8  # the kernels want heads of a multiple of this width


@dataclass(frozen=True)
class Spans:
    """Where the texts of a packed batch lie. lengths_B: int64 numpy, tokens of each text (none is 0)."""

    lengths_B: np.ndarray
    device: torch.device
    heads: int

    @cached_property
    def offsets(self):
        """int64 [B + 1] on the device: text i has the tokens offsets[i] to offsets[i + 1] - 1."""
        return to_device(torch.from_numpy(np.concatenate([[0], np.cumsum(self.lengths_B)])), self.device)

    @cached_property
    def offsets32(self):
        """`offsets` as int32, which the kernels of CUDA want."""
        return self.offsets.int()

    @cached_property
    def lengths(self):
        """`lengths_B` on the device."""
        return to_device(torch.from_numpy(self.lengths_B), self.device)

    def groups(self, most_texts):
        """(number of texts, their length) of consecutive texts of equal length; `most_texts(length)` bounds each."""
        for length, texts in groupby(self.lengths_B.tolist()):
            count, most = len(list(texts)), most_texts(length)
            yield from ((min(most, count - done), length) for done in range(0, count, most))


def attention(queries, inputs, spans, rate):
    """Softmax attention of every text to itself.

    queries: [B, H] where one token of each text asks, None where all do; inputs: keys and values [T, 2H], or queries,
    keys and values [T, 3H]; rate: of the dropout of attention weights; returns [B, H] or [T, H]
    """
    if inputs.device.type == "cpu":
        return GroupedAttention.apply(queries, inputs, spans, rate)
    return varlen_attention(queries, inputs, spans, rate)


def varlen_attention(queries, inputs, spans, rate):
    """`attention` by `kernel`, without a copy: its operands are columns of `inputs`."""
    longest, every = int(spans.lengths_B.max()), spans.offsets32
    parts = inputs.view(len(inputs), 3 if queries is None else 2, spans.heads, -1).unbind(1)
    if queries is None:
        return kernel(*parts, every, every, longest, longest, rate).flatten(1)
    first = torch.arange(len(queries) + 1, dtype=torch.int32, device=inputs.device)
    return kernel(queries.view(len(queries), spans.heads, -1), *parts, first, every, 1, longest, rate).flatten(1)


def kernel(q, k, v, offsets_q, offsets_k, longest_q, longest_k, rate):
    """Softmax attention of text i's queries, rows offsets_q[i] to offsets_q[i + 1] - 1 of q, to its keys and values.

    q, k, v: [rows, heads, width of a head], strided; offsets: int32 [B + 1] on the device; returns as q. In bfloat16
    FlashAttention 2, in float32 the memory-efficient kernel, called as torch's attention of nested tensors calls them:
    that takes 2 ms of Python a layer, more than the GPU's work. torch's `varlen_attn` has neither dropout nor float32.
    """
    width, lengths = q.shape[-1], (offsets_q, offsets_k, longest_q, longest_k)
    if width % WIDTHS:
        q, k, v = (functional.pad(x, (0, -width % WIDTHS)) for x in (q, k, v))
    if q.dtype == torch.float32:
        q, k, v = (x.unsqueeze(0) for x in (q, k, v))  # a batch of one, in which the offsets tell the texts apart
        saved = torch.is_grad_enabled()
        found = torch.ops.aten._efficient_attention_forward(q, k, v, None, *lengths, rate, 0, saved, scale=width**-0.5)
        return found[0].squeeze(0)[..., :width]
    found = torch.ops.aten._flash_attention_forward(q, k, v, *lengths, rate, False, False, scale=width**-0.5)
    return found[0][..., :width]
