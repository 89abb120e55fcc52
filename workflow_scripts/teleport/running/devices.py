"""CUDA devices for the jobs of one machine, leased so that concurrent jobs compute on distinct ones.

Snakemake counts the devices that jobs request (`resources: gpu`), but tells no job which are its own. Each device has a
file here whose lock is the lease; the kernel releases it when the process ends, however it ends.
"""

import glob
import itertools
import os
import re
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path

from teleport.refusal import Refusal
from teleport.running.locks import try_lock, wait_until
from teleport.running.log import log

LEASES = Path("results/leases")
VISIBLE = "CUDA_VISIBLE_DEVICES"
DEVICE_FILES = "/dev/nvidia[0-9]*"
# Messages of torch, and of faiss (StandardGpuResources.cpp).
SIGNS_OUT_OF_MEMORY = "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "StandardGpuResources: alloc fail"
DRIVER = Path("/proc/driver/nvidia/version")
CPU_MEANT = "TELEPORT_CPU"  # set if a stage may run without the device that it leased: to rehearse a schedule
BUILDS, OLDER_BUILDS = "https://download.pytorch.org/whl/cu130", "https://download.pytorch.org/whl/cu126"
# The variables of Slurm, PBS, LSF and SGE (Grid Engine); a site sets the last one in the jobs of another scheduler.
JOB_IDS = "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "TELEPORT_JOB"
NO_DEVICE = 6  # nvidia-smi's status for a query without result, as in a Slurm job without devices (its manual)


@contextmanager
def lease_devices(count, folder=LEASES):
    """Within this context the process sees `count` CUDA devices that no other process of this workflow has; waits until
    that many are free. 0 hides all devices; without a driver nothing is done. Enter it before torch is loaded, which
    reads CUDA_VISIBLE_DEVICES once. If a cluster gave a job exactly `count` devices, they are its own and not leased.
    """
    before = os.environ.get(VISIBLE)
    with ExitStack() as leases:
        try:
            if count == 0:
                os.environ[VISIBLE] = ""
            elif devices := visible_devices():
                os.environ[VISIBLE] = ",".join(choose(devices, count, folder, leases))
                log.info("CUDA devices: %s", os.environ[VISIBLE])
            elif silent := silent_driver():
                log.warning("%s", silent)
            yield
        finally:
            os.environ.pop(VISIBLE, None)
            os.environ.update({} if before is None else {VISIBLE: before})


def visible_devices():
    """Names of the CUDA devices that this process may use (list of str), without loading torch; CUDA's numbers if there
    is no nvidia-smi, as in some containers."""
    listed = os.environ.get(VISIBLE)
    if listed is not None:  # CUDA itself reads it up to the first invalid name
        names = (name.strip() for name in listed.split(","))
        # A repeated name counts once: CUDA would see no device at all, and waiting for two of the same would never end.
        return list(dict.fromkeys(itertools.takewhile(lambda name: name not in ("", "-1", "NoDevFiles"), names)))
    files = glob.glob(DEVICE_FILES)
    if (result := run_nvidia_smi()) is None:
        return list(map(str, range(len(files))))
    if files and result.returncode not in (0, NO_DEVICE):
        raise Refusal(
            f"nvidia-smi -L ended with status {result.returncode} ({printed(result)}), "
            f"but the devices {', '.join(sorted(files))} exist. Repair the driver, or name the devices in {VISIBLE} "
            f"(an empty {VISIBLE}= computes on the CPU)."
        )
    return parse_devices(result.stdout)


def has_c_compiler():
    """Whether Triton finds a C compiler, which builds the launchers of its kernels."""
    return any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")))


def run_nvidia_smi():
    """Run `nvidia-smi -L` and return its result (subprocess.CompletedProcess); None if it is not installed."""
    if shutil.which("nvidia-smi") is None:
        return None
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)


def printed(result):
    """The text that a process has printed, from its result."""
    return (result.stdout + result.stderr).strip()


def silent_driver():
    """Why nvidia-smi lists no device although it is installed, as after an update of the driver (a sentence); None if
    it works or is not installed. The machine may have no GPU, so nothing is refused."""
    if os.environ.get(VISIBLE) is not None or (result := run_nvidia_smi()) is None:
        return None
    if result.returncode in (0, NO_DEVICE):
        return None
    return (
        f"nvidia-smi is installed and ended with status {result.returncode} ({printed(result)}), so stages run on the "
        f"CPU. If there is a GPU, load its driver; if not, set an empty {VISIBLE}= to choose the CPU."
    )


def parse_devices(listing):
    """UUIDs in the output of `nvidia-smi -L`; for a device in MIG mode those of its slices, without its own."""
    devices = []
    for kind, uuid in re.findall(r"UUID: ((?:GPU|MIG)-)([^)\s]+)", listing):
        if kind == "MIG-" and devices and devices[-1].startswith("GPU-"):
            devices.pop()
        devices.append(kind + uuid)
    return devices


def choose(devices, count, folder, leases):
    """`count` of `devices`, leased until `leases` (an ExitStack) closes; waits for them."""
    job = cluster_job()
    if count > len(devices):
        raise Refusal(
            f"the stage needs {count} CUDA devices (`resources: gpu`), but only {len(devices)} are available: "
            f"{', '.join(devices)}. Lower the number, for example with --set-resources train:gpu={len(devices)}."
        )
    if job and count == len(devices):
        return devices
    # A cluster may number the devices of each job 0, 1, ..., so a name identifies a device only within its job.
    folder, leased = folder / (f"{os.uname().nodename}-{job}" if job else os.uname().nodename), set()
    folder.mkdir(parents=True, exist_ok=True)
    # One process chooses at a time: two that hold one device each and wait for another would never end.
    with open(folder / "queue.lock", "a") as queue:
        wait_until(lambda: try_lease(queue), "other jobs are ahead of this one in the queue for CUDA devices")
        wanted = f"{count} of the CUDA devices {', '.join(devices)}, which other jobs use"
        wait_until(lambda: lease_free(devices, count, folder, leased, leases), wanted)
    return [device for device in devices if device in leased]


