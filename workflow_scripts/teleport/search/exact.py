"""Exact search by inner product: products propose, exact scores decide, equal scores are ranked by the smaller id.

The last bits of a matrix product depend on the library, the device, the number format and the block. Therefore it only
proposes. A product is off by at most a known bound. While blocks of passages go by, a query keeps every passage that
may still be in its list: those whose product plus its bound reaches the last rank so far, which is the `depth`-th
largest product less its bound. At the end the kept passages get their exact scores (pairs.py) and are sorted. So the
result depends on the vectors alone; device, number format, blocks and parts change the speed but no bit.

A query that would keep more passages than it has room for is crowded: the products cannot tell its passages apart. It
is searched again with products in float64. If it is crowded even then (thousands of copies of a vector at its last
rank), it is scored exactly with all passages.

On a GPU the products are of float16 numbers, which tensor cores sum in float32 and return in float16: half the memory
to write and read. Vectors that are stored in float32 are reduced in three steps. First their mean is subtracted, which
shifts all scores of a query equally (vectors of an encoder that does not normalise are almost parallel). Then they are
scaled by a power of two, and rounded. The loss of each passage is measured.
"""

import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cached_property

import numpy as np
import torch

from teleport.running.devices import visible_devices
from teleport.running.log import log
from teleport.search.budget import BLOCK, LEAST_ROOM, PAIRS, QUERIES, ROOM, SCORES, WORKERS, workspace
from teleport.search.candidates import GROUP, SLACK, Candidates
from teleport.search.pairs import ROUNDING, inner_products, stored

HOST_ROOM = 2**32  # bytes for vectors on a CPU that are not in an array, such as decoded ones
LEAST_TAKEN = 4096  # least passages that a thread takes from the host
MANY = 100  # queries that are compared with all passages one by one: a warning
SAMPLE = 4096  # passages that mean and scale are computed from
# Tensor cores cut sums instead of rounding them. Products of float16 numbers are exact in float32; k of them and the
# running sum are aligned to the largest, cut 23 or more bits below its leading bit, added, and cut again (Fasi, Higham,
# Mikaitis and Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 2021). That is at most k + 2
# errors of 2^-23 for k products, with k >= 4 up to 1.5 for each: the unit is doubled below.
UNIT = {torch.float16: 2.0**-23, torch.float32: ROUNDING, torch.float64: 2.0**-53}
FINAL = 4 * ROUNDING  # two exact scores that differ by less may be rounded to the same float32 number
SQUARE_ROOT_OF_TINY = 2.0**-62  # a smaller component has a square of 0 in float32
# The largest float16 number; half the gap between numbers near 1; the smallest gap.
LARGEST, HALF_GAP, SMALLEST_GAP = 65504.0, 2.0**-11, 2.0**-24
LENGTH = 2.0**4  # scaled length of a usual passage, about


def search_device():
    """The device for searches: the CUDA device of this process, else the CPU."""
    return torch.device("cuda" if visible_devices() and torch.cuda.is_available() else "cpu")


