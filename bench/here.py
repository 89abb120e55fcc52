"""Stages in this process, one after another: without Snakemake, and with the imports of one stage for all."""

from teleport.running.artefact import is_finished


def needed(stages):
    """The given stages and all that they read, each once, what is read first ({name: Stage})."""
    found = {}
    for stage in stages:
        found |= needed(read for read in stage.inputs.values() if read.name not in found) | {stage.name: stage}
    return found


def make(stages, failed=None):
    """Make stages, and what they need, that are not finished.

    failed: a dict that takes {name of a stage: its error}, and the stages that do not read it go on; None: the first
    error ends it
    """
    from commands.edited import code_of
    from teleport.running.code import digests_of_all
    from teleport.running.job import Job
    from teleport.running.run import run

    code, left = digests_of_all(), set()
    for name, stage in needed(stages).items():
        if any(read.name in left for read in stage.inputs.values()):
            left.add(name)
        elif not is_finished(name):
            try:
                run(Job(stage.spec() | {"code": code_of(stage, code)}, threads=1))
            except Exception as error:  # a defect of one row hides none of another
                if failed is None:
                    raise
                failed[name] = error
                left.add(name)