def cluster_job():
    """The id of the cluster job that this process belongs to, if the devices it sees are that job's alone; else None.

    Slurm shows a job only its own devices. With other schedulers, a job without CUDA_VISIBLE_DEVICES may see all.
    """
    names = JOB_IDS if VISIBLE in os.environ else JOB_IDS[:1]
    return next((os.environ[name].replace("/", "_") for name in names if os.environ.get(name)), None)


def lease_free(devices, count, folder, leased, leases):
    """Add free devices to `leased` (a set) until there are `count`; returns whether there are."""
    for device in devices:
        if device not in leased and len(leased) < count:
            with ExitStack() as lease:
                if try_lease(lease.enter_context(open(folder / f"{device.replace('/', '_')}.lock", "a"))):
                    leases.enter_context(lease.pop_all())  # the file stays open, and so locked, until `leases` closes
                    leased.add(device)
    return len(leased) == count


def try_lease(file):
    """Return the same as `try_lock`. Raises Refusal if the file system has no locks."""
    try:
        return try_lock(file)
    except OSError as error:
        problem = f"{file.name} cannot be locked ({error}), so jobs cannot share the CUDA devices"
        raise Refusal(f"{problem}. Put `results` on a file system with locks.") from None


def driver_version():
    """Return the version of NVIDIA's kernel module, such as 580.65.06, or "not known"."""
    match = re.search(r"\s(\d+\.[\d.]+)\s", DRIVER.read_text() if DRIVER.is_file() else "")
    return match[1] if match else "not known"


def require_usable():
    """Raise Refusal if torch cannot compute on the leased devices: a stage would silently use the CPU. Lack of memory
    is left to the stage, which knows the remedy."""
    if os.environ.get(CPU_MEANT):
        return
    import torch

    try:
        float(torch.ones(1, device="cuda") + 1)
        names = visible_devices()
        # Without a lease (teleport doctor): CUDA shows a process only one of a device's MIG slices.
        unleased_slices = VISIBLE not in os.environ and any(name.startswith("MIG-") for name in names)
        if (seen := torch.cuda.device_count()) == len(names) or (unleased_slices and seen):
            return
        reason = f"torch sees {seen} of them"
    except (RuntimeError, AssertionError) as error:  # AssertionError: torch is built for the CPU
        if lacks_memory(error):
            return
        reason = str(error).strip().partition("\n")[0].rstrip(".")
    build = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    install = f".venv/bin/python -m pip install torch=={torch.__version__.partition('+')[0]} --index-url"
    newer = "Install a driver of 580 or newer (CUDA 13.0, no Volta), or a torch for older ones"
    remedy = newer if torch.version.cuda else f"Install a torch for CUDA ({install} {BUILDS}), or for older drivers"
    raise Refusal(
        f"torch cannot compute on the leased CUDA devices ({', '.join(visible_devices())}): {reason}; the driver is "
        f"{driver_version()}, torch {torch.__version__} is built {build}. {remedy} ({install} {OLDER_BUILDS}), see "
        "docs/gpu.md. To use the CPU, add --resources gpu=0."
    )


def require_given(count):
    """Raise Refusal: a cluster job that requests `count` CUDA devices sees none, and would silently use the CPU."""
    if not os.environ.get(CPU_MEANT):
        raise Refusal(
            f"this cluster job needs CUDA devices (`resources: gpu`, {count}), but sees none on "
            f"{os.uname().nodename}. Have the scheduler give it some, or choose the CPU: --set-resources encode:gpu=0 "
            "encode_shard:gpu=0 retrieve:gpu=0 retrieve_shard:gpu=0 train:gpu=0 cross_train:gpu=0 cross_score:gpu=0, "
            "or in the profile (docs/cluster.md)."
        )


def require_usable_apart():
    """Do the same as `require_usable` in a separate process, since this one loads no torch. Without a device nothing is
    tried."""
    if not visible_devices():
        return
    from concurrent.futures import ProcessPoolExecutor  # each job loads this module
    from multiprocessing import get_context

    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(require_usable).result()


CACHING = (
    "Set training.gradient_caching: true (the memory of one bucket, the same gradients), or let several GPUs share the "
    "step with --set-resources train:gpu=N."
)
# {kind of stage: the remedy if a device has too little memory for it}
LARGER = {
    "encode": "Set encoder.precision to bf16, or use a device with more memory.",
    "retrieve": "Lower mining.depth or evaluation.depth, or use a device with more memory.",
    "train": f"{CACHING} If it is set already, use training.gradient_checkpointing, encoder.lora, training.precision: "
    "bf16 or a device with more memory.",
}


@contextmanager
def out_of_memory(remedy):
    """Within the block (or the function decorated with it) lack of device memory becomes a Refusal with `remedy`."""
    try:
        yield
    except RuntimeError as error:
        if not lacks_memory(error):
            raise
        others = "Other programs may use memory of the device too: nvidia-smi lists them."
        raise Refusal(f"{error} {remedy} {others}") from error


def lacks_memory(error):
    """Whether an error is lack of device memory, by its class name, so that torch need not be loaded, or by its
    text."""
    return type(error).__name__ == "OutOfMemoryError" or any(sign in str(error) for sign in SIGNS_OUT_OF_MEMORY)
