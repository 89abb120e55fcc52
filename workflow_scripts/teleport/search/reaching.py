"""A GPU kernel that selects the passages of a block that reach a query's last rank, in one pass over the products.

Triton compiles it, which comes with torch's builds for CUDA. Each product is read once and compared once, with the
largest error of its neighbours. They are compared one by one only if one of them may reach the last rank.
"""

import threading
from functools import cache
from importlib.util import find_spec

import torch

from teleport.running.devices import has_c_compiler
from teleport.running.log import log

COLUMNS, WARPS = 1024, 4  # passages of one program, for one query; its warps
LAUNCH = threading.Lock()  # Triton compiles at the first launch, which two threads may start at once


@cache
def kernel_exists(device):
    """Whether this machine can build the kernel: it needs Triton, and a C compiler for Triton's launchers. If a GPU has
    one of them missing, the log says which: the results are the same but take longer."""
    if torch.device(device).type != "cuda":
        return False
    lacks = [] if has_c_compiler() else ["a C compiler (apt install gcc)"]
    if find_spec("triton") is None:
        lacks.append("the package triton")
    if lacks:
        log.warning("the search selects passages more slowly on this GPU because it has no %s", " and ".join(lacks))
    return not lacks


@cache
def kernel():
    """The compiled function; Triton is imported here, as it is absent without a GPU."""
    import triton
    import triton.language as tl

    @triton.jit
    def append_reaching(
        scores_QP, stride, errors_P2, largest_T2, lengths_Q2, floor_Q, crowded_Q, count_Q, lower_QR, upper_QR, ids_QR,
        passages, first, room, LEAST: tl.constexpr, COLUMNS: tl.constexpr,
    ):  # fmt: skip
        tile, row = tl.program_id(0), tl.program_id(1)
        columns = tile * COLUMNS + tl.arange(0, COLUMNS)
        inside = columns < passages
        scores = tl.load(scores_QP + row.to(tl.int64) * stride + columns, mask=inside, other=LEAST).to(tl.float32)
        least = tl.where(scores < LEAST, LEAST, scores)  # a NaN stays a NaN, and is below nothing
        whole, lost = tl.load(lengths_Q2 + 2 * row), tl.load(lengths_Q2 + 2 * row + 1)
        floor = tl.load(floor_Q + row)
        most = whole * tl.load(largest_T2 + 2 * tile) + lost * tl.load(largest_T2 + 2 * tile + 1)
        near = tl.where(least + most < floor, 0, 1)
        if (tl.max(near, 0) > 0) & (tl.load(crowded_Q + row) == 0):
            errors = whole * tl.load(errors_P2 + 2 * columns, mask=inside, other=0)
            errors += lost * tl.load(errors_P2 + 2 * columns + 1, mask=inside, other=0)
            upper = least + errors
            reaching = tl.where(upper < floor, 0, inside.to(tl.int32))
            slots = tl.atomic_add(count_Q + row, tl.sum(reaching, 0).to(tl.int64)) + tl.cumsum(reaching, 0) - 1
            kept = (reaching != 0) & (slots < room)
            slots += row.to(tl.int64) * (room + 1)
            lower = scores - errors
            lower = tl.where(tl.abs(lower) < float("inf"), lower, float("-inf"))
            tl.store(lower_QR + slots, lower, mask=kept)
            tl.store(upper_QR + slots, upper, mask=kept)
            tl.store(ids_QR + slots, first + columns, mask=kept)

    return append_reaching


def append_reaching(candidates, scores_QP, errors_P2, first):
    """Append the passages that reach the floors of the `Candidates`, in any order, and count them; those without room
    are only counted. scores_QP: float16 [Q, P], each row contiguous; errors_P2: float32 [P, 2], not negative;
    first: the first passage's number"""
    queries, passages = scores_QP.shape
    tiles = -(-passages // COLUMNS)
    filled_P2 = torch.nn.functional.pad(errors_P2, (0, 0, 0, tiles * COLUMNS - passages))
    largest_T2 = filled_P2.unflatten(0, (tiles, COLUMNS)).amax(1)
    with LAUNCH:
        kernel()[tiles, queries](
            scores_QP, scores_QP.stride(0), errors_P2, largest_T2, candidates.lengths_Q2, candidates.floor_Q,
            candidates.crowded_Q, candidates.count_Q, candidates.lower_QR, candidates.upper_QR, candidates.ids_QR,
            passages, first, candidates.room, torch.finfo(scores_QP.dtype).min, COLUMNS, num_warps=WARPS,
        )  # fmt: skip
