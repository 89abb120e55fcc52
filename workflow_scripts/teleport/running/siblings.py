"""Stages that one process makes with what it has opened: searches of the same vectors, which are opened once.

The process that makes a stage goes on with the others of which it was told, each under its own lock. Their jobs still
come, and end at once: `run.take`.
"""

from contextlib import ExitStack, suppress

from teleport.refusal import Refusal
from teleport.running.artefact import MANIFEST
from teleport.running.files import read_saved
from teleport.running.locks import try_lock
from teleport.running.log import log
from teleport.running.run import FINISHED, UNCLAIMED, clean_up_after_refusal, run


def claim(job, specs):
    """Add to `job.siblings` those of the stages `specs` that can be made and that no process makes or has made; returns
    their locks."""
    locks = []
    for spec in specs:
        with ExitStack() as held, suppress(Refusal, OSError):  # what it reads is not finished; there are no locks
            sibling = job.sibling(spec)
            sibling.lock.parent.mkdir(parents=True, exist_ok=True)
            if try_lock(held.enter_context(open(sibling.lock, "a"))) and not is_made(sibling):
                job.siblings.append(sibling)
                locks.append(held.pop_all())
    return locks


def is_made(job):
    """Whether the stage is there, by its own job or not; one that other code made is to be made anew."""
    return any(read_saved(job.folder / name).get("stamp") == job.stamp() for name in (MANIFEST, UNCLAIMED, FINISHED))


def make_siblings(job, locks):
    """Make the siblings of a job that is finished, and give back the lock of each."""
    for sibling, lock in zip(job.siblings, locks, strict=True):
        with lock:
            try:
                with clean_up_after_refusal(sibling):
                    run(sibling, beside=job)
            except Exception as error:  # what is wrong with it is said by its own job: this one has done its work
                log.warning("%s/%s is left to its own job: %s", sibling.kind, sibling.key, error)
