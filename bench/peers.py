"""What a user could have instead, tuned: the peers that several benchmarks share.

transformers' own model with sdpa, in the stage's number format, on padded batches of as many tokens as the stage's,
texts sorted by length; a training step under autocast with a fused optimiser; a matrix product with torch.topk. And
what no program exceeds: the rate of the device's matrix products, and the share of it that each variant reaches.
"""

import copy
from dataclasses import fields
from statistics import median

import numpy as np
import torch

import rounds
import texts
from teleport.encoder.batches import Chunks, in_order, length_buckets
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.encoder.costs import forward_flop
from teleport.encoder.precision import to_device
from teleport.encoder.shape import Shape

RATE, SCALE = 1e-5, 20.0  # of every step that is timed
ROWS = 4096  # of a product on a CPU, times the widest matrix of the encoder's first layer
SQUARE = 8192  # rows and columns on CUDA, where that product would take less time than its launch
FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def padded(token_map, rows, max_tokens, special):
    """The encoder's input for some texts: CLS ids SEP, truncated to max_tokens in all, padded to the longest.

    rows: B text numbers; special: the content of special.json
    returns: torch tensors (input_ids int64 [B, L], attention_mask int64 [B, L])
    """
    cut = [token_map[row][: max_tokens - 2] for row in rows]
    lengths = np.array([len(text) + 2 for text in cut])
    ids_BL = np.full((len(cut), lengths.max()), special["pad"], dtype=np.int64)
    ids_BL[:, 0] = special["before"][0]
    for line, text in zip(ids_BL, cut, strict=True):
        line[1 : len(text) + 1] = text
        line[len(text) + 1] = special["after"][0]
    mask_BL = (np.arange(ids_BL.shape[1]) < lengths[:, None]).astype(np.int64)
    return torch.from_numpy(ids_BL), torch.from_numpy(mask_BL)


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


def step(world, data, device, dtype=None, chunk=None, parts=1, compiled=False):
    """A function of a step's number that takes a training step as a user writes it: padded to the longest, sdpa,
    autocast to `dtype` (None: float32), clipping, fused AdamW. Nothing in it waits for the device. chunk: with gradient
    caching, so many texts at a time, as sentence-transformers' cached losses do; dropout is drawn again, not repeated,
    which is no slower; parts: each side is sorted by length and encoded in so many batches, each padded to its own
    longest"""
    model = copy.deepcopy(world.reference).to(device).train()
    model = torch.compile(model, dynamic=True) if compiled else model
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


def shape_of(encoder):
    """The `Shape` of an Encoder's backbone."""
    config = encoder.backbone.config
    return Shape(**{field.name: getattr(config, field.name) for field in fields(Shape)})


def product(shape, device, dtype):
    """(function that multiplies two matrices of random numbers, its FLOP)."""
    sizes = (ROWS, shape.hidden_size, shape.intermediate_size) if device.type == "cpu" else [SQUARE] * 3
    rows, width, columns = sizes
    left = torch.randn(rows, width, device=device).to(dtype)
    weight = torch.randn(columns, width, device=device).to(dtype)
    return lambda: torch.nn.functional.linear(left, weight), 2 * rows * width * columns


def product_rates(shape, device, num_rounds):
    """{"fp32": FLOP/s, "bf16": FLOP/s} of matrix products, measured in turns."""
    products = {name: product(shape, device, dtype) for name, dtype in FORMATS.items()}
    with torch.inference_mode():
        seconds = rounds.interleaved({name: run for name, (run, _) in products.items()}, num_rounds)
    return {name: products[name][1] / median(times) for name, times in seconds.items()}


def shares(encoder, lengths, passes, seconds, rates):
    """Figures of every variant: real tokens a second, and their share of the rate of products in its format.

    A variant is in bf16 when its name says so, else in fp32. lengths: int64, tokens of every text of a run, as
    the encoder sees them; passes: 1 forward, 3 with the backward pass, which costs twice as much; seconds: {variant:
    [seconds of each round]}; rates: of `product_rates`
    """
    flop, figures = passes * float(forward_flop(shape_of(encoder), lengths).sum()), {}
    for name, rate in rates.items():
        figures[f"products in {name}, TFLOP/s"] = float(f"{rate / 1e12:.3g}")
        for variant in (variant for variant in seconds if ("bf16" if "bf16" in variant else "fp32") == name):
            taken = median(seconds[variant])
            figures[f"real tokens/s, {variant}"] = round(int(lengths.sum()) / taken)
            figures[f"share of the products' rate, {variant}"] = float(f"{flop / taken / rate:.3g}")
    return figures
