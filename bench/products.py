"""The rate of the device's matrix products, and the share of it that an encoder reaches on real tokens."""

from dataclasses import fields
from statistics import median

import torch

import rounds
from teleport.encoder.costs import forward_flop
from teleport.encoder.shape import Shape

ROWS = 4096  # on a CPU, times the widest matrix of the encoder's first layer
SQUARE = 8192  # rows and columns on CUDA, where that product would take less time than its launch
FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def shape_of(encoder):
    """The `costs.Shape` of an Encoder's backbone."""
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
