"""Dropout that draws its masks quickly on a CPU."""

from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch.nn import functional

GENERATOR = ContextVar("the generator of a CPU's masks", default=None)  # None: torch's global one


@contextmanager
def drawing_from(generator):
    """On a CPU, have `dropout` draw from a torch.Generator in this thread: several draw at once, each its own."""
    token = GENERATOR.set(generator)
    try:
        yield
    finally:
        GENERATOR.reset(token)


def dropout(x, rate):
    """x with every element set to 0 with probability `rate`, else divided by 1 - rate (0 <= rate < 1).

    On a CPU an element takes 16 bits of torch's global generator, or of that of `drawing_from`, where
    `functional.dropout` takes 64, so `rate` is rounded to a 65,536th; with its gradient that is twice as fast.
    Elsewhere it is `functional.dropout`.
    """
    dropped = round(rate * 2**16)
    if dropped == 0:
        return x
    if x.device.type != "cpu":
        return functional.dropout(x, rate)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None, generator=GENERATOR.get())
    drawn = words.view(torch.int16)[: x.numel()].view(x.shape)  # uniform on -2^15 .. 2^15 - 1
    # Compared into the type of x: by way of a bool tensor this took six times as long.
    kept = torch.ge(drawn, dropped - 2**15, out=torch.empty(x.shape, dtype=x.dtype))
    return x * kept.mul_(2**16 / (2**16 - dropped))
