"""One run of a stage, from inputs to manifest: the checks before it, the work, and its resume state."""

import os
import shutil
import time
from contextlib import contextmanager, suppress

from pydantic import ValidationError

from teleport.plan.kinds import KINDS
from teleport.refusal import Refusal
from teleport.running.artefact import HISTORY, MANIFEST, PROGRESS, SPEC, WARNINGS, file_entry, signed
from teleport.running.code import files_digest, stage_code
from teleport.running.files import files_below, share, sync, write_json
from teleport.running.job import STAMP
from teleport.running.launch import RANK
from teleport.running.locks import read_finished
from teleport.running.log import keep_warnings, log
from teleport.running.provenance import provenance
from teleport.settings.section import mistakes_of

FINISHED = "finished.json"  # a copy of the manifest, which Snakemake deletes before it runs the stage again
BOOKKEEPING = (STAMP, HISTORY, PROGRESS, WARNINGS)  # left by every attempt, whether it saved work or not
IS_HELPER = os.environ.get(RANK, "0") != "0"  # the first of the processes started together writes the files


def take(job, since=0.0):
    """Publish the finished result of a stage if it is sound and was made by the same code from inputs of the same
    content; returns whether it is. So a stage that reruns for a coarse reason, such as an edit further up that changed
    no file, costs no work. A shard of it has nothing to make.

    since: the time (seconds) before which a result does not count
    """
    finished = job.folder / FINISHED
    if not (manifest := read_finished(job, finished)):
        return False
    if since and not since <= finished.stat().st_mtime <= time.time():  # later than now: made before a clock was set
        return False
    if job.shard:
        write_json(job.resume / MANIFEST, {"shard": job.shard, "stamp": job.stamp(), "facts": {}, "files": {}})
    else:
        publish_manifest(job, manifest)
    log.info("%s is unchanged: same code, same inputs", job.name)
    return True


def publish_outputs(job):
    """Give every output its final name; returns the manifest's `files` ({name: {bytes, sha256}})."""
    files = {}
    for name, part in sorted(job.outputs.items()):
        if not part.exists():
            raise RuntimeError(f"stage {job.kind} announced the output {name!r} but did not write it")
        final = job.folder / name
        if final.is_dir():
            shutil.rmtree(final)
        os.replace(part, final)
        part.unlink(missing_ok=True)  # renaming one link of a file onto another of it does nothing (POSIX)
        for file in files_below(final):
            share(file)
            files[str(file.relative_to(job.folder))] = file_entry(file)
    return files


def publish_manifest(job, manifest):
    """Write the manifest, which makes the stage finished, and remove the state that nobody needs then."""
    for name in (FINISHED, MANIFEST):
        write_json(job.folder / name, manifest)
        sync(job.folder / name)
    discard(job)


def run(job):
    """Run the stage of `job`, publish its outputs and write the manifest last."""
    if IS_HELPER:
        require_settings(job)
        job.module.run(job)
        return
    for name in (FINISHED, MANIFEST):  # of an earlier run; its files are about to be replaced
        (job.folder / name).unlink(missing_ok=True)
    started, attempt = time.monotonic(), begin_attempt(job)
    require_settings(job)
    loaded = time.monotonic()
    facts = job.module.run(job)
    worked = time.monotonic()
    manifest = {"kind": job.kind, "key": job.key, "stamp": job.stamp(), "settings": job.raw_settings}
    manifest |= {"inputs": job.spec["inputs"], "facts": facts, "files": publish_outputs(job)}
    manifest["provenance"] = provenance(job, started, attempt)
    seconds = {"load": loaded - started, "work": worked - loaded, "publish": time.monotonic() - worked}
    manifest["provenance"]["seconds"] = {phase: round(spent, 3) for phase, spent in seconds.items()}
    publish_manifest(job, signed(manifest))
    log.info("%s done in %.1f s", job.name, time.monotonic() - started)


def discard(job):
    """Remove the saved state and the shards of a finished stage, beginning with the files by which an attempt would use
    them.

    Shards go before the state joined from them: their vectors are gone by then, and alone they would be useless.
    """
    for folder in (*job.shards_folder.glob("*"), job.resume):
        for name in (STAMP, MANIFEST):
            (folder / name).unlink(missing_ok=True)
    if job.resume.is_dir():
        shutil.rmtree(job.resume)
    shutil.rmtree(job.shards_folder, ignore_errors=True)


@contextmanager
def clean_up_after_refusal(job):
    """If a stage refuses its input within the block before it has saved any work, remove its resume folder, which would
    look like that of a killed stage."""
    try:
        yield
    except Refusal:
        if not IS_HELPER and job.resume.is_dir() and not has_work(job.resume):
            shutil.rmtree(job.resume)
        raise


def has_work(folder):
    """Whether a resume folder has more than the files of every attempt."""
    return any(path.name not in BOOKKEEPING for path in folder.iterdir())


def run_shard(job):
    """Make one shard of a stage in its own folder; the stage's job joins it with the others."""
    started, attempt = time.monotonic(), begin_attempt(job)
    require_settings(job)
    manifest = {"shard": job.shard, "stamp": job.stamp(), "facts": job.module.run_shard(job)}
    manifest["files"] = {path.name: file_entry(path) for path in sorted(job.resume.glob("*.npy"))}
    manifest["provenance"] = provenance(job, started, attempt)
    write_json(job.resume / MANIFEST, manifest)
    log.info("%s done in %.1f s", job.name, time.monotonic() - started)


def begin_attempt(job):
    """Open the resume state of a job and add the attempt to its history, which outlives Snakemake's log; returns the
    number of the attempt, from 1 on."""
    resumed, history = job.open_resume() and has_work(job.resume), job.resume / HISTORY
    with open(history, "a", encoding="utf-8") as file:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())  # read on machines with other time zones
        file.write(f"{moment} host {os.uname().nodename} process {os.getpid()}\n")
    attempt = len(history.read_bytes().splitlines())
    if not resumed:
        (job.resume / WARNINGS).unlink(missing_ok=True)  # all work is done again, and warned of again
    keep_warnings(job.resume / WARNINGS)
    log.info("%s attempt %d%s", job.name, attempt, ", resume state kept" if resumed else "")
    return attempt


def require_settings(job):
    """Load the module of the stage. Raises Refusal for settings that do not fit it."""
    try:
        job.settings  # noqa: B018
    except ValidationError as error:
        mistakes = [(".".join(map(str, m["loc"])), m["msg"].removeprefix("Value error, ")) for m in mistakes_of(error)]
        wrong = "; ".join(f"{key}: {rule}" if key else rule for key, rule in mistakes)
        raise Refusal(
            f"the settings of the stage {job.name} do not fit {KINDS[job.kind].module}: {wrong}. Run "
            f"the workflow, which plans stages that fit, or correct {job.folder / SPEC}."
        ) from None


def require_unedited(job, files):
    """Raise Refusal if the code on disk is not the job's. files: the `files_digest` of the job's code, or None"""
    with suppress(OSError, SyntaxError, ValueError):  # files that vanish or are half written count as edited
        if files == files_digest():
            return
        if stage_code(job.kind, job.loads) == job.code:
            return
    raise Refusal(
        f"the code of the stage {job.kind} was edited after the workflow started with digest {job.code}. Run the "
        "workflow again. Edit the code only after a run has ended, or in a copy of the repository."
    )
