"""The code that a stage runs, and finished stages that rerun because that code has changed."""

from functools import cache

from teleport.report.words import number
from teleport.running.artefact import MANIFEST, STAGES, is_finished
from teleport.running.code import digests_of_all, stage_code
from teleport.running.files import read_saved


def code_of(stage, digests):
    """The digest of the code that a stage runs: its module, those that the plan chose for it, and all that they import.
    digests: as `digests_of_all` gives them"""
    return stage_code(stage.kind, stage.loads, digests.__getitem__)


def is_edited(stage, code):
    """Whether a finished stage was made by code with another digest than `code`."""
    made = read_saved(STAGES / stage.name / MANIFEST).get("provenance", {})
    return made.get("code") not in (None, code)


def outdated_by(stages, reruns):
    """A function of a stage's name: whether this stage, or one that it reads, reruns.

    stages: {name: stage}; reruns: function of a stage, whether it does so by itself
    """

    @cache
    def outdated(name):
        return reruns(stages[name]) or any(outdated(read.name) for read in stages[name].inputs.values())

    return outdated


def edited_stages(plan):
    """The names (set) of a plan's finished stages that an older version of the code made, or that read one of
    these."""
    digests = digests_of_all()
    outdated = outdated_by(plan.stages, lambda stage: is_edited(stage, code_of(stage, digests)))
    return {name for name in plan.stages if is_finished(name) and outdated(name)}


def edited_sentence(plan):
    """A sentence (in a list) on the `edited_stages` of a plan; [] if there are none. Snakemake compares the code of the
    stages that its metadata has; `run.take` decides what is kept."""
    if not (edited := len(edited_stages(plan))):
        return []
    made = f"older code made {number(edited, 'finished stage')}, or what they read"
    return [f"{made}: the next run plans those that .snakemake/metadata records, and keeps unchanged results"]
