"""The packed encoder as a CPU computes it fastest.

In training a batch is computed in parts, each by threads of its own, in both directions: threads that share every
operator wait for one another thousands of times a step.
"""

from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from teleport.cpu.attention import GroupedAttention, drawing_from, dropout
from teleport.encoder.model import PackedEncoder, Spans
from teleport.threads import threads_apart

TOKENS = 4096  # rows that the layout of the weights is chosen for: a batch of encoding; others are right too
PART_TOKENS = 1536  # at most, but for a last text; at least half of it


class CpuEncoder(PackedEncoder):
    """A `PackedEncoder` with attention over groups of texts, cheaper dropout, weights in oneDNN's layout where it
    encodes, and batches in parts where it trains."""

    attention, dropout = staticmethod(GroupedAttention.apply), staticmethod(dropout)

    def pooled(self, hidden_TH, spans):
        """As `PackedEncoder.pooled`, in parts."""
        layers = self.encoder.backbone.encoder.layer
        sums = [part for layer in layers for part in (layer.attention.output, layer.output)]
        norms = [tensor for part in sums for tensor in part.LayerNorm.parameters()]
        products = [tensor for weights in self.weights for pair in weights if pair for tensor in pair]
        return in_parts(super().pooled, hidden_TH, spans, products + norms)

    def product(self, *modules):
        """As `PackedEncoder.product`, the weight prepacked."""
        weight, bias = super().product(*modules)
        return prepack_for_onednn(weight), bias

    @staticmethod
    def linear(x, weight, bias, activation=None):
        """x @ weight.T + bias, then the activation (a module), which is part of the product where that can be."""
        if not weight.is_mkldnn:
            return PackedEncoder.linear(x, weight, bias, activation)
        fused = isinstance(activation, nn.GELU) and activation.approximate == "none"
        y = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "gelu" if fused else "none", [], "none")
        return activation(y) if activation and not fused else y


def prepack_for_onednn(weight):
    """The weight laid out once as oneDNN wants it, in place of in every product.

    torch.compile makes these operators of `linear` when it freezes weights. They are private: where torch or the
    processor lacks them, a gradient may be wanted, or plain products are faster, the weight stays what it is.
    """
    if not (torch.is_inference_mode_enabled() and gains_by_prepacking() and has_operators(weight.dtype)):
        return weight
    return torch.ops.mkldnn._reorder_linear_weight(weight, TOKENS)


def gains_by_prepacking():
    """Whether oneDNN's products are the faster ones here: without AVX-512 they are not, least of all with GELU."""
    return torch.backends.cpu.get_cpu_capability() != "AVX2"


def has_operators(dtype):
    """Whether this torch has them for a type on this processor."""
    names = "_linear_pointwise", "_reorder_linear_weight", "_is_mkldnn_bf16_supported"
    if not torch.backends.mkldnn.is_available() or not all(hasattr(torch.ops.mkldnn, name) for name in names):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


@contextmanager
def batches_at_once(threads):
    """Yields a `map` that computes as many batches at once as there are threads.

    A thread computes a batch alone, so that their number changes no bit.
    """
    with threads_apart(threads) as pool:
        yield lambda function, batches: pool.map(torch.inference_mode()(function), batches)


class Part(NamedTuple):
    """Texts of a batch next to one another: which they are, and the rows of their tokens."""

    texts: slice
    rows: slice
    spans: Spans


def in_parts(compute, hidden_TH, spans, weights):
    """compute(hidden_TH, spans), [T, H] -> [B, H], a row a text, in parts where that is faster.

    weights: all tensors that `compute` reads and that gradients may go to. The parts and the numbers that dropout draws
    follow from the lengths of the texts alone, not from the number of threads. In inference mode a batch stays whole,
    because encoding computes several of them at once; so it does elsewhere than on a CPU.
    """
    whole = hidden_TH.device.type != "cpu" or torch.is_inference_mode_enabled()
    if whole or len(parts := divide(spans)) == 1:
        return compute(hidden_TH, spans)
    return InParts.apply(compute, parts, torch.is_grad_enabled(), hidden_TH, *weights)


def divide(spans):
    """The `Part`s of a batch, about equally many tokens each; a power of two, so that threads get equally many."""
    lengths_B = spans.lengths_B
    starts = np.concatenate([[0], np.cumsum(lengths_B)])
    count = 2 ** max(0, int(np.ceil(np.log2(starts[-1] / PART_TOKENS))))
    cuts = np.searchsorted((starts[1:] + starts[:-1]) / 2, starts[-1] * np.arange(count + 1) / count)  # the nearest
    made = [slice(*pair) for pair in pairwise(cuts) if pair[0] < pair[1]]
    rows = [slice(int(starts[texts.start]), int(starts[texts.stop])) for texts in made]
    own = [Spans(lengths_B[texts], spans.device, spans.heads) for texts in made]
    return [Part(*part) for part in zip(made, rows, own, strict=True)]


class InParts(torch.autograd.Function):
    """`in_parts`, its gradient too: each part has a graph of its own, and their gradients are summed in their order."""

    @staticmethod
    def forward(context, compute, parts, differentiable, hidden_TH, *weights):
        """compute, parts, hidden_TH, weights: see `in_parts`; differentiable: whether to make the graphs."""
        seeds = torch.randint(2**62, (len(parts),)).tolist()

        def forward(part, seed):
            with torch.set_grad_enabled(differentiable), drawing_from(torch.Generator().manual_seed(seed)):
                hidden = hidden_TH[part.rows].detach().requires_grad_(differentiable)
                return hidden, compute(hidden, part.spans)

        with at_once(len(parts)) as each:
            graphs = list(each(forward, parts, seeds))
        context.graphs, context.weights = (graphs, weights) if differentiable else ([], [])
        return torch.cat([pooled.detach() for _, pooled in graphs])

    @staticmethod
    def backward(context, by_pooled_BH):
        """A sum is in float32, also where the weights and the gradients of the parts are in bfloat16."""
        graphs, weights, context.graphs = context.graphs, context.weights, None

        def backward(graph, share):
            hidden, pooled = graph
            return torch.autograd.grad(pooled, [hidden, *weights], share)

        by_hidden, sums = [], [torch.zeros_like(w, dtype=torch.promote_types(w.dtype, torch.float32)) for w in weights]
        with at_once(len(graphs)) as each:  # what a part gives is summed while others are computed
            for own, *gradients in each(backward, graphs, by_pooled_BH.split([len(pooled) for _, pooled in graphs])):
                by_hidden.append(own)
                for total, gradient in zip(sums, gradients, strict=True):
                    total += gradient
        found = [total.to(weight.dtype) for total, weight in zip(sums, weights, strict=True)]
        return None, None, None, torch.cat(by_hidden), *found


@contextmanager
def at_once(parts):
    """Yields a `map` that has torch's threads compute several of so many parts at once."""
    if (threads := torch.get_num_threads()) == 1:
        yield map
        return
    with threads_apart(min(parts, threads), max(1, threads // parts)) as pool:
        yield pool.map
