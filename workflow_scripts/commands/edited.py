"""Finished stages that the workflow makes anew because code has changed since."""

from functools import cache

from teleport.running.artefact import MANIFEST, STAGES, cpu_code_on_gpu, is_finished
from teleport.running.code import digests_of_all, stage_code
from teleport.running.files import read_saved


def edited_stages(plan):
    """The names (set) of finished stages of a plan that other code has made than today's, or that read such ones."""
    code = digests_of_all()

    @cache
    def is_edited(name):
        stage, path = plan.stages[name], STAGES / name / MANIFEST
        made = read_saved(path).get("provenance", {})
        today = {"code": stage_code(stage.kind, stage.loads, code.__getitem__)}
        if code[stage.kind] and made and not cpu_code_on_gpu(path):
            today["cpu_code"] = code[stage.kind]
        own = any(made.get(key) not in (None, digest) for key, digest in today.items())
        return own or any(is_edited(read.name) for read in stage.inputs.values())

    return {name for name in plan.stages if is_finished(name) and is_edited(name)}


def edited_said(plan):
    """A sentence on them (list), none where there are none."""
    number = len(edited_stages(plan))
    return [f"made by other code than today's, so made anew: {number} of the finished stages"] if number else []
