"""Which engine searches exactly: the fastest of this machine. All of them give the same bits."""

import resource
from pathlib import Path

from teleport.runtime.devices import visible_devices
from teleport.search.flat import FaissFlat
from teleport.search.sharded import Sharded

INT8_FLAGS = {"avx512_vnni", "avx_vnni", "amx_int8"}
# Reducing the vectors costs as much as searching some 1,000 lines, loading torch as much as 2**38 products.
INT8_LINES, INT8_PRODUCTS = 2048, 2**39
ROOM_SHARE = 0.5  # of the free memory that reduced vectors may take
LIMITS = {"VmSize": resource.RLIMIT_AS, "VmData": resource.RLIMIT_DATA}


def open_exact(vectors, threads, lines):
    """An exact index of `vectors` (float32 [n, dim], memory map) for searching `lines` vectors.

    All CUDA devices that this process sees, a shard of the passages each; else int8 products on a processor that has
    them, where the search is long enough to be worth loading torch; else faiss.
    """
    if visible_devices():
        import torch

        from teleport.search.flat_torch import TorchFlat

        if devices := torch.cuda.device_count():
            each = max(1, threads // devices)
            return Sharded(vectors, devices, lambda number, part: TorchFlat(part, f"cuda:{number}", each))
    if lines >= INT8_LINES and lines * vectors.size >= INT8_PRODUCTS and computes_in_int8():
        from teleport.search.flat_cpu import ReducedFlat

        room = ROOM_SHARE * free_bytes()
        return Sharded(vectors, 1, lambda number, part: ReducedFlat(part, threads, "int8", room))
    return Sharded(vectors, 1, lambda number, part: FaissFlat(part, threads))


def open_for_steps(vectors, device, threads):
    """An exact engine of `vectors` for a few queries at a time, often: every search reads all passages once.

    device: a torch.device, on which the passages must have room in fp16; on a CPU faiss. For `flat.search`. Raises
    ValueError when there is no room.
    """
    if device.type == "cpu":
        return FaissFlat(vectors, threads)
    import torch

    from teleport.search.flat_torch import STEP_BLOCK, TorchFlat

    # By its number: the thread that proposes candidates ahead has a current device of its own.
    index = TorchFlat(vectors, torch.device("cuda", torch.cuda.current_device()), threads)
    if index.kept is None:
        raise ValueError(
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
    free = [kilobytes("/proc/meminfo", "MemAvailable")]
    for field, limit in LIMITS.items():
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY:
            free.append(soft - kilobytes("/proc/self/status", field))
    free += [limit - int((folder / "memory.current").read_text()) for folder, limit in group_limits()]
    return max(0, min(free))


def kilobytes(path, field):
    """The bytes of a line such as `VmSize: 12 kB`."""
    lines = Path(path).read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def group_limits():
    """(folder, bytes) of the control groups (version 2) above this process that have a limit."""
    name = next((line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line[:3] == "0::"), "/")
    folder = Path("/sys/fs/cgroup") / name.strip("/")
    for group in (folder, *folder.parents):
        limit = group / "memory.max"
        if limit.is_file() and limit.read_text().strip() != "max":
            yield group, int(limit.read_text())
