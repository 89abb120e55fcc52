"""Run one stage: the command behind every stage rule.

    python workflow_scripts/run_stage.py --spec '{"kind": …, "key": …, "settings": {…}, "inputs": {…}}' --code DIGEST

The specification is data: nothing in it is executed. Bad input ends with one sentence on stderr and status 1.
"""

# ruff: noqa: E402
import os
import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C saves what SIGTERM saves; before the other imports, which it would end with a traceback.
    signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))

import argparse
import contextlib
import ctypes
import errno
import json
import logging
import re
import sys
import traceback
from pathlib import Path

from teleport.runtime.devices import lease_devices
from teleport.runtime.files import PRUNE
from teleport.runtime.job import Job
from teleport.runtime.launch import PROCESSES, RANK, end_with_parent, launch
from teleport.runtime.locks import sole_process
from teleport.runtime.log import configure_logging, log
from teleport.runtime.run import HELPS, discard, has_work, refusals_forgotten, require_unedited, run, run_shard

NO_ROOM = (
    "no room left on the disk",
    f"free some space ({PRUNE}), or raise the limit on files (`ulimit -f`, quotas), and run again: it continues if it "
    "can",
)
NO_ACCESS = ("access is refused", "have what is named readable, results and data/downloads writable, and run again")
FAILING = (
    "the disk reports a fault",
    "look at it (dmesg), and run again where files are sound: it continues if it can",
)
OF_THE_SYSTEM = dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), NO_ROOM)
OF_THE_SYSTEM |= dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), NO_ACCESS) | {errno.EIO: FAILING}
HERE = Path(__file__).resolve().parent


def keep_freed_memory():
    """Have glibc keep freed blocks: mapping them anew for every batch took a twelfth of encoding on two cores."""
    with contextlib.suppress(OSError, AttributeError):  # another C library does without
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(-3, 2**25)  # M_MMAP_THRESHOLD of mallopt(3)
        libc.mallopt(-1, 2**30)  # M_TRIM_THRESHOLD


def raised_here(error):
    """Whether an error is a sentence of ours for a person; a library's own needs its traceback to be understood."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return last.line.startswith("raise ") and Path(last.filename).resolve().is_relative_to(HERE)


def of_the_system(error):
    """(what, remedy) of an error that the system has with files, such as a full disk; None for any other.

    Libraries in Rust (safetensors, tokenizers) tell the number of the system's error as text, numpy not at all.
    """
    if re.fullmatch(r"\d+ requested and \d+ written", str(error)):
        return NO_ROOM
    number = re.search(r"os error (\d+)", str(error))
    return OF_THE_SYSTEM.get(getattr(error, "errno", None) or (int(number[1]) if number else None))


def about_saved_work(job):
    """What helps where an error that nobody foresaw comes from saved work that is damaged (text)."""
    if job is None or not job.resume.is_dir() or not has_work(job.resume):
        return ""
    return f"\nThe next attempt goes on from what is saved in {job.resume}: if it fails alike, delete that folder."


def parse_arguments():
    """The command line (argparse.Namespace)."""
    parser = argparse.ArgumentParser(description="Run one stage of the workflow.")
    add = parser.add_argument
    add("--spec", required=True, type=json.loads, help="the stage as JSON: kind, key, settings, inputs, loads")
    add("--code", required=True, help="digest of the code that runs, for the manifest and resume state")
    add("--files", help="digest of all files of the code then; where it holds, --code is believed")
    add("--origins", default={}, type=json.loads, help="where files are fetched from, as JSON; decides no result")
    add("--shard", help="make only this shard of the stage, for example 2-of-4")
    add("--shards", type=int, default=1, help="number of shards that the stage joins; 1: none")
    add("--gpus", type=int, default=0, help="CUDA devices that the stage may use, where there are some")
    add("--compile", action="store_true", help="have torch.compile prepare the encoder on CUDA")
    add("--threads", type=int, default=1, help="threads the stage may use")
    add("--processes", type=int, default=1, help="processes that share the work, one device each")
    add("--save-every", type=float, default=60.0, help="seconds of work that a kill may cost")
    add("--attempt", type=int, default=0, help="of the cluster's job, from 1; 0 without a cluster")
    return parser.parse_args()


def run_alone(job, arguments, processes):
    """Run the job when no other process makes the stage, on devices of its own."""
    with contextlib.ExitStack() as held:
        if RANK not in os.environ:  # several processes share what the one that starts them holds
            if held.enter_context(sole_process(job)):
                log.info("%s/%s is finished: the process that was waited for has made it", job.kind, job.key)
                if not job.shard:  # whose folder is the one of its saved work
                    discard(job)
                return
            held.enter_context(lease_devices(arguments.gpus))  # before torch is loaded: it looks for devices once
            if processes > 1:
                sys.exit(launch(processes, [sys.executable, *sys.argv]))
        require_unedited(job, arguments.files)  # after all waiting, before the stage is loaded
        with refusals_forgotten(job):
            if arguments.shard:
                run_shard(job)
            else:  # several processes take nothing from an earlier attempt: all or none of them must work
                run(job, 0 if RANK in os.environ else arguments.attempt)


def main():
    arguments = parse_arguments()
    threads = max(1, arguments.threads // int(os.environ.get(PROCESSES, 1)))
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[variable] = str(threads)  # before numpy, torch or faiss are loaded
    keep_freed_memory()
    # Threads that spin long while they wait (300,000 turns by default) slow a busy machine many times over, those that
    # sleep at once a virtual one: its idle processor is waked by the host. On two such cores a training step took 1.3 s
    # with this and 1.7 to 3.5 s with none; beside another training 3.0 s with this, 2.2 s with none, 9.7 s by default.
    os.environ["GOMP_SPINCOUNT"] = "2000"  # as in bench/rounds.py
    configure_logging()
    log.setLevel(logging.WARNING if HELPS else logging.INFO)
    if RANK in os.environ:
        end_with_parent()
    job = None
    try:
        options = {name: getattr(arguments, name) for name in ("code", "origins", "shard", "shards", "compile")}
        job = Job(arguments.spec | options, threads, arguments.save_every)
        processes = int(os.environ.get(PROCESSES, arguments.processes))
        if processes > 1 and job.kind != "train":
            raise ValueError(f"a stage of kind {job.kind} runs in one process, not in {processes}.")
        run_alone(job, arguments, processes)
    except Exception as error:
        if isinstance(error, ValueError) and raised_here(error):
            sys.exit(f"error: {error}")
        if known := of_the_system(error):
            sys.exit(f"error: {known[0]} ({error}). Nothing was published; {known[1]}.")
        traceback.print_exc()
        what = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        sys.exit(f"error: {what}{error}{about_saved_work(job)}")


if __name__ == "__main__":
    main()
