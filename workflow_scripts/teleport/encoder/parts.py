"""Training on a CPU: a batch in parts, each computed by threads of its own, in both directions.

Threads that share every operator wait for one another thousands of times a step. On two cores of an EPYC (float32) a
step of 4,900 tokens (MiniLM, four parts) took 0.73 to 0.93 times as long in parts, one of 2,450 tokens of BERT-base
(two parts) 0.62 to 0.88; with one thread it took 1.00 to 1.06 times as long.
"""

from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch

from teleport.encoder.attention import Spans
from teleport.encoder.dropout import drawing_from
from teleport.runtime.torch_threads import threads_apart

PART_TOKENS = 1536  # at most, but for a last text; at least half of it


class Part(NamedTuple):
    """Texts of a batch next to one another: which they are, and the rows of their tokens."""

    texts: slice
    rows: slice
    spans: Spans


def in_parts(compute, hidden_TH, spans, weights):
    """compute(hidden_TH, spans), [T, H] -> [B, H], a row a text, in parts where that is faster.

    weights: all tensors that `compute` reads and that gradients may go to. The parts follow from the lengths of the
    texts alone, and so do the numbers that dropout draws: how many threads there are changes neither. In inference mode
    a batch stays whole, because encoding computes several of them at once; so it does elsewhere than on a CPU.
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
    made = [slice(*pair) for pair in zip(cuts, cuts[1:], strict=False) if pair[0] < pair[1]]
    rows = [slice(int(starts[texts.start]), int(starts[texts.stop])) for texts in made]
    return [
        Part(texts, own, Spans(lengths_B[texts], spans.device, spans.heads))
        for texts, own in zip(made, rows, strict=True)
    ]


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
    threads = torch.get_num_threads()
    if threads == 1:
        yield map
        return
    with threads_apart(min(parts, threads), max(1, threads // parts)) as pool:
        yield pool.map
