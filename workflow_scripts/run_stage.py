"""Run one stage: the command behind every stage rule.

    python workflow_scripts/run_stage.py --spec '{"kind": …, "key": …, "settings": {…}, "inputs": {…}}' --code DIGEST

The specification is data: nothing in it is executed. Bad input ends with one sentence on stderr and status 1.
"""

import argparse
import contextlib
import ctypes
import errno
import importlib
import json
import logging
import os
import shutil
import sys
import time
import traceback
from pathlib import Path

from teleport.runtime.artefact import MANIFEST, file_entry
from teleport.runtime.code import STAGE_MODULES, files_digest, stage_code_digest
from teleport.runtime.devices import lease_devices
from teleport.runtime.files import PRUNE, write_json
from teleport.runtime.job import Job
from teleport.runtime.launch import end_with_parent, launch
from teleport.runtime.locks import read_finished, sole_process
from teleport.runtime.log import configure_logging, log
from teleport.runtime.provenance import provenance

FINISHED = "finished.json"  # beside the manifest, on a cluster: a copy that Snakemake does not know and delete
RANK = int(os.environ.get("RANK", 0))  # of this process among those that run the stage together
SEVERAL_PROCESSES = ("train",)


def run(job, attempt_on_cluster=0, clock=time.time):
    """Run the stage of `job`, publish its outputs and write the manifest, the last thing to appear.

    Of several processes, the others only help the first one with its work. attempt_on_cluster: 0 on one machine. When a
    group of stages is submitted again, Snakemake has deleted the manifests of those that were finished and asks for all
    of them; in attempts after the first they are taken as they are.
    """
    if RANK:
        importlib.import_module(STAGE_MODULES[job.kind]).run(job)
        return
    if attempt_on_cluster > 1 and restore_finished(job):
        log.info("%s/%s was finished by an earlier attempt", job.kind, job.key)
        return
    (job.folder / FINISHED).unlink(missing_ok=True)  # an earlier run's: no later attempt of this run takes it
    started = clock()
    resumed = job.open_resume()
    attempt = count_attempt(job)
    log.info("%s/%s attempt %d%s", job.kind, job.key, attempt, ", resume state kept" if resumed else "")
    module = importlib.import_module(STAGE_MODULES[job.kind])
    loaded = clock()
    facts = module.run(job)
    worked = clock()
    manifest = {
        "kind": job.kind,
        "key": job.key,
        "stamp": job.stamp(),
        "settings": job.raw_settings,
        "inputs": {role: f"{a.manifest['kind']}/{a.manifest['key']}" for role, a in job.inputs.items()},
        "facts": facts,
        "files": job.publish(),
        "provenance": provenance(job, started, clock(), attempt),
    }
    seconds = {"load": loaded - started, "work": worked - loaded, "publish": clock() - worked}
    manifest["provenance"]["seconds"] = {phase: round(spent, 3) for phase, spent in seconds.items()}
    if attempt_on_cluster:
        write_json(job.folder / FINISHED, manifest)
    write_json(job.folder / MANIFEST, manifest)
    shutil.rmtree(job.resume)
    shutil.rmtree(job.shards_folder, ignore_errors=True)
    log.info("%s/%s done in %.1f s", job.kind, job.key, clock() - started)


def run_shard(job, clock=time.time):
    """Make one shard of a stage in a folder of its own; the job of the stage joins it with the others."""
    started = clock()
    resumed = job.open_resume()
    attempt = count_attempt(job)
    name = f"{job.kind}/{job.key} shard {job.shard}"
    log.info("%s attempt %d%s", name, attempt, ", resume state kept" if resumed else "")
    facts = importlib.import_module(STAGE_MODULES[job.kind]).run_shard(job)
    manifest = {
        "shard": job.shard,
        "stamp": job.stamp(),
        "facts": facts,
        "files": {path.name: file_entry(path) for path in sorted(job.resume.glob("*.npy"))},
        "provenance": provenance(job, started, clock(), attempt),
    }
    write_json(job.resume / MANIFEST, manifest)
    log.info("%s done in %.1f s", name, clock() - started)


def restore_finished(job):
    """Write the manifest that an earlier attempt left; False when there is none for this code, inputs and files."""
    manifest = read_finished(job, job.folder / FINISHED)
    if manifest is not None:
        write_json(job.folder / MANIFEST, manifest)
    return manifest is not None


def require_unedited(kind, code, files):
    """Raise ValueError when the code on disk is not that of the digests: the stage would be recorded under them.

    files: `files_digest` when `code` was computed; None if not known
    """
    if not is_code(kind, code, files):
        raise ValueError(
            f"the code of the stage {kind} was edited since the workflow started, with digest {code}: run the workflow "
            "again. Edits wait until it has ended, or go into a copy of the repository."
        )


