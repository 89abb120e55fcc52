"""The parts that every stage shares: checked inputs, atomic outputs, resume state, manifest, progress.

A stage is a function `run(job) -> facts` of settings, input artefacts and code. It writes files through `job.output`;
`run.run` publishes them: hash, rename, and last the manifest, the one file that other stages and Snakemake wait for.
A stage that dies leaves no manifest and no half-written artefact under its final name.
"""

import importlib
import json
import shutil
from functools import cached_property
from pathlib import Path

from teleport.plan.kinds import KINDS
from teleport.running.artefact import PROGRESS, SPEC, STAGES, Artefact
from teleport.running.devices import visible_devices
from teleport.running.files import read_saved, require_free_space, write_json
from teleport.running.log import Progress

RESUME = Path("results/resume")
SHARDS = Path("results/shards")
LOCKS = Path("results/locks")
STAMP = "stamp.json"  # in a resume folder: identifies the state, which is discarded without it


def spec_of(stage):
    """A planned Stage as its job reads it (dict of JSON)."""
    spec = {"kind": stage.kind, "key": stage.key, "settings": stage.raw_settings, "inputs": stage.input_names}
    return spec | {"loads": stage.loads, "origins": stage.origins}


def spec_path(stage):
    """The file with the `spec_of` a stage."""
    return STAGES / stage.name / SPEC


def write_spec(stage):
    """Write the `spec_of` a stage for its job; returns the path."""
    path, spec = spec_path(stage), spec_of(stage)
    if read_saved(path) != json.loads(json.dumps(spec)):
        write_json(path, spec)
    return path


class Job:
    """One run of one stage: settings, checked inputs, output paths, resume folder.

    `save_every`: how many seconds of work a kill may cost. `origins` (dict): where files are fetched from; they decide
    no result. `shards`: how many shards the stage joins, 1 for none. `shard`: "2-of-4" if the job makes only that
    shard, whose folder is then `resume`. `compile`: whether torch.compile may prepare the encoder. `uses_gpu`:
    whether the job gets a CUDA device; decided before it waits for one, as it sees other devices once it has its
    lease.
    """

    def __init__(self, spec, threads=1, save_every=60.0, root=Path(".")):
        self.spec, self.root = spec, root
        self.kind, self.key, self.code = spec["kind"], spec["key"], spec["code"]
        self.raw_settings, self.loads, self.origins = spec["settings"], spec.get("loads", {}), spec.get("origins", {})
        self.shard, self.shards, self.compile = spec.get("shard"), spec.get("shards", 1), spec.get("compile", False)
        self.threads, self.save_every = threads, save_every
        self.uses_gpu = bool(spec.get("gpus") and visible_devices())
        self.folder = root / STAGES / self.kind / self.key
        self.shards_folder = root / SHARDS / self.kind / self.key
        self.resume = self.shards_folder / self.shard if self.shard else root / RESUME / self.kind / self.key
        self.lock = root / LOCKS / self.kind / (f"{self.key}.{self.shard}" if self.shard else self.key)
        self.inputs = {role: Artefact(root / STAGES / name) for role, name in spec["inputs"].items()}
        self.outputs = {}
        self.progress = Progress(self.resume / PROGRESS)

    @property
    def name(self):
        """Its name in sentences: "kind/key", or "kind/key shard 2-of-4"."""
        return f"{self.kind}/{self.key}" + (f" shard {self.shard}" if self.shard else "")

    @cached_property
    def module(self):
        """The module of the stage, loaded late: torch looks for devices once, when it is loaded."""
        return importlib.import_module(KINDS[self.kind].module)

    @cached_property
    def settings(self):
        """The settings of the stage, typed by its module."""
        return self.module.Settings.model_validate(self.raw_settings)

    def load(self, name):
        """The library module that the plan gives for `name`, such as a source of negatives or a loss."""
        return importlib.import_module(self.loads[name])

    def input(self, role, name):
        """The checked path of file or folder `name` made by the upstream stage in `role`."""
        return self.inputs[role].path(name)

    def facts(self, role):
        """The facts (dict) of the manifest of the upstream stage in `role`."""
        return self.inputs[role].facts

    def output(self, name):
        """Return the path to write the artefact `name` (file or folder) to; it gets its final name when the stage
        succeeds."""
        part = self.folder / f"{name}.part"
        if part.is_dir():
            shutil.rmtree(part)
        part.unlink(missing_ok=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        self.outputs[name] = part
        return part

    def stamp(self):
        """Return the conditions of resume state besides the settings in the key: the code and the inputs' bytes."""
        return {"code": self.code, "inputs": {role: a.digest for role, a in sorted(self.inputs.items())}}

    def open_resume(self):
        """Keep resume state that the same code made from the same inputs; discard any other. Returns whether it was
        kept."""
        path, stamp = self.resume / STAMP, self.stamp()
        same = read_saved(path) == stamp
        if not same:
            shutil.rmtree(self.resume, ignore_errors=True)
            write_json(path, stamp)
        return same

    def require_room(self, num_bytes):
        """Raise Refusal if the disk has no room for `num_bytes` in the resume folder; bytes already in it count."""
        files = [path.stat() for path in self.resume.rglob("*") if path.is_file()]
        present = sum(min(file.st_size, file.st_blocks * 512) for file in files)  # rows not yet written are holes
        require_free_space(self.resume, num_bytes - present)
