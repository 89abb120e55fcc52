"""The code that a stage runs, and finished stages that the workflow makes anew because it has changed since."""

from functools import cache

from teleport.running.artefact import MANIFEST, STAGES, cpu_code_on_gpu, is_finished
from teleport.running.code import digests_of_all, stage_code
from teleport.running.files import read_saved


def codes_of(stage, digests):
    """{"code", "cpu_code"}, as provenance has them: the digest of the code that a stage runs, of its module and those
    that the plan chose for it; and of what computes it on a CPU alone, "" where nothing does. One that a GPU has made
    keeps its own. digests: as `digests_of_all` gives them"""
    on_cpu = digests[stage.kind]
    on_cpu = on_cpu and (cpu_code_on_gpu(STAGES / stage.name / MANIFEST) or on_cpu)
    return {"code": stage_code(stage.kind, stage.loads, digests.__getitem__), "cpu_code": on_cpu}


def is_edited(stage, codes):
    """Whether a finished stage was made by other code than `codes`, as `codes_of` gives them."""
    made = read_saved(STAGES / stage.name / MANIFEST).get("provenance", {})
    return any(made.get(key) not in (None, digest) for key, digest in codes.items())


def edited_stages(plan):
    """The names (set) of finished stages of a plan that other code has made than today's, or that read such ones."""
    digests = digests_of_all()

    @cache
    def outdated(name):
        stage = plan.stages[name]
        return is_edited(stage, codes_of(stage, digests)) or any(outdated(read.name) for read in stage.inputs.values())

    return {name for name in plan.stages if is_finished(name) and outdated(name)}


def edited_said(plan):
    """A sentence on them (list), none where there are none."""
    number = len(edited_stages(plan))
    return [f"made by other code than today's, so made anew: {number} of the finished stages"] if number else []
