"""CUDA graphs of a training step's encoding.

A step of the papers launches some thousand small kernels, one by one from Python. On an H100 that took longer than
their work. A graph launches all of a forward or a backward pass at once. It has fixed shapes, so a packed batch is
filled up to a rounded number of tokens and texts, and there is a graph for each of these sizes. Texts of padding tokens
after the real ones fill it, and their vectors are left out: no text's vector depends on another text.
"""

import numpy as np
import torch
from torch import nn

from teleport.encoder.attention import FLASH, Packing, takes
from teleport.encoder.model import positions
from teleport.encoder.precision import autocast, to_device
from teleport.running.log import log

SIXTEENTH = 16  # sizes are rounded to a sixteenth of a power of two: 6 % more tokens at most, 16 sizes a doubling
LEAST = 128  # sizes are rounded to a multiple of at least this many tokens
TEXTS = 32  # the number of texts is rounded to it
MOST_GRAPHS = 16  # further sizes are computed without a graph


def graphs_fit(side):
    """Whether a `Side` can be encoded by graphs: on CUDA in bfloat16, packed, by the kernel for variable lengths."""
    return side.device.type == "cuda" and side.dtype is not None and side.encoder.packs and takes(FLASH)


def most_graphs(room, activations, gradients):
    """How many graphs fit into `room` bytes. Each keeps the gradients of all weights. While one is captured, the
    activations of a step are there twice: those of its first passes, and those of the graphs, which they share."""
    return max(0, min(MOST_GRAPHS, int((room - 2 * activations) // gradients)))


class Graphs:
    """Encodes the one bucket of a step on CUDA by graphs. Each graph may be replayed only once between two steps of the
    optimiser: the next replay overwrites the gradients of the last one.

    encoder: the `Encoder` in training mode; longest: the most tokens of a text; dtype: of the products, as for `Side`;
    most: number of sizes that get a graph
    """

    def __init__(self, encoder, longest, dtype, most=MOST_GRAPHS):
        self.encoder, self.longest, self.dtype, self.most = encoder, longest, dtype, most
        self.captured, self.pool = {}, None

    def __call__(self, ids_T, lengths_B):
        """Return the same as `Encoder.forward`."""
        filled_T, filled_B = fill(ids_T, lengths_B, self.longest, self.encoder.backbone.config.pad_token_id or 0)
        size = len(filled_T), len(filled_B)
        if size not in self.captured and len(self.captured) == self.most:
            with autocast(self.encoder.device, self.dtype):
                return self.encoder(ids_T, lengths_B)
        offsets = np.concatenate([[0], np.cumsum(filled_B)]).astype(np.int32)
        arrays = filled_T, positions(filled_T, filled_B, self.encoder.backbone.config), offsets
        inputs = [to_device(torch.from_numpy(array), self.encoder.device) for array in arrays]
        if size not in self.captured:
            self.captured[size] = self.capture(inputs)
            log.info("a CUDA graph of %d tokens and %d texts", *size)
        return self.captured[size](*inputs)[: len(lengths_B)]

    def capture(self, inputs):
        """The graphed `Pass` for inputs of this size. Capturing runs it several times, so the generator that draws a
        step's dropout is then set back."""
        state = torch.cuda.get_rng_state()
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        made = Pass(self.encoder, self.longest, self.dtype).train()
        with autocast(self.encoder.device, None):  # a step may open one that keeps what it converts: torch refuses that
            graphed = torch.cuda.make_graphed_callables(made, tuple(inputs), allow_unused_input=True, pool=self.pool)
        torch.cuda.set_rng_state(state)
        return graphed


class Pass(nn.Module):
    """The computation in a graph: `Encoder.compute` with its conversions of the weights."""

    def __init__(self, encoder, longest, dtype):
        super().__init__()
        self.encoder, self.longest, self.dtype = encoder, longest, dtype

    def forward(self, ids_T, positions_T, offsets):
        with autocast(ids_T.device, self.dtype, cache=False):
            return self.encoder.compute(ids_T, positions_T, Packing(None, offsets, self.longest))


def fill(ids_T, lengths_B, longest, padding):
    """A packed batch with texts of padding tokens after it, so that the numbers of tokens and texts are rounded: (ids,
    tokens of each text), int64. Each padding text has 1 to `longest` tokens."""
    unit = max(LEAST, 2 ** (len(ids_T).bit_length() - 1) // SIXTEENTH)
    texts = -(-(len(lengths_B) + unit // longest + 2) // TEXTS) * TEXTS - len(lengths_B)
    tokens = -(-(len(ids_T) + texts) // unit) * unit - len(ids_T)
    lengths = np.full(texts, tokens // texts, np.int64)
    lengths[: tokens % texts] += 1
    return np.concatenate([ids_T, np.full(tokens, padding)]), np.concatenate([lengths_B, lengths])
