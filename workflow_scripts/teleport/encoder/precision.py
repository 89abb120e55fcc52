"""The device that computes, and its precision."""

from contextlib import nullcontext
from pathlib import Path

import torch

from teleport.refusal import Refusal
from teleport.running.devices import has_c_compiler
from teleport.running.log import log

CPU_INFO = Path("/proc/cpuinfo")
# Tokens of a stage. On an H100 compiling took 8 s and raised BERT-base from 2.0 to 2.25 million tokens a second.
WORTH_COMPILING = 2 * 10**8


def pick_device():
    """The first CUDA device that this process sees, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def require_memory(doing, models, device, more, remedy):
    """The bytes that a CUDA device has beside the weights of some models and what the work keeps with them; None on a
    CPU. Raises Refusal if it cannot hold these. doing: the work, in words; more: (bytes, what they are); remedy: a
    sentence"""
    if device.type != "cuda":
        return None
    weights = [p for model in models for p in model.parameters()]
    room, needed = torch.cuda.get_device_properties(device).total_memory, sum(p.nbytes for p in weights) + more[0]
    if needed > room:
        number = sum(p.numel() for p in weights) / 1e9
        beside = f", {more[0] / 1e9:.1f} GB of them {more[1]}," if more[0] else ""
        raise Refusal(
            f"{doing} {number:.2f} billion weights takes {needed / 1e9:.1f} GB before it reads a text{beside} and the "
            f"GPU has {room / 1e9:.1f} GB. {remedy}"
        )
    return room - needed


def to_encode(model, device, dtype=None):
    """A model on the device on which it encodes in `dtype` (None: float32), if there is room (`room_to_encode`)."""
    room_to_encode(model, device, dtype)
    return model.to(device)


def room_to_encode(model, device, dtype):
    """Return the same as `require_memory`, for a model's weights, which have 32 bits, and for the copy that
    `model.prepare` makes."""
    copied = 0 if dtype is None else sum(dtype.itemsize * p.numel() for p in model.parameters())
    or_else = ", or set its precision to fp32, which needs no copy" if copied else ""
    remedy = f"Use a GPU with more memory{or_else}."
    return require_memory("encoding with", [model], device, (copied, "their copy in 16 bits"), remedy)


def to_device(tensor, device):
    """Copy a tensor of the CPU to `device`. From pageable memory a copy to CUDA would wait for all work before it, and
    torch copies a tensor that is not contiguous through pageable memory, even if it is pinned."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.contiguous().pin_memory().to(device, non_blocking=True)


def compiles(requested, device, tokens=0):
    """Whether torch.compile prepares the layers that encode `tokens` tokens on `device`: on CUDA only (a CPU gained
    nothing), if `requested`, or if it saves more time than it takes."""
    if device.type != "cuda":
        return False
    compiler = has_c_compiler()
    if requested and not compiler:
        raise Refusal(
            "resource `compile`: there is no C compiler (cc, gcc or clang) on this machine. Install one (Debian: gcc), "
            "or run without the resource."
        )
    if worth := tokens >= WORTH_COMPILING and compiler:
        log.info("work of %d encoded tokens: torch.compile first prepares the layers, for about 10 seconds", tokens)
    return bool(requested or worth)


def resolve_precision(precision, device=None):
    """torch.bfloat16, or None for plain float32, from "bf16", "fp32", or "auto" (bfloat16 if it is faster). Raises
    Refusal for bf16 on a GPU without it (Turing), for which there is no FlashAttention."""
    device = device or pick_device()
    faster = precision != "fp32" and faster_in_bf16(device)
    if precision == "bf16" and device.type == "cuda" and not faster:
        raise Refusal(
            f"precision is bf16, which the GPU {torch.cuda.get_device_name(device)} does not have. Set "
            "training.precision, and encoder.precision where it is given, to auto or fp32."
        )
    return torch.bfloat16 if faster or precision == "bf16" else None


def faster_in_bf16(device):
    """Whether products in bfloat16 are faster than in float32: on CUDA if the device has them, on a CPU with AMX, on
    AMD with avx512_bf16. On Intel with avx512_bf16 alone they are slower (docs/speed.md), elsewhere emulated. The kind
    of processor decides, not a timing, so all jobs of a resumed or sharded stage compute in the same format."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    words = set(CPU_INFO.read_text().split()) if CPU_INFO.is_file() else set()
    return "amx_bf16" in words or words >= {"avx512_bf16", "AuthenticAMD"}


def autocast(device, dtype, cache=True):
    """The context of a training: weights are float32, and products convert them to `dtype` (None: float32). torch
    converts a weight once in the outermost context, unless `cache` is False, so a step opens one around all its
    buckets."""
    if device.type == "meta":  # it has nothing to cast
        return nullcontext()
    return torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None, cache_enabled=cache)


def dtype_name(dtype):
    """ "float32" or "bfloat16": the name of a result of `resolve_precision`, for facts."""
    return str(dtype or torch.float32).removeprefix("torch.")


def computed_in(dtype, device, compiled):
    """How vectors or steps are computed, in words, from names and a flag: "bfloat16 on cuda, compiled"."""
    return f"{dtype} on {device}{', compiled' if compiled else ''}"
