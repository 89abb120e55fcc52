"""An attention function, registered with transformers, so that its models encode packed texts without padding.

A packed batch is one row of tokens, text after text: `input_ids` [1, T] with `position_ids` that restart with every
text, and a `Packing` with the positions of the texts. Everything else in a model works token by token, so only the
attention has to keep the texts apart. On CUDA one kernel for variable lengths does so. Elsewhere, and in the few cases
without a kernel, neighbouring texts of equal length go through torch's own attention together.
"""

from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional
from transformers import AttentionInterface

from teleport.encoder.precision import to_device

PACKED = "packed"  # the name of this attention for transformers
HEAD_WIDTHS = 8  # CUDA's kernels take heads whose width is a multiple of it
CAUSAL = 1  # `custom_mask_type` of the memory-efficient kernel: a token attends to the tokens before it


class Packing(NamedTuple):
    """The positions of the texts in a packed batch. lengths: int64 [B], on the CPU; offsets: int32 [B + 1], on the
    device, text i has the tokens offsets[i] to offsets[i + 1] - 1; longest: the most tokens of a text."""

    lengths: torch.Tensor
    offsets: torch.Tensor
    longest: int

    @classmethod
    def of(cls, lengths_B, device):
        """The packing of texts with these lengths in tokens (int64 numpy, none is 0)."""
        offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths_B)]).astype(np.int32))
        return cls(torch.from_numpy(lengths_B), to_device(offsets, device), int(lengths_B.max()))


def packed_attention(
    module, query, key, value, attention_mask=None, scaling=None, dropout=0.0, sliding_window=None, packing=None, **_
):
    """Attention of every text to itself, as transformers calls it: [1, heads, T, width] -> [1, T, heads, width].

    scaling: factor on the products, None: width ** -0.5; sliding_window: a token attends to tokens fewer positions
    away. key and value may have fewer heads (grouped queries). Decoders attend only to earlier tokens (`is_causal`).
    """
    q, k, v = query[0], key[0], value[0]
    if q.dtype != v.dtype:  # a decoder's rotation is float32 under autocast, which casts nothing for private operators
        q, k = q.to(v.dtype), k.to(v.dtype)
    scaling = q.shape[-1] ** -0.5 if scaling is None else scaling
    options = dropout, getattr(module, "is_causal", False), sliding_window, scaling
    if q.device.type == "cpu" or not has_kernel(q.dtype, dropout, sliding_window):
        return by_equal_lengths(q, k, v, packing, *options).unsqueeze(0), None
    return varlen(*(x.transpose(0, 1) for x in (q, k, v)), packing, *options).unsqueeze(0), None


AttentionInterface.register(PACKED, packed_attention)


def by_equal_lengths(q, k, v, packing, dropout, causal, window, scaling):
    """Attention of neighbouring texts of equal length together: [heads, T, width] -> [T, heads, width]."""
    groups = [(length, len(list(equal))) for length, equal in groupby(packing.lengths.tolist())]
    parts = (x.split([length * texts for length, texts in groups], 1) for x in (q, k, v))
    mixed = []
    for (length, texts), *qkv in zip(groups, *parts, strict=True):
        by_text = (x.unflatten(1, (texts, length)).transpose(0, 1) for x in qkv)  # [texts, heads, length, width]
        near = within(length, window, causal, q.device) if window and length > window else None
        made = functional.scaled_dot_product_attention(
            *by_text, near, dropout, causal and near is None, scale=scaling, enable_gqa=len(q) != len(k)
        )
        mixed.append(made.transpose(1, 2).flatten(0, 1))
    return torch.cat(mixed)


def within(length, window, causal, device):
    """Return which tokens of a text attend to which: bool [length, length], True if fewer than `window` positions
    apart."""
    places = torch.arange(length, device=device)
    back = places[:, None] - places
    return (back >= 0) & (back < window) if causal else back.abs() < window


def has_kernel(dtype, dropout, window):
    """Whether this torch has a CUDA kernel for it: in half precision FlashAttention, by its private operator or,
    without dropout, by its public name; in float32 the memory-efficient one, which has no two-sided window."""
    if dtype == torch.float32:
        return takes(EFFICIENT) and not window
    return takes(FLASH) or not dropout


# The arguments that `varlen` gives to torch's private operators, in their order.
FLASH = ("_flash_attention_forward", "query key value cum_seq_q cum_seq_k max_q max_k dropout_p is_causal "
         "return_debug_mask scale window_size_left window_size_right")  # fmt: skip
EFFICIENT = ("_efficient_attention_forward", "query key value bias cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k "
             "dropout_p custom_mask_type compute_log_sumexp scale")  # fmt: skip


@torch.compiler.assume_constant_result  # torch.compile cannot read a schema, and would end its program here
def takes(operator):
    """Whether this torch has a private operator (name, arguments) that begins with these arguments."""
    name, arguments = operator
    if not hasattr(torch.ops.aten, name):
        return False
    known = [argument.name for argument in getattr(torch.ops.aten, name).default._schema.arguments]
    return known[: len(arguments.split())] == arguments.split()


def varlen(q, k, v, packing, dropout, causal, window, scaling):
    """Return the same as `by_equal_lengths`, by one kernel, from [T, heads, width]. Heads are padded to a width that
    kernels take."""
    width, lengths = q.shape[-1], (packing.offsets, packing.offsets, packing.longest, packing.longest)
    if width % HEAD_WIDTHS:
        q, k, v = (functional.pad(x, (0, -width % HEAD_WIDTHS)) for x in (q, k, v))
    if q.dtype == torch.float32:
        return efficient(q, k, v, lengths, dropout, causal, scaling)[..., :width]
    before = after = -1 if window is None else window - 1  # positions; -1: all
    after = 0 if causal else after
    if takes(FLASH):
        if window is None:  # the kernel without a window is the faster one
            before = after = None
        made = torch.ops.aten._flash_attention_forward(
            q, k, v, *lengths, dropout, causal, False, scale=scaling, window_size_left=before, window_size_right=after
        )
        return made[0][..., :width]
    from torch.nn.attention.varlen import varlen_attn

    made = varlen_attn(q, *repeated(q, k, v), *lengths, scale=scaling, window_size=(before, after))
    return made[..., :width]


def repeated(q, k, v):
    """(k, v) [T, heads, width] with as many heads as q: those that queries share are repeated."""
    shared = q.shape[1] // k.shape[1]
    return tuple(x.repeat_interleave(shared, 1) if shared > 1 else x for x in (k, v))


@torch.compiler.disable  # its backward pass cannot be compiled: torch 2.11 gives its shape function `scale` twice
def efficient(q, k, v, lengths, dropout, causal, scaling):
    """The memory-efficient kernel, for float32: [T, heads, width], where width is a multiple of HEAD_WIDTHS."""
    q, k, v = (x.unsqueeze(0) for x in (q, *repeated(q, k, v)))  # a batch of one; the offsets separate the texts
    saved, mask = torch.is_grad_enabled(), CAUSAL if causal else 0
    made = torch.ops.aten._efficient_attention_forward(q, k, v, None, *lengths, dropout, mask, saved, scale=scaling)
    return made[0].squeeze(0)
