"""Which engine searches exactly: the fastest of this machine. All of them give the same bits."""

import resource
import time
from pathlib import Path

import numpy as np

from teleport.refusal import Refusal
from teleport.running.devices import visible_devices
from teleport.running.log import log
from teleport.search.flat import Exact, FaissFlat

INT8_FLAGS = {"avx512_vnni", "avx_vnni", "amx_int8"}
PROBE_PRODUCTS = 2**39  # from so many on: for fewer, loading torch and probing would take longer than either search
PROBE_QUERIES, PROBE_BLOCKS, PROBE_ROWS = 1024, 4, 8192  # of a probe, and the rows of each of its blocks of passages
PART_ROWS = 2**20  # passages after which a search on a CPU can be saved
ROOM_SHARE = 0.5  # of the free memory that reduced vectors of a part may take
STEP_RESERVE = 8e9  # bytes of a device that are left to a training beside its search
LIMITS = {"VmSize": resource.RLIMIT_AS, "VmData": resource.RLIMIT_DATA}


def open_exact(vectors, threads, queries_QD, lines, depth):
    """An exact index of `vectors` (float32 or float16 [n, dim], memory map), a `flat.Exact`.

    All CUDA devices that this process sees, a part of the passages each; else int8 products on a processor that has
    them, where a `probe` says that they are faster; else faiss. queries_QD: float32, a sample of the `lines` vectors
    that are searched with
    """
    if visible_devices():
        import torch

        from teleport.search.flat_torch import TorchFlat

        if devices := torch.cuda.device_count():
            share = max(1, threads // devices)
            return Exact(
                vectors, devices, lambda n, part, most: TorchFlat(part, f"cuda:{n}", share, None, most), threads
            )
    parts, kinds = -(-len(vectors) // PART_ROWS), {"FaissFlat": lambda _, part, most: FaissFlat(part, threads, most)}
    if lines * vectors.size < PROBE_PRODUCTS or not computes_in_int8():
        return Exact(vectors, parts, kinds["FaissFlat"], threads)
    from teleport.search.flat_cpu import Int8Flat

    kinds["Int8Flat"] = lambda _, part, most: Int8Flat(part, threads, ROOM_SHARE * free_bytes(), most)
    seconds = {name: probe(vectors, kind, threads, queries_QD, lines, depth) for name, kind in kinds.items()}
    fastest = min(seconds, key=seconds.get)
    foreseen = ", ".join(f"{name} {estimate:.0f} s" for name, estimate in seconds.items())
    log.info(
        "searching with %s: %d lines at depth %d take by a probe, in processor time, %s",
        fastest,
        lines,
        depth,
        foreseen,
    )
    return Exact(vectors, parts, kinds[fastest], threads)


def probe(vectors, open_part, threads, queries_QD, lines, depth):
    """Seconds of processor time that `lines` searches at a depth would take with an engine, from some in a few blocks.

    A sample of the passages at as small a share of the depth has its last rank at the same score, so it has as large a
    share of the candidates that an engine cannot tell apart.
    """
    firsts = np.linspace(0, max(0, len(vectors) - PROBE_ROWS), PROBE_BLOCKS).astype(np.int64)
    sample = np.concatenate([np.asarray(vectors[first : first + PROBE_ROWS]) for first in firsts])
    share = len(sample) / len(vectors)
    started = time.process_time()
    index = Exact(sample, 1, open_part, threads)
    opened = time.process_time()
    index.search(queries_QD[:1], 1)  # threads start, and buffers are made
    searched = time.process_time()
    index.search(queries_QD[:PROBE_QUERIES], max(1, round(share * depth)))
    searching = (time.process_time() - searched) * lines / min(len(queries_QD), PROBE_QUERIES)
    return (opened - started + searching) / share


def open_for_steps(vectors, device, threads, on_processor=FaissFlat, spare=False):
    """An exact index of `vectors` for a few queries at a time, often: every search reads all passages once.

    device: a torch.device, on which the passages must have room in fp16; on_processor: the engine on a CPU (vectors,
    threads, most outliers). Raises Refusal when there is no room, or takes the CPU with `spare`.
    """

    if device.type != "cpu":
        import torch

        from teleport.search.flat_torch import STEP_BLOCK, TorchFlat

        # By its number: the thread that prefetches candidates has a current device of its own.
        device = torch.device("cuda", torch.cuda.current_device())
        room = torch.cuda.mem_get_info(device)[0] - STEP_RESERVE
        index = Exact(vectors, 1, lambda _, part, most: TorchFlat(part, device, threads, room, most), threads)
        if index.part(0).kept is not None:
            index.part(0).block = STEP_BLOCK
            return index
        if not spare:
            raise Refusal(
                f"negatives.live: {len(vectors):,} passages take {2 * vectors.size / 1e9:.1f} GB in fp16, for which "
                "the GPU has no room beside the training. Let several GPUs share them (--set-resources train:gpu=4), "
                "or set negatives.live.index to {kind: pq}."
            )
    return Exact(vectors, 1, lambda _, part, most: on_processor(part, threads, most), threads)


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
