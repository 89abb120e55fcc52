"""Attention within each text of a packed batch: the texts lie behind one another in [T, ...], and nothing is padded.

CPU: module `grouped`, texts of equal length that lie beside one another together. Batches are sorted by length, so
there are few such groups. CUDA: `scaled_dot_product_attention` of jagged nested tensors. It takes torch's
variable-length kernels, which read the same packed rows and the offsets of the texts and draw the dropout themselves:
FlashAttention 2 (`aten::_flash_attention_forward`) in bfloat16, the memory-efficient kernel
(`aten::_efficient_attention_forward`) in float32. `torch.nn.attention.varlen.varlen_attn` calls the first of them too,
but has neither dropout nor float32.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch.nn import functional

from teleport.encoder.grouped import GroupedAttention


@dataclass(frozen=True)
class Spans:
    """Where the texts of a packed batch lie.

    lengths_B: int64 numpy, tokens of each text in turn (none is 0); heads: of the attention
    """

    lengths_B: np.ndarray
    device: torch.device
    heads: int

    @cached_property
    def offsets(self):
        """int64 [B + 1] on the device: text i has the tokens offsets[i] to offsets[i + 1] - 1."""
        return torch.from_numpy(np.concatenate([[0], np.cumsum(self.lengths_B)])).to(self.device)

    @cached_property
    def lengths(self):
        """`lengths_B` on the device."""
        return torch.from_numpy(self.lengths_B).to(self.device)

    def groups(self, most_texts):
        """(number of texts, their length) of consecutive texts of equal length; `most_texts(length)` bounds each."""
        ends = np.flatnonzero(np.diff(self.lengths_B, append=-1)) + 1
        for count, length in zip(np.diff(ends, prepend=0).tolist(), self.lengths_B[ends - 1].tolist(), strict=True):
            most = most_texts(length)
            yield from ((min(most, count - done), length) for done in range(0, count, most))


def attention(queries, inputs, spans, rate):
    """Softmax attention of every text to itself.

    queries: [B, H] where one token of each text asks, None where all do; inputs: keys and values [T, 2H], or queries,
    keys and values [T, 3H]; rate: of the dropout of attention weights
    returns: [B, H] or [T, H]
    """
    if inputs.is_cuda:
        return jagged_attention(queries, inputs, spans, rate)
    return GroupedAttention.apply(queries, inputs, spans, rate)


def jagged_attention(queries, inputs, spans, rate):
    """`attention` by the variable-length kernels of `scaled_dot_product_attention`."""
    shortest, longest = int(spans.lengths_B.min()), int(spans.lengths_B.max())
    if queries is None:
        q, k, v = (jagged(x, spans.offsets, spans.heads, shortest, longest) for x in inputs.chunk(3, dim=1))
    else:
        first = torch.arange(len(spans.lengths_B) + 1, device=spans.device)
        q = jagged(queries, first, spans.heads, 1, 1)
        k, v = (jagged(x, spans.offsets, spans.heads, shortest, longest) for x in inputs.chunk(2, dim=1))
    mixed = functional.scaled_dot_product_attention(q, k, v, dropout_p=rate)
    return mixed.transpose(1, 2).values().flatten(1)


def jagged(x, offsets, heads, shortest, longest):
    """[T, H] as a nested tensor [B, heads, jagged, H / heads]. The known lengths save a wait for the device."""
    values = x.reshape(len(x), heads, -1).contiguous()
    nested = torch.nested.nested_tensor_from_jagged(values, offsets, min_seqlen=shortest, max_seqlen=longest)
    return nested.transpose(1, 2)