class Exact:
    """Exact search of `vectors`: float32 or float16 [n, D], an array, a memory map, or anything with slices and `take`.

    device: by default `search_device`; threads: to read vectors (torch's number computes); room: bytes of the
    device for vectors, by default all free memory that the search does not need; dtype: of the products, by default
    float16 on a GPU, else float32
    """

    engine, exact = "exact", True

    def __init__(self, vectors, device=None, threads=1, room=None, dtype=None):
        self.vectors = vectors.view(np.ndarray) if isinstance(vectors, np.memmap) else vectors
        self.on, self.threads = torch.device(device or search_device()), threads
        self.device = kind = self.on.type  # "cpu" or "cuda"
        if kind == "cuda" and self.on.index is None:  # other threads would take "cuda" for the first GPU
            self.on = torch.device(kind, torch.cuda.current_device())
        self.dtype = dtype or (torch.float16 if kind == "cuda" else torch.float32)
        if kind == "cuda" and room is None:
            room = torch.cuda.mem_get_info(self.on)[0] - workspace(vectors.shape[1])
        self.room = HOST_ROOM if room is None else room
        self.pool = ThreadPoolExecutor(threads)
        if kind == "cuda" and self.dtype == torch.float16:  # else cuBLAS may add parts of a sum in float16
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        with torch.inference_mode():
            self.open()

    @cached_property
    def streams(self):
        """A stream for each worker. They are made once: torch hands out 32 in turn, and keeps the freed memory of each
        for that one."""
        return [torch.cuda.Stream(self.on) for _ in range(WORKERS)]

    def open(self):
        """Read all vectors once, with all threads: measure them, and keep on the device those that fit."""
        half, (rows, dim) = self.dtype == torch.float16, self.vectors.shape
        stored_half = self.vectors.dtype == np.float16
        reduces = half and not stored_half  # else the stored vectors serve as they are
        mean, self.scale, self.usual = mean_and_scale(self.vectors, reduces)
        self.mean = torch.from_numpy(mean).to(self.on)
        self.errors_P2 = torch.empty(rows, 2, device=self.on)
        # On a CPU, in float32, blocks are views of the array: nothing is kept.
        views = self.device == "cpu" and not half and isinstance(self.vectors, np.ndarray)
        stored_bytes, reduced_bytes = rows * dim * self.vectors.dtype.itemsize, 2 * rows * dim if reduces else 0
        self.reduced = self.stored = None
        if not views and stored_bytes + reduced_bytes <= self.room:
            self.stored = torch.empty(rows, dim, dtype=torch.float16 if stored_half else torch.float32, device=self.on)
        if reduces and reduced_bytes <= self.room:
            self.reduced = torch.empty(rows, dim, dtype=torch.float16, device=self.on)
        elif half:
            self.reduced = self.stored
        for first, block_PD in self.read_blocks(BLOCK):
            part = slice(first, first + len(block_PD))
            reduced_PD, self.errors_P2[part] = self.reduce(block_PD, self.dtype)
            if self.stored is not None:
                self.stored[part] = block_PD
            if reduces and self.reduced is not None:
                self.reduced[part] = reduced_PD
        self.kept = views or (self.reduced if half else self.stored) is not None
        if self.device == "cuda":
            torch.cuda.synchronize(self.on)
            state = "stay on" if self.kept else "are streamed in every search to"
            text = "%d vectors %s %s (room for %.1f GB beside the search)"
            log.info(text, rows, state, torch.cuda.get_device_name(self.on), max(0, self.room) / 1e9)

    def read_blocks(self, size):
        """Yield (number of the first passage, passages as stored, on the device) block by block, reading ahead."""
        firsts = range(0, len(self.vectors), size)
        with ThreadPoolExecutor(1) as ahead:
            reading = ahead.submit(self.read, 0, size)
            for first in firsts:
                block_PD = reading.result()
                if first + size < len(self.vectors):
                    reading = ahead.submit(self.read, first + size, size)
                yield first, block_PD

    def read(self, first, size):
        """Up to `size` passages from `first` on, on the device; for a GPU through page-locked memory."""
        block = self.vectors[first : first + size]
        if self.device == "cpu":
            return tensor_of(np.asarray(block))
        dtype = torch.float16 if block.dtype == np.float16 else torch.float32
        passages_PD = torch.empty(block.shape, dtype=dtype, pin_memory=True)
        target, step = passages_PD.numpy(), -(-len(block) // self.threads)
        copy = lambda at: np.copyto(target[at : at + step], block[at : at + step])  # noqa: E731
        list(self.pool.map(copy, range(0, len(block), step)))
        passages_PD = passages_PD.to(self.on, non_blocking=True)
        torch.cuda.current_stream(self.on).synchronize()
        return passages_PD

    def reduce(self, stored_PD, dtype):
        """(passages in the number format of the products, bounds float32 [P, 2]): a product with the scaled query q' of
        a query q is off by at most bounds[0] |q| + bounds[1] |q - q'|."""
        dim, scale = stored_PD.shape[1], self.scale if dtype == torch.float16 else 1.0
        norms_P = torch.linalg.vector_norm(stored_PD.float(), dim=1) * scale
        if dtype != torch.float16 or stored_PD.dtype == torch.float16:
            passages_PD, sizes_P, lost_P = stored_PD.to(dtype), norms_P, 0
        else:
            scaled_PD = (stored_PD - self.mean) * scale
            passages_PD = scaled_PD.clamp(-LARGEST, LARGEST).half()
            near_PD = passages_PD.float()
            sizes_P = torch.linalg.vector_norm(near_PD, dim=1)
            lost_P = torch.linalg.vector_norm(near_PD.sub_(scaled_PD), dim=1) + 4 * ROUNDING * sizes_P
        tiny = dim**0.5 * SQUARE_ROOT_OF_TINY * max(1.0, scale)
        sizes_P = sizes_P + tiny
        bounds_P = lost_P + 2 * dim * UNIT[dtype] * sizes_P + FINAL * (norms_P + tiny)
        if dtype == torch.float16:  # of the product itself; no scaled query is shorter than 1/8
            bounds_P += HALF_GAP * sizes_P + 8 * SMALLEST_GAP
        return passages_PD, torch.stack([SLACK * bounds_P, SLACK * sizes_P], dim=1)

    def blocks(self, dtype, size):
        """Yield (number of the first passage, passages [P, D] of `dtype`, their bounds [P, 2]) block by block."""
        kept = self.reduced if dtype == torch.float16 else self.stored
        if kept is None and dtype != torch.float16 and self.device == "cpu" and isinstance(self.vectors, np.ndarray):
            kept = tensor_of(self.vectors)
        if kept is None:
            blocks = self.read_blocks(size)
        else:
            blocks = ((first, kept[first : first + size]) for first in range(0, len(kept), size))
        for first, block_PD in blocks:
            part = slice(first, first + len(block_PD))
            if dtype != self.dtype:
                yield first, *self.reduce(block_PD, dtype)
            elif kept is not None:
                yield first, block_PD.to(dtype), self.errors_P2[part]
            else:
                yield first, self.reduce(block_PD, dtype)[0], self.errors_P2[part]

    @torch.inference_mode()
    def search(self, queries_QD, depth):
        """The `depth` passages with the largest inner products for each query, highest first, ties by the smaller id:
        (ids int32, scores float32), both [Q, depth]. queries_QD: float32, finite; depth: at most the number of
        passages. Raises Refusal for scores beyond float32."""
        queries_QD = np.ascontiguousarray(queries_QD, np.float32)
        ids_QK, scores_QK = (np.empty((len(queries_QD), depth), dtype) for dtype in (np.int32, np.float32))
        left = np.arange(len(queries_QD))
        for by in (self.by_products, self.by_doubles, self.by_scores):
            if len(left) and depth:
                if by == self.by_scores and len(left) >= MANY:
                    log.warning("%d of %d queries have so many equal scores at their last rank that each is compared "
                                "with all passages one by one. This is slow. Are the vectors nearly the same?",
                                len(left), len(queries_QD))  # fmt: skip
                ids_QK[left], scores_QK[left], crowded_Q = by(queries_QD[left], depth)
                left = left[crowded_Q]
        return ids_QK, stored(scores_QK)

    def by_products(self, queries_QD, depth):
        """(ids, scores, which queries are crowded); ids and scores of crowded queries mean nothing."""
        return self.propose(queries_QD, depth, self.dtype)

    def by_doubles(self, queries_QD, depth):
        """Return the same as `by_products`, with products in float64."""
        return self.propose(queries_QD, depth, torch.float64)

    def propose(self, queries_QD, depth, dtype):
        """Return the same as `by_products`, with products of `dtype`."""
        kind, rows = self.device, len(self.vectors)
        room = min(rows, ROOM * depth + LEAST_ROOM)
        together = max(1, min(QUERIES[kind], SCORES[kind] // max(depth, GROUP), SCORES[kind] // room))
        groups = [queries_QD[at : at + together] for at in range(0, len(queries_QD), together)]
        size = -(-max(depth, SCORES[kind] // len(groups[0])) // GROUP) * GROUP
        if not self.kept or dtype != self.dtype:
            size = min(size, max(depth, BLOCK))
        if dtype == torch.float16 and rows > GROUP:  # the rest is a block of its own: filling one up would copy it
            size = min(size, rows // GROUP * GROUP)
        streams = self.streams[: len(groups)] if kind == "cuda" else [None]
        main, candidates = torch.cuda.current_stream(self.on) if kind == "cuda" else None, [None] * len(groups)

        def work(number, block, finish=False):
            """Have one worker pass a block to its groups, or finish them; each thread has its own modes and stream."""
            results = []
            if main:
                streams[number].wait_stream(main)  # it made the block
            with torch.inference_mode(), torch.cuda.stream(streams[number]) if streams[number] else nullcontext():
                for group in range(number, len(groups), len(streams)):
                    if candidates[group] is None:
                        usual = self.usual if dtype == torch.float16 else 1.0
                        candidates[group] = Candidates(groups[group], depth, room, dtype, self.on, usual)
                    if finish:
                        results.append((group, self.settle(candidates[group], depth)))
                        candidates[group] = None
                    else:
                        candidates[group].add(*block)
                if streams[number]:
                    streams[number].synchronize()
            return results

        with ThreadPoolExecutor(len(streams)) as pool:
            each = pool.map if len(streams) > 1 else map
            numbers = range(len(streams))
            for block in self.blocks(dtype, size):
                list(each(lambda number, block=block: work(number, block), numbers))
            results = dict(pair for part in each(lambda number: work(number, None, True), numbers) for pair in part)
        return tuple(np.concatenate([results[group][n] for group in range(len(groups))]) for n in range(3))

    def settle(self, candidates, depth):
        """(ids, scores, crowded), numpy, for a group of queries that has seen all passages."""
        counts_Q, ids_QM = candidates.kept()
        scores_QM = self.scores(candidates.exact_QD, counts_Q, ids_QM)
        order_QM = ids_QM.argsort(dim=1)
        scores_QM, ids_QM = scores_QM.gather(1, order_QM), ids_QM.gather(1, order_QM)
        scores_QM, order_QM = scores_QM.sort(dim=1, descending=True, stable=True)
        ids_QK, scores_QK = ids_QM.gather(1, order_QM)[:, :depth], scores_QM[:, :depth]
        scores_QK = scores_QK.masked_fill(candidates.crowded_Q[:, None], 0)
        return ids_QK.cpu().numpy(), scores_QK.cpu().numpy(), candidates.crowded_Q.cpu().numpy()

    def scores(self, queries_QD, counts_Q, ids_QM):
        """Exact scores of the queries (float64) with the first `counts_Q` passages of each, float32 [Q, M]; the rest is
        -inf. Queries with similar numbers of passages are scored together."""
        scores_QM, first = torch.zeros(ids_QM.shape, device=self.on), 0
        order_Q = counts_Q.argsort(descending=True)
        widths = counts_Q[order_Q].tolist()
        while first < len(widths) and (width := widths[first]):
            rows = order_Q[first : first + max(1, PAIRS[self.device] // width)]
            first += len(rows)
            ids_RM = ids_QM[rows, :width]
            passages_RMD = self.take(ids_RM) if self.stored is None else self.stored[ids_RM]
            scores_QM[rows, :width] = inner_products(queries_QD[rows, None], passages_RMD).float()
        filled_QM = torch.arange(ids_QM.shape[1], device=self.on) < counts_Q[:, None]
        return scores_QM.masked_fill_(~filled_QM, -torch.inf)

    def take(self, ids):
        """The passages with these numbers [..., D] from the host's vectors, as stored, on the device."""
        ids_N = ids.flatten().cpu().numpy()
        passages_ND = np.empty((len(ids_N), self.vectors.shape[1]), self.vectors.dtype)
        step = max(LEAST_TAKEN, -(-len(ids_N) // self.threads))
        parts = [slice(at, at + step) for at in range(0, len(ids_N), step)]

        def take_part(part):
            self.vectors.take(ids_N[part], axis=0, out=passages_ND[part], mode="clip")  # other modes copy once more

        list(map(take_part, parts) if len(parts) < 2 else self.pool.map(take_part, parts))
        return torch.from_numpy(passages_ND).to(self.on).unflatten(0, ids.shape)

    def by_scores(self, queries_QD, depth):
        """Return the same as `by_products`, by the exact scores of all passages; no query is crowded."""
        queries_QD = torch.from_numpy(queries_QD).to(self.on, torch.float64)
        best = [(torch.empty(0, device=self.on), torch.empty(0, dtype=torch.int64, device=self.on)) for _ in queries_QD]
        for first, block_PD, _ in self.blocks(torch.float64, max(PAIRS[self.device], depth)):
            ids_P = torch.arange(first, first + len(block_PD), device=self.on)
            for row, query_D in enumerate(queries_QD):
                scores_M = torch.cat([best[row][0], inner_products(query_D, block_PD).float()])
                scores_M, order_M = scores_M.sort(descending=True, stable=True)  # smaller ids come first already
                best[row] = scores_M[:depth], torch.cat([best[row][1], ids_P])[order_M[:depth]]
        scores, ids = (np.stack([array.cpu().numpy() for array in arrays]) for arrays in zip(*best, strict=True))
        return ids, scores, np.zeros(len(ids), bool)


def tensor_of(array):
    """The array as a tensor, without torch's warning about memory maps, which are only read here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def mean_and_scale(vectors, reduces):
    """(mean float32 [D], scale, length of a usual passage after both are applied), from a sample; mean 0 and scale 1
    unless it `reduces`. A few huge passages have no influence."""
    sample = np.asarray(vectors[:: max(1, len(vectors) // SAMPLE)], np.float64)
    mean, norms = np.zeros(sample.shape[1]), np.linalg.norm(sample, axis=1)
    if reduces:
        mean = sample[norms <= 2 * np.median(norms)].mean(axis=0)
        norms = np.linalg.norm(sample - mean, axis=1)
    usual = max(float(np.median(norms)), 1e-18)
    scale = float(2.0 ** np.round(np.log2(LENGTH / usual))) if reduces else 1.0
    return mean.astype(np.float32), scale, usual * scale
