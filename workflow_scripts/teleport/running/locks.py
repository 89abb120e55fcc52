"""Locked files: only one process holds a lock, and the kernel releases it when the process ends, however it ends."""

import fcntl
import time
from contextlib import contextmanager, suppress

from teleport.refusal import Refusal
from teleport.running.artefact import DELETED, HISTORY, MANIFEST, check_file, content_digest, is_deletion
from teleport.running.files import read_saved
from teleport.running.log import log

POLL_SECONDS = 0.5


def try_lock(file):
    """Whether this process got the lock of an open file. Raises OSError if the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_until(condition, reason):
    """Poll until `condition()`; logs once why nothing happens."""
    if not condition():
        log.info("waiting: %s", reason)
        while not condition():
            time.sleep(POLL_SECONDS)


@contextmanager
def sole_process(job):
    """Within this context no other process makes the stage (or shard) of `job`; waits for one that does, since a stage
    continues if Snakemake alone was killed. Yields whether the stage was finished meanwhile, by the same code from the
    same inputs; an earlier result does not count, as Snakemake wants it again. If the file system has no locks, nobody
    waits.
    """
    manifest = (job.resume if job.shard else job.folder) / MANIFEST
    before = version(manifest)
    job.lock.parent.mkdir(parents=True, exist_ok=True)
    with open(job.lock, "a") as file:
        try:
            free = try_lock(file)
        except OSError as error:
            log.warning("%s cannot be locked (%s): do not run two workflows on this folder at once", job.lock, error)
            free = True
        if not free:
            last = "it has just started or is about to end"
            with suppress(FileNotFoundError, IndexError):
                last = (job.resume / HISTORY).read_text(encoding="utf-8").splitlines()[-1]
            reason = f"another process works on {job.name} ({last}); wait for it, or stop it"
            wait_until(lambda: try_lock(file), reason)
        yield version(manifest) != before and read_finished(job, manifest) is not None


def version(path):
    """Return numbers that distinguish a file from its replacement; None if there is no file."""
    with suppress(FileNotFoundError):
        status = path.stat()
        return status.st_ino, status.st_mtime_ns


def read_finished(job, path):
    """The manifest (dict) at `path` if this code made it from these inputs and its files are sound; else None.

    Files are checked as their readers check them. Vectors that were deleted on purpose (keep_vectors) may be missing.
    """
    with suppress(Refusal):
        manifest = read_saved(path)
        if manifest.get("stamp") == job.stamp() and manifest.get("sha256") in (None, content_digest(manifest)):
            deleted = is_deletion(read_saved(path.parent / DELETED), manifest)
            for name, expected in manifest["files"].items():
                if not deleted or (path.parent / name).exists():
                    check_file(path.parent / name, expected, full=False, remedy="")
            return manifest
