"""Attention within each text of a packed batch: the texts lie behind one another in [T, ...], and nothing is padded.

CPU: texts of equal length that lie beside one another are one batched product. Batches are sorted by length, so there
are few such groups. CUDA: `scaled_dot_product_attention` of jagged nested tensors. It takes torch's variable-length
kernels, which read the same packed rows and the offsets of the texts and draw the dropout themselves:
FlashAttention 2 (`aten::_flash_attention_forward`) in bfloat16, the memory-efficient kernel
(`aten::_efficient_attention_forward`) in float32. `torch.nn.attention.varlen.varlen_attn` calls the first of them too,
but has neither dropout nor float32.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch.nn import functional

from teleport.encoder.dropout import dropout

# Scores of one batched product on a CPU, so that they stay in a core's cache (1 MB in float32) until they are used.
# 72 tokens and 12 heads, float32: 14 ms with 4 texts at a time, 40 ms with all 56 of a batch.
SCORES = 2**18


@dataclass(frozen=True)
class Spans:
    """Where the texts of a packed batch lie; lengths_B: int64 numpy, tokens of each text in turn (none is 0)."""

    lengths_B: np.ndarray
    device: torch.device

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


def attention(queries, keys_values, spans, heads, rate):
    """Softmax attention of every text to itself.

    queries: [T, H], or [B, H] when only one token of each text asks; keys_values: [T, 2H]; rate: of the dropout of
    attention weights
    returns: like `queries`
    """
    kernel = jagged_attention if queries.is_cuda else grouped_attention
    return kernel(queries, keys_values, spans, heads, rate)


def grouped_attention(queries, keys_values, spans, heads, rate):
    """`attention` as batched products over groups of texts of equal length."""
    one_query = len(queries) != len(keys_values)
    groups = list(spans.groups(lambda length: max(1, SCORES // (heads * length * (1 if one_query else length)))))
    # split, not slices: its gradient is one concatenation, that of a slice a whole tensor of zeros.
    keys_values = keys_values.split([texts * length for texts, length in groups])
    queries = queries.split([texts * (1 if one_query else length) for texts, length in groups])
    return torch.cat([group(*inputs, heads, rate) for inputs in zip(queries, keys_values, groups, strict=True)])


def group(queries, keys_values, texts_and_length, heads, rate):
    """`attention` of N texts of L tokens: queries [N*L or N, H], keys_values [N*L, 2H].

    In float32 even when these are bfloat16: the softmax is faster, the products and copies are slower, so the time is
    about the same, and the vectors are a little closer to those of float32.
    """
    texts, length = texts_and_length
    width = queries.shape[1] // heads
    q_NhQD = queries.view(texts, -1, heads, width).transpose(1, 2)
    k_NhLD, v_NhLD = keys_values.view(texts, length, 2, heads, width).permute(2, 0, 3, 1, 4)
    dtype = torch.promote_types(queries.dtype, torch.float32)
    contiguous = {"dtype": dtype, "memory_format": torch.contiguous_format}
    q, k, v = (x.to(**contiguous).reshape(texts * heads, -1, width) for x in (q_NhQD, k_NhLD, v_NhLD))
    scores = torch.baddbmm(q.new_zeros(()), q, k.transpose(1, 2), beta=0, alpha=width**-0.5)
    weights = dropout(scores.softmax(-1), rate)
    mixed = torch.bmm(weights, v).view(texts, heads, -1, width)
    return mixed.transpose(1, 2).reshape(queries.shape).to(queries.dtype)


def jagged_attention(queries, keys_values, spans, heads, rate):
    """`attention` by the variable-length kernels of `scaled_dot_product_attention`."""
    keys, values = keys_values.chunk(2, dim=1)
    one_query = len(queries) != len(keys)
    shortest, longest = (1, 1) if one_query else (int(spans.lengths_B.min()), int(spans.lengths_B.max()))
    first = torch.arange(len(spans.lengths_B) + 1, device=spans.device) if one_query else spans.offsets
    q = jagged(queries, first, heads, shortest, longest)
    k, v = (
        jagged(x, spans.offsets, heads, int(spans.lengths_B.min()), int(spans.lengths_B.max())) for x in (keys, values)
    )
    mixed = functional.scaled_dot_product_attention(q, k, v, dropout_p=rate)
    return mixed.transpose(1, 2).values().reshape(queries.shape)


def jagged(x, offsets, heads, shortest, longest):
    """[T, H] as a nested tensor [B, heads, jagged, H / heads]. The known lengths save a wait for the device."""
    values = x.reshape(len(x), heads, -1).contiguous()
    nested = torch.nested.nested_tensor_from_jagged(values, offsets, min_seqlen=shortest, max_seqlen=longest)
    return nested.transpose(1, 2)
