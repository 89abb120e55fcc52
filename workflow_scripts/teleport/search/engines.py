"""Which engine searches exactly: the fastest of this machine. All of them give the same bits."""

import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from teleport.refusal import Refusal
from teleport.running.devices import visible_devices
from teleport.search.exact import stable_topk
from teleport.search.flat import FaissFlat, require_depth, search

INT8_FLAGS = {"avx512_vnni", "avx_vnni", "amx_int8"}
# Reducing the vectors costs as much as searching some 1,000 lines, loading torch as much as 2**38 products.
INT8_LINES, INT8_PRODUCTS = 2048, 2**39
ROOM_SHARE = 0.5  # of the free memory that reduced vectors may take
LIMITS = {"VmSize": resource.RLIMIT_AS, "VmData": resource.RLIMIT_DATA}


class Sharded:
    """Exact search in which each of `count` contiguous shards of the passages has an engine of its own.

    open_shard(number, vectors): the engine of a shard (FaissFlat, Int8Flat or TorchFlat); engine: its name and `count`
    overlaps: whether the host scores candidates while devices search on
    Scores are exact and ties go by passage number, so the result is the same for any number of shards.
    """

    def __init__(self, vectors, count, open_shard):
        self.total = len(vectors)
        bounds = np.linspace(0, self.total, min(count, self.total) + 1).astype(np.int64)
        self.firsts = bounds[:-1].tolist()
        ranges = zip(bounds[:-1], bounds[1:], strict=True)
        self.shards = [open_shard(number, vectors[first:last]) for number, (first, last) in enumerate(ranges)]
        self.engine = f"{type(self.shards[0]).__name__} x {len(self.shards)}"
        self.overlaps = self.shards[0].overlaps

    def search(self, queries_QD, depth):
        """As `flat.search`, over all passages: (ids int32, scores float32), both [Q, depth]."""
        require_depth(depth, self.total)

        def search_shard(first, shard):
            ids_QK, scores_QK = search(shard, queries_QD, min(depth, len(shard.vectors)))
            return scores_QK, ids_QK.astype(np.int64) + first

        with ThreadPoolExecutor(len(self.shards)) as pool:
            scores, ids = zip(*pool.map(search_shard, self.firsts, self.shards), strict=True)
        searched = [(first, len(shard.vectors)) for first, shard in zip(self.firsts, self.shards, strict=True)]
        check_covered(searched, self.total)
        return stable_topk(np.hstack(scores), np.hstack(ids), depth)


def check_covered(searched, total):
    """Raise RuntimeError unless the shards (first row, rows) are all rows of the index, each once."""
    end = 0
    for first, rows in sorted(searched):
        if first != end:
            start, stop = sorted((first, end))
            raise RuntimeError(f"passage rows {start} to {stop - 1} were not searched exactly once")
        end = first + rows
    if end != total:
        raise RuntimeError(f"{end} passage rows were searched, but the index has {total}")


def open_exact(vectors, threads, lines):
    """An exact index of `vectors` (float32 [n, dim], memory map) for searching `lines` vectors.

    All CUDA devices that this process sees, a shard of the passages each; else int8 products on a processor that has
    them, where the search is long enough to be worth loading torch; else faiss.
    """
    if visible_devices():
        import torch

        from teleport.search.flat_torch import TorchFlat

        if devices := torch.cuda.device_count():
            share = max(1, threads // devices)
            return Sharded(vectors, devices, lambda number, shard: TorchFlat(shard, f"cuda:{number}", share))
    if lines >= INT8_LINES and lines * vectors.size >= INT8_PRODUCTS and computes_in_int8():
        from teleport.search.flat_cpu import Int8Flat

        room = ROOM_SHARE * free_bytes()
        return Sharded(vectors, 1, lambda number, shard: Int8Flat(shard, threads, room))
    return Sharded(vectors, 1, lambda number, shard: FaissFlat(shard, threads))


def open_for_steps(vectors, device, threads):
    """An exact engine of `vectors` for a few queries at a time, often: every search reads all passages once.

    device: a torch.device, on which the passages must have room in fp16; on a CPU faiss. For `flat.search`. Raises
    Refusal when there is no room.
    """
    if device.type == "cpu":
        return FaissFlat(vectors, threads)
    import torch

    from teleport.search.flat_torch import STEP_BLOCK, TorchFlat

    # By its number: the thread that prefetches candidates has a current device of its own.
    index = TorchFlat(vectors, torch.device("cuda", torch.cuda.current_device()), threads)
    if index.kept is None:
        raise Refusal(
            f"negatives.live: {len(vectors):,} passages take {2 * vectors.size / 1e9:.1f} GB in fp16, for which the "
            "GPU has no room beside the training. Let several GPUs share them (--set-resources train:gpu=4), or set "
            "negatives.live.index to {kind: pq}."
        )
    index.block = STEP_BLOCK
    return index


def computes_in_int8(cpu_info=Path("/proc/cpuinfo")):
    """Whether the processor has instructions for sums of int8 products."""
    return cpu_info.is_file() and not INT8_FLAGS.isdisjoint(cpu_info.read_text().split())


def free_bytes():
    """Memory that this process can still take: of the machine, its control group (a Slurm job) and its own limits."""
    limits = {field: resource.getrlimit(limit)[0] for field, limit in LIMITS.items()}
    free = [kilobytes("/proc/meminfo", "MemAvailable")]
    free += [n - kilobytes("/proc/self/status", name) for name, n in limits.items() if n != resource.RLIM_INFINITY]
    # Of control groups (version 2) above this process those that have a limit.
    name = next((line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line[:3] == "0::"), "/")
    folder = Path("/sys/fs/cgroup") / name.strip("/")
    for group in (folder, *folder.parents):
        limit = group / "memory.max"
        if limit.is_file() and limit.read_text().strip() != "max":
            free.append(int(limit.read_text()) - int((group / "memory.current").read_text()))
    return max(0, min(free))


def kilobytes(path, field):
    """The bytes of a line such as `VmSize: 12 kB`."""
    lines = Path(path).read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))
