"""Memory that this process can still take."""

import resource
from pathlib import Path

LIMITS = {"VmSize": resource.RLIMIT_AS, "VmData": resource.RLIMIT_DATA}


def free_bytes():
    """Memory that this process can still take, within the machine, its control group (a Slurm job) and its own
    limits."""
    limits = {field: resource.getrlimit(limit)[0] for field, limit in LIMITS.items()}
    free = [kilobytes("/proc/meminfo", "MemAvailable")]
    free += [n - kilobytes("/proc/self/status", name) for name, n in limits.items() if n != resource.RLIM_INFINITY]
    # The control groups (version 2) above this process that have a limit.
    name = next((line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line[:3] == "0::"), "/")
    folder = Path("/sys/fs/cgroup") / name.strip("/")
    for group in (folder, *folder.parents):
        limit = group / "memory.max"
        if limit.is_file() and limit.read_text().strip() != "max":
            free.append(int(limit.read_text()) - int((group / "memory.current").read_text()))
    return max(0, min(free))


def kilobytes(path, field):
    """The value of a line such as `VmSize: 12 kB`, in bytes."""
    lines = Path(path).read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))
