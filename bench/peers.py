"""What a user could have instead, tuned: the peers that several benchmarks share.

transformers' own model with sdpa, in the stage's number format, on padded batches of as many tokens as the stage's,
texts sorted by length; a training step under autocast with a fused optimiser; a matrix product with torch.topk.
"""

import copy

import numpy as np
import torch

import texts
from padding import padded
from teleport.encoder.batches import Chunks, in_order, length_buckets
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.encoder.precision import to_device

RATE, SCALE = 1e-5, 20.0  # of every step that is timed


def vectors_of(model, tokens, rows, limit, special, device):
    """The vectors of some texts by the padded `model` (`texts.Padded`)."""
    return model(*(to_device(tensor, device) for tensor in padded(tokens, rows, limit, special))).float()


def encode(world, device, dtype=torch.float32, compiled=False):
    """A function that encodes the passages of a `texts.Texts`; returns float32 numpy [n, D], in their order."""
    lengths = Chunks(world.passage_map, texts.MAX_PASSAGE_TOKENS, world.special).lengths
    batches = length_buckets(lengths, TOKEN_BUDGET["encode"][device.type], padded=True)
    model = world.reference if dtype == torch.float32 else copy.deepcopy(world.reference).to(dtype)
    model = torch.compile(copy.deepcopy(model), dynamic=True) if compiled else model
    given = texts.MAX_PASSAGE_TOKENS, world.special, device

    def run():
        with torch.inference_mode():
            found = [vectors_of(model, world.passage_map, rows, *given) for rows in batches]
            return in_order(found, batches).cpu().numpy()

    return run


def step(world, data, device, dtype=None, chunk=None, parts=1):
    """A function of a step's number that takes a training step as a user writes it: padded to the longest, sdpa,
    autocast to `dtype` (None: float32), clipping, fused AdamW. Nothing in it waits for the device. chunk: with gradient
    caching, so many texts at a time, as sentence-transformers' cached losses do; dropout is drawn again, not repeated,
    which is no slower; parts: each side is sorted by length and encoded in so many batches, each padded to its own
    longest"""
    model = copy.deepcopy(world.reference).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)

    def vectors(tokens, rows, limit):
        with torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            given = limit, world.special, device
            if parts == 1:  # nothing is sorted or put back
                return vectors_of(model, tokens, rows, *given)
            batches = np.array_split(np.argsort(tokens.lengths[rows], kind="stable"), min(parts, len(rows)))
            return in_order([vectors_of(model, tokens, rows[batch], *given) for batch in batches], batches)

    def take(number):
        batch = data.batch(number)
        sides = [
            (world.query_map, batch.queries_Q, texts.MAX_QUERY_TOKENS),
            (world.passage_map, batch.passages_P, texts.MAX_PASSAGE_TOKENS),
        ]
        columns_Q = torch.from_numpy(batch.positive_columns_Q).to(device)
        chunks = [
            [
                (tokens, rows[first : first + (chunk or len(rows))], limit)
                for first in range(0, len(rows), chunk or len(rows))
            ]
            for tokens, rows, limit in sides
        ]
        with torch.set_grad_enabled(chunk is None):
            found = [torch.cat([vectors(*each) for each in of]) for of in chunks]
        if chunk:
            found = [each.requires_grad_() for each in found]
        queries_QD, passages_PD = found
        torch.nn.functional.cross_entropy(SCALE * queries_QD @ passages_PD.T, columns_Q).backward()
        if chunk:
            for of, made in zip(chunks, found, strict=True):
                for each, gradient in zip(of, made.grad.split(chunk), strict=True):
                    vectors(*each).backward(gradient)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return take


def product_and_topk(passages_PD, queries_QD, depth, block):
    """(scores, ids) [Q, depth] by a product and torch.topk, `block` passages at a time, with the lists merged."""
    best = None
    for first in range(0, len(passages_PD), block):
        scores = queries_QD @ passages_PD[first : first + block].T
        scores, ids = scores.topk(min(depth, scores.shape[1]), 1)
        ids = ids + first
        if best is not None:
            scores, ids = torch.cat([best[0], scores], 1), torch.cat([best[1], ids], 1)
            scores, order = scores.topk(min(depth, scores.shape[1]), 1)
            ids = ids.gather(1, order)
        best = scores, ids
    return best
