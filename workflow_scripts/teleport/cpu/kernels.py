"""The packed encoder as a CPU computes it fastest. In training a batch is divided into shares, each computed by threads
of its own, in both directions: threads that share every operator wait for one another thousands of times a step."""

from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from teleport.cpu.attention import GroupedAttention, drawing_from, dropout
from teleport.cpu.threads import threads_apart
from teleport.encoder.model import PackedEncoder, Spans

TOKENS = 4096  # rows that the layout of the weights is chosen for: a batch of encoding; others are right too
SHARE_TOKENS = 1536  # at most, but for a last text; at least half of it


class CpuEncoder(PackedEncoder):
    """A `PackedEncoder` with attention over groups of texts, cheaper dropout, weights in oneDNN's layout where it
    encodes, and batches in shares where it trains."""

    attention, dropout = staticmethod(GroupedAttention.apply), staticmethod(dropout)

    def pooled(self, hidden_TH, spans):
        """As `PackedEncoder.pooled`, in shares where that is faster. These and what dropout draws follow from the
        lengths of the texts alone, not from how many threads there are. In inference mode, where several batches are
        encoded at once, and elsewhere than on a CPU a batch stays whole."""
        whole = hidden_TH.device.type != "cpu" or torch.is_inference_mode_enabled()
        if whole or len(shares := divide(spans)) == 1:
            return super().pooled(hidden_TH, spans)
        layers = self.encoder.backbone.encoder.layer
        norms = [half.LayerNorm for layer in layers for half in (layer.attention.output, layer.output)]
        norms = [tensor for norm in norms for tensor in norm.parameters()]
        products = [tensor for weights in self.weights for pair in weights if pair for tensor in pair]
        return InShares.apply(super().pooled, shares, torch.is_grad_enabled(), hidden_TH, *products, *norms)

    def product(self, *modules):
        """As `PackedEncoder.product`, the weight prepacked."""
        weight, bias = super().product(*modules)
        return prepack_for_onednn(weight), bias

    @staticmethod
    def linear(x, weight, bias, activation=None):
        """As `PackedEncoder.linear`; the activation is part of the product where that can be."""
        if not weight.is_mkldnn:
            return PackedEncoder.linear(x, weight, bias, activation)
        fused = isinstance(activation, nn.GELU) and activation.approximate == "none"
        y = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "gelu" if fused else "none", [], "none")
        return activation(y) if activation and not fused else y


def prepack_for_onednn(weight):
    """The weight laid out once as oneDNN wants it, in place of in every product. torch.compile makes these operators of
    `linear` when it freezes weights. They are private: where torch or the processor lacks them, a gradient may be
    wanted, or plain products are faster, the weight stays what it is."""
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
    """Yields a `map` that computes as many batches at once as there are threads, each by one: so that how many there
    are changes no bit."""
    with threads_apart(threads) as pool:
        yield lambda function, batches: pool.map(torch.inference_mode()(function), batches)


class Share(NamedTuple):
    """Texts of a batch next to one another: the rows of their tokens, and their spans."""

    rows: slice
    spans: Spans


def divide(spans):
    """The `Share`s of a batch, about equally many tokens each; a power of two, so that threads get equally many."""
    lengths_B = spans.lengths_B
    starts = np.concatenate([[0], np.cumsum(lengths_B)])
    shares = 2 ** max(0, int(np.ceil(np.log2(starts[-1] / SHARE_TOKENS))))
    cuts = np.searchsorted((starts[1:] + starts[:-1]) / 2, starts[-1] * np.arange(shares + 1) / shares)  # the nearest
    return [
        Share(slice(int(starts[first]), int(starts[last])), Spans(lengths_B[first:last], spans.device, spans.heads))
        for first, last in pairwise(cuts)
        if first < last
    ]


class InShares(torch.autograd.Function):
    """`PackedEncoder.pooled` of shares, float32 [T, H] -> [B, H], and its gradient: each share has a graph of its own,
    and their gradients are summed in their order."""

    @staticmethod
    def forward(context, compute, shares, differentiable, hidden_TH, *weights):
        """compute: a function of rows and their spans; differentiable: whether to make the graphs; weights: all tensors
        that `compute` reads and that gradients may go to."""
        seeds = torch.randint(2**62, (len(shares),)).tolist()

        def forward(share, seed):
            with torch.set_grad_enabled(differentiable), drawing_from(torch.Generator().manual_seed(seed)):
                hidden = hidden_TH[share.rows].detach().requires_grad_(differentiable)
                return hidden, compute(hidden, share.spans)

        with at_once(len(shares)) as parallel_map:
            graphs = list(parallel_map(forward, shares, seeds))
        context.graphs, context.weights = (graphs, weights) if differentiable else ([], [])
        return torch.cat([pooled.detach() for _, pooled in graphs])

    @staticmethod
    def backward(context, by_pooled_BH):
        """A sum is in float32, also where the weights and the gradients of the shares are in bfloat16."""
        graphs, weights, context.graphs = context.graphs, context.weights, None

        def backward(graph, by_pooled):
            hidden, pooled = graph
            return torch.autograd.grad(pooled, [hidden, *weights], by_pooled)

        by_hidden, sums = [], [torch.zeros_like(w, dtype=torch.promote_types(w.dtype, torch.float32)) for w in weights]
        with at_once(len(graphs)) as parallel_map:  # what a share gives is summed while others are computed
            shares = by_pooled_BH.split([len(pooled) for _, pooled in graphs])
            for own, *gradients in parallel_map(backward, graphs, shares):
                by_hidden.append(own)
                for total, gradient in zip(sums, gradients, strict=True):
                    total += gradient
        by_weights = [total.to(weight.dtype) for total, weight in zip(sums, weights, strict=True)]
        return None, None, None, torch.cat(by_hidden), *by_weights


@contextmanager
def at_once(shares):
    """Yields a `map` that has torch's threads compute several of so many shares at once."""
    if (threads := torch.get_num_threads()) == 1:
        yield map
        return
    with threads_apart(min(shares, threads), max(1, threads // shares)) as pool:
        yield pool.map
