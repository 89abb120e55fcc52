"""The origin of an artefact: code, versions, hardware, time and memory of the run that made it."""

import os
import platform
import re
import resource
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

from teleport.running import launch, log

LIBRARIES = ["numpy", "pyarrow", "torch", "transformers", "tokenizers", "safetensors", "faiss-cpu", "faiss-gpu"]
LIBRARIES += ["bm25s", "PyStemmer", "ir-measures", "scipy", "pandas", "snakemake"]
HEAVY = ("torch", "transformers", "faiss", "pandas", "scipy", "bm25s")  # loading one takes a fraction of a second


def git_commit():
    """The commit of this repository, with `+changes` when tracked files differ from it; None outside git."""
    command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"]
    try:
        return subprocess.check_output(command, cwd=Path(__file__).parent, text=True, stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@cache
def not_in_commit(commit, files):
    """Return those of some files (tuple of paths from the root of this repository) that a commit does not have; []
    outside git."""

    def knows(what):
        command = ["git", "cat-file", "-e", what]
        return subprocess.run(command, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL).returncode == 0

    try:
        return [file for file in files if not knows(f"{commit}:{file}")] if knows(commit) else []
    except OSError:
        return []


def versions():
    """{library: version} of the installed libraries that can influence an artefact."""
    installed = {"python": platform.python_version()}
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return installed


def hardware():
    """CPU, cores, memory in bytes, and the GPU if this process has loaded torch and sees one."""
    info, memory = Path("/proc/cpuinfo"), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    named = re.search(r"^model name\s*: (.*)", info.read_text() if info.is_file() else "", re.MULTILINE)
    processor = named[1].strip() if named else platform.processor()
    machine = {"processor": processor, "cores": os.cpu_count(), "memory_bytes": memory}
    if (torch := sys.modules.get("torch")) and torch.cuda.is_available():
        machine |= {"gpu": torch.cuda.get_device_name(), "gpu_peak_bytes": torch.cuda.max_memory_allocated()}
    return machine


def peak_memory():
    """Return the peak of resident bytes, including mapped files, which the system can reclaim: of this process and of
    those that share its work, each of which is assumed to use as much as this one."""
    resident = launch.peak_resident() or 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return resident * int(os.environ.get(launch.PROCESSES, 1)) + launch.apart


def provenance(job, started, attempt):
    """Return the entry `provenance` of a manifest (dict) of work that ends now. Times in seconds, memory in bytes.
    started: by time.monotonic, because a clock may be set meanwhile"""
    seconds = time.monotonic() - started
    return {
        "code": job.code,
        "git_commit": git_commit(),
        "versions": versions(),
        "loaded": [name for name in HEAVY if name in sys.modules],
        "hardware": hardware(),
        "host": os.uname().nodename,
        "process": os.getpid(),
        "threads": job.threads,
        "shards": job.shards,
        "warnings": list(log.warnings),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - seconds)),
        "wall_seconds": round(seconds, 3),
        "attempt": attempt,
        "peak_memory_bytes": peak_memory(),
        "seed": job.raw_settings.get("seed"),
    }
