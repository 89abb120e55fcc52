"""Run one stage: the command behind every stage rule.

    python workflow_scripts/run_stage.py results/stages/KIND/KEY/stage.json --code DIGEST

The file has {"kind": …, "key": …, "settings": {…}, "inputs": {…}}. It is data: nothing
in it is executed. Bad input ends with one sentence on stderr and status 1.
"""

# ruff: noqa: E402
import os
import signal
import sys

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C saves what SIGTERM saves; before the other imports, which it would end with a traceback.
    signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))

import argparse
import contextlib
import ctypes
import logging
import traceback

from teleport.plan.kinds import KINDS
from teleport.refusal import Refusal
from teleport.running.devices import lease_devices, require_given, require_usable
from teleport.running.files import of_the_system, read_saved
from teleport.running.job import Job
from teleport.running.launch import PROCESSES, RANK, launch
from teleport.running.locks import sole_process
from teleport.running.log import configure_logging, log
from teleport.running.places import arrives
from teleport.running.run import (
    IS_HELPER,
    clean_up_after_refusal,
    discard,
    has_work,
    require_unedited,
    run,
    run_shard,
    take,
)


def keep_freed_memory():
    """Make glibc keep freed blocks: mapping them again for every batch took a twelfth of encoding on two cores."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(-3, 2**25)  # M_MMAP_THRESHOLD of mallopt(3)
        libc.mallopt(-1, 2**30)  # M_TRIM_THRESHOLD


def about_saved_work(job):
    """The remedy for an unforeseen error that damaged saved work may have caused (text)."""
    if job is None or not job.resume.is_dir() or not has_work(job.resume):
        return ""
    return f"\nThe next attempt continues from {job.resume}: if it fails in the same way, delete that folder."


def parse_arguments():
    """The command line (argparse.Namespace)."""
    parser = argparse.ArgumentParser(description="Run one stage of the workflow.")
    add = parser.add_argument
    add("stage", help="JSON file of the stage: kind, key, settings, inputs, loads, origins")
    add("--code", required=True, help="digest of the code that runs, for the manifest and resume state")
    add("--files", help="digest of all files of the code then; where it holds, --code is believed")
    add("--anew", type=float, metavar="TIME", help="take no result from before this time, in seconds (--forcerun)")
    add("--artefacts", action="append", default=[], help="a place that may have the stage finished")
    add("--shard", help="make only this shard of the stage, for example 2-of-4")
    add("--shards", type=int, default=1, help="number of shards that the stage joins; 1: none")
    add("--gpus", type=int, default=0, help="CUDA devices that the stage may use, where there are some")
    add("--compile", action="store_true", help="have torch.compile prepare the encoder on CUDA")
    add("--threads", type=int, default=1, help="threads the stage may use")
    add("--processes", type=int, default=1, help="processes that share the work, one device each")
    add("--save-every", type=float, default=60.0, help="seconds of work that a kill may cost")
    add("--attempt", type=int, default=0, help="of the cluster's job, from 1; 0 without a cluster")
    return parser.parse_args()


def read_spec(path):
    """The content (dict) of a stage's JSON file."""
    if not (spec := read_saved(path)):
        raise Refusal(f"{path} is missing, or not JSON. Run the workflow, which writes it.")
    return spec


def run_alone(job, arguments, processes):
    """Run the job when no other process makes the stage, on devices of its own."""
    with contextlib.ExitStack() as stack:
        if RANK not in os.environ:  # the process that starts several holds lock and devices for all
            if stack.enter_context(sole_process(job)):
                log.info("%s is finished: another process has made it meanwhile", job.name)
                if not job.shard:  # a shard's folder is also that of its saved work
                    discard(job)
                return
            if take(job, arguments.anew or 0.0) or (arguments.anew is None and arrives(job, arguments.artefacts)):
                return
            stack.enter_context(lease_devices(arguments.gpus))  # before torch is loaded: it looks for devices once
            if processes > 1:
                sys.exit(launch(processes, [sys.executable, *sys.argv]))
        require_unedited(job, arguments.files)  # after all waiting, before the stage is loaded
        if (
            arguments.gpus and KINDS[job.kind].gpus and not IS_HELPER
        ):  # other kinds hold a device and do not compute on it
            if job.uses_gpu:
                require_usable()
            elif arguments.attempt:
                require_given(arguments.gpus)
        with clean_up_after_refusal(job):
            if arguments.shard:
                run_shard(job)
            else:
                run(job)


def main():
    """Make the stage of the command line, and end the process with its status."""
    arguments = parse_arguments()
    threads = max(1, arguments.threads // int(os.environ.get(PROCESSES, 1)))
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[variable] = str(threads)  # before numpy, torch or faiss are loaded
    keep_freed_memory()
    # Threads that spin long while they wait (300,000 turns by default) make a busy machine many times slower. Threads
    # that sleep at once do so to a virtual machine: its idle processor is woken by the host.
    os.environ["GOMP_SPINCOUNT"] = "2000"  # as in bench/rounds.py
    configure_logging()
    log.setLevel(logging.WARNING if IS_HELPER else logging.INFO)
    job = None
    try:
        options = ("code", "shard", "shards", "compile", "gpus")
        spec = read_spec(arguments.stage) | {name: getattr(arguments, name) for name in options}
        job = Job(spec, threads, arguments.save_every)
        processes = int(os.environ.get(PROCESSES, arguments.processes))
        if processes > 1 and job.kind != "train":
            raise Refusal(f"a stage of kind {job.kind} runs in one process, not in {processes}.")
        run_alone(job, arguments, processes)
    except Refusal as error:
        sys.exit(f"error: {error}")
    except Exception as error:
        if known := of_the_system(error):
            sys.exit(f"error: {known[0]} ({error}). Nothing was published; {known[1]}.")
        traceback.print_exc()
        sys.exit(f"error: {type(error).__name__}: {error}{about_saved_work(job)}")


if __name__ == "__main__":
    main()
