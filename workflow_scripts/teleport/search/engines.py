"""Which engine searches exactly: the fastest of this machine. All of them give the same bits."""

import resource
from pathlib import Path

from teleport.on_cpu import cpu_module
from teleport.refusal import Refusal
from teleport.running.devices import visible_devices
from teleport.search.flat import Exact
from teleport.search.flat_faiss import FAISS_SHARE, FaissFlat, FaissOnGpu

PART_ROWS = 2**20  # passages after which a search on a CPU can be saved
STEP_RESERVE = 8e9  # bytes of a device that are left to a training beside its search
LIMITS = {"VmSize": resource.RLIMIT_AS, "VmData": resource.RLIMIT_DATA}


def open_exact(vectors, threads, queries_QD, lines, depth, engine=None):
    """An exact index of `vectors` (float32 or float16 [n, dim], memory map), a `flat.Exact`: all CUDA devices that this
    process sees, a part of the passages each; else faiss, or what `cpu.search` has that is faster.

    queries_QD: float32, a sample of the `lines` vectors that are searched with; engine: "faiss" takes faiss on these
    devices and processors, the resource `engine`
    """
    if visible_devices():
        if engine == "faiss":
            return open_faiss(vectors, threads)
        import torch

        from teleport.search.flat_torch import TorchFlat

        if devices := torch.cuda.device_count():
            share = max(1, threads // devices)
            return Exact(
                vectors, devices, lambda n, part, most: TorchFlat(part, f"cuda:{n}", share, None, most), threads
            )
    parts, open_part = -(-len(vectors) // PART_ROWS), lambda _, part, most: FaissFlat(part, threads, most)
    if engine != "faiss" and (cpu := cpu_module("search")):
        open_part = cpu.fastest(open_part, vectors, threads, queries_QD, lines, depth)
    return Exact(vectors, parts, open_part, threads)


def open_faiss(vectors, threads):
    """An exact index of `vectors` in float32 by faiss on all CUDA devices that this process sees, a part each."""
    import faiss

    if not hasattr(faiss, "StandardGpuResources"):
        raise Refusal(
            "resource `engine`: this faiss computes on the CPU alone. Install faiss-gpu (docs/gpu.md, Installing), or "
            "leave the resource out: torch's search gives the same lists."
        )
    import torch

    devices = torch.cuda.device_count()
    room = min(torch.cuda.mem_get_info(number)[0] for number in range(devices))
    if 4 * vectors.size / devices > FAISS_SHARE * room:
        raise Refusal(
            f"resource `engine`: faiss keeps {4 * vectors.size / 1e9:.1f} GB on {devices} GPUs, one of which has "
            f"{room / 1e9:.1f} GB free. Let more share them (--set-resources retrieve:gpu=N), or leave the resource "
            "out: torch's search needs half, and streams what has no room."
        )
    return Exact(vectors, devices, lambda n, part, most: FaissOnGpu(part, threads, on_gpu(n, part), most), threads)


def on_gpu(number, vectors):
    """An empty flat index of faiss for `vectors` [n, dim] on the CUDA device of a number, in float32."""
    import faiss

    config = faiss.GpuIndexFlatConfig()
    config.device = number
    return faiss.GpuIndexFlatIP(faiss.StandardGpuResources(), vectors.shape[1], config)


def open_for_steps(vectors, device, threads, spare, most):
    """The engine (see `flat.Exact`) of `vectors` for a few queries at a time, often: every search reads all passages
    once. device: a torch.device, on which the passages must have room in fp16, or the CPU is taken with `spare`, an
    engine (vectors, threads, most outliers); with None a CPU takes faiss. most: outliers"""
    if device.type != "cpu":
        import torch

        from teleport.search.flat_torch import STEP_BLOCK, TorchFlat

        # By its number: the thread that prefetches candidates has a current device of its own.
        device = torch.device("cuda", torch.cuda.current_device())
        engine = TorchFlat(vectors, device, threads, torch.cuda.mem_get_info(device)[0] - STEP_RESERVE, most)
        if engine.kept is not None:
            engine.block = STEP_BLOCK
            return engine
        if spare is None:
            raise Refusal(
                f"negatives.live: {len(vectors):,} passages take {2 * vectors.size / 1e9:.1f} GB in fp16, for which "
                "the GPU has no room beside the training. Let several GPUs share them (--set-resources train:gpu=4), "
                "or set negatives.live.index to {kind: pq}."
            )
    return (spare or FaissFlat)(vectors, threads, most)


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