def is_code(kind, code, files):
    """Whether the digests are those of the code on disk; files that vanish or are half written are an edit."""
    try:
        return files == files_digest() or stage_code_digest(kind) == code
    except (OSError, SyntaxError):
        return False


def count_attempt(job):
    """Append to the stage's history, which outlives Snakemake's log; returns the number of this attempt."""
    history = job.resume / "history.log"
    with open(history, "a", encoding="utf-8") as file:
        file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} host {os.uname().nodename} process {os.getpid()}\n")
    return len(history.read_text(encoding="utf-8").splitlines())


def keep_freed_memory():
    """Have glibc keep freed blocks: mapping them anew for every batch took a twelfth of encoding on two cores."""
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of mallopt(3)
    with contextlib.suppress(OSError, AttributeError):  # another C library does without
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(mmap_threshold, 2**25)
        libc.mallopt(trim_threshold, 2**30)


def raised_here(error):
    """Whether an error is a sentence of ours for a person; a library's own needs its traceback to be understood."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    here = Path(__file__).resolve().parent
    return last.line.startswith("raise ") and Path(last.filename).resolve().is_relative_to(here)


def parse_arguments():
    """The command line (argparse.Namespace)."""
    parser = argparse.ArgumentParser(description="Run one stage of the workflow.")
    parser.add_argument("--spec", required=True, help="the stage as JSON: kind, key, settings, inputs")
    parser.add_argument("--code", required=True, help="digest of the code that runs, for the manifest and resume state")
    parser.add_argument("--files", help="digest of all files of the code then; where it holds, --code is believed")
    parser.add_argument("--places", default="{}", help="where files are fetched from, as JSON; decides no result")
    parser.add_argument("--shard", help="make only this shard of the stage, for example 2-of-4")
    parser.add_argument("--shards", type=int, default=1, help="number of shards that the stage joins; 1: none")
    parser.add_argument("--gpus", type=int, default=0, help="CUDA devices that the stage may use, where there are some")
    parser.add_argument("--compile", action="store_true", help="have torch.compile prepare the encoder on CUDA")
    parser.add_argument("--threads", type=int, default=1, help="threads the stage may use")
    parser.add_argument("--processes", type=int, default=1, help="processes that share the work, one device each")
    parser.add_argument("--save-every", type=float, default=60.0, help="seconds of work that a kill may cost")
    parser.add_argument("--attempt", type=int, default=0, help="of the cluster's job, from 1; 0 without a cluster")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    threads = max(1, arguments.threads // int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[variable] = str(threads)  # before numpy, torch or faiss are loaded
    keep_freed_memory()
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # threads that spin while waiting slow a busy machine many times over
    configure_logging()
    if "RANK" in os.environ:
        end_with_parent()
        log.setLevel(logging.WARNING if RANK else logging.INFO)
    try:
        spec = json.loads(arguments.spec) | {"code": arguments.code, "places": json.loads(arguments.places)}
        spec |= {"shard": arguments.shard, "shards": arguments.shards, "compile": arguments.compile}
        processes = int(os.environ.get("WORLD_SIZE", arguments.processes))
        if processes > 1 and spec["kind"] not in SEVERAL_PROCESSES:
            raise ValueError(f"a stage of kind {spec['kind']} runs in one process, not in {processes}.")
        job = Job(spec, threads, arguments.save_every)
        with contextlib.ExitStack() as held:
            if "RANK" not in os.environ:  # several processes share what the one that starts them holds
                if held.enter_context(sole_process(job)):
                    log.info("%s/%s is finished: the process that was waited for has made it", job.kind, job.key)
                    return
                # Before torch is loaded, which looks for devices once.
                held.enter_context(lease_devices(arguments.gpus))
                if processes > 1:
                    sys.exit(launch(processes, [sys.executable, *sys.argv]))
            require_unedited(job.kind, job.code, arguments.files)  # after all waiting, before the stage is loaded
            if arguments.shard:
                run_shard(job)
            else:  # several processes take nothing from an earlier attempt: all or none of them must work
                run(job, 0 if "RANK" in os.environ else arguments.attempt)
    except ValueError as error:
        if not raised_here(error):
            traceback.print_exc()
        sys.exit(f"error: {error}")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        sys.exit(
            f"error: no room left on the disk ({error}). Nothing was published; free some space ({PRUNE}) and run "
            "again: the stage continues where it can."
        )


if __name__ == "__main__":
    main()
