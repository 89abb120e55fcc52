"""Stages without Snakemake: one after another in this process, or in several processes that import libraries once."""

import gc
import sys
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context

from teleport.running.artefact import is_finished


def needed(stages):
    """The given stages and all stages that they read, inputs first ({name: Stage})."""
    found = {}
    for stage in stages:
        found |= needed(read for read in stage.inputs.values() if read.name not in found) | {stage.name: stage}
    return found


def make(stages, failed=None):
    """Make stages, and the stages that they need, if they are not finished.

    failed: a dict for {name of a stage: its error}; stages that do not read a failed one still run. None: the first
    error is raised
    """
    from commands.edited import code_of
    from teleport.running.code import digests_of_all
    from teleport.running.job import spec_of

    code, left = digests_of_all(), set()
    for name, stage in needed(stages).items():
        if any(read.name in left for read in stage.inputs.values()):
            left.add(name)
        elif not is_finished(name):
            try:
                make_one(spec_of(stage) | {"code": code_of(stage, code)})
            except Exception as error:  # a defect of one row hides none of another
                if failed is None:
                    raise
                failed[name] = error
                left.add(name)


def make_on(stages, cores):
    """Make stages, and the stages that they need, on `cores` cores: in this process if there is one core."""
    make(stages) if cores == 1 else make_together(stages, cores)


def make_together(stages, processes):
    """Make stages, and the stages that they need, in `processes` processes of one thread each. Stages that begin the
    longest chains come first."""
    from commands.edited import code_of
    from teleport.running.code import digests_of_all
    from teleport.running.job import spec_of

    code, waiting, running = digests_of_all(), {}, {}
    for name, stage in needed(stages).items():
        if not is_finished(name):
            waiting[name] = stage, {read.name for read in stage.inputs.values() if read.name in waiting}
    ways, total = longest_ways(waiting), len(waiting)
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        while waiting or running:
            ready = [name for name, (_, unmade) in waiting.items() if not unmade]
            for name in sorted(ready, key=ways.get, reverse=True)[: processes - len(running)]:
                stage, _ = waiting.pop(name)
                running[pool.submit(make_one, spec_of(stage) | {"code": code_of(stage, code)})] = name
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                name = running.pop(ended)
                if error := ended.exception():  # printed at once: the pool ends after its other stages
                    print(f"{name} failed: {error}", flush=True)
                    raise error
                for _, unmade in waiting.values():
                    unmade.discard(name)
                print(f"{total - len(waiting) - len(running)} of {total}: {name}", flush=True)


def longest_ways(waiting):
    """{name: number of stages of the longest chain from it} of {name: (Stage, the names that it reads)}, inputs
    first."""
    ways = dict.fromkeys(waiting, 1)
    for name in reversed(waiting):
        for read in waiting[name][1]:
            ways[read] = max(ways[read], ways[name] + 1)
    return ways


def make_one(spec):
    """Make the stage of a `spec` in a process that makes others, too: GPU memory that it leaves is freed."""
    from teleport.running.job import Job
    from teleport.running.run import run

    run(Job(spec, threads=1))
    gc.collect()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
        sys.modules["torch"].cuda.empty_cache()
