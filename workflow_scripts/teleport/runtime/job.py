"""What every stage shares: checked inputs, atomic outputs, resume state, manifest, progress.

A stage is one function `run(job) -> facts` of its settings, its input artefacts and its code. It writes files
through `job.output`, and `run_stage` publishes them: hash, rename, and last of all the manifest, which is the only
file that other stages and Snakemake wait for. A stage that dies leaves no manifest and no half-written artefact
under its final name.
"""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

from teleport.runtime.artefact import STAGES, Artefact, file_entry
from teleport.runtime.files import files_below, write_json
from teleport.runtime.log import Progress

RESUME = Path("results/resume")
SHARDS = Path("results/shards")
LOCKS = Path("results/locks")


class Job:
    """One run of one stage: settings, checked inputs, output paths, resume folder.

    `settings` are attributes (`job.settings.depth`). `save_every` is how many seconds of work a kill may cost.
    `places` (dict) say where things are fetched from; they decide no result and are not in the manifest.
    `shards`: how many shards the stage joins, 1 for none. `shard`: "2-of-4" when the job makes only that shard, whose
    folder is then `resume`. `compile`: whether torch.compile may prepare the encoder.
    """

    def __init__(self, spec, threads=1, save_every=60.0, root=Path(".")):
        self.kind, self.key, self.code = spec["kind"], spec["key"], spec["code"]
        self.raw_settings = spec["settings"]
        self.places = spec.get("places", {})
        self.settings = namespace(spec["settings"])
        self.threads, self.save_every = threads, save_every
        self.folder = root / STAGES / self.kind / self.key
        self.shard, self.shards = spec.get("shard"), spec.get("shards", 1)
        self.compile = spec.get("compile", False)
        self.shards_folder = root / SHARDS / self.kind / self.key
        self.resume = self.shards_folder / self.shard if self.shard else root / RESUME / self.kind / self.key
        self.lock = root / LOCKS / self.kind / (f"{self.key}.{self.shard}" if self.shard else self.key)
        self.inputs = {role: Artefact(root / STAGES / name) for role, name in spec["inputs"].items()}
        self.outputs = {}
        self.progress = Progress(self.resume / "progress.json")

    def input(self, role, name):
        """The checked path of file or folder `name` made by the upstream stage in `role`."""
        return self.inputs[role].path(name)

    def facts(self, role):
        """What the upstream stage in `role` reported (dict)."""
        return self.inputs[role].facts

    def output(self, name):
        """Where to write the artefact `name` (file or folder); it gets its final name when the stage succeeds."""
        part = self.folder / f"{name}.part"
        if part.is_dir():
            shutil.rmtree(part)
        part.unlink(missing_ok=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        self.outputs[name] = part
        return part

    def stamp(self):
        """What resume state depends on besides the settings in the key: the code and the bytes of the inputs."""
        return {"code": self.code, "inputs": {role: a.digest for role, a in sorted(self.inputs.items())}}

    def open_resume(self):
        """Keep resume state made by the same code from the same inputs; throw away any other."""
        path = self.resume / "stamp.json"
        try:
            same = json.loads(path.read_text()) == self.stamp()
        except (FileNotFoundError, json.JSONDecodeError):
            same = False
        if not same:
            shutil.rmtree(self.resume, ignore_errors=True)
            write_json(path, self.stamp())
        return same

    def publish(self):
        """Give every output its final name; returns the manifest's `files` ({name: {bytes, sha256}})."""
        files = {}
        for name, part in sorted(self.outputs.items()):
            if not part.exists():
                raise RuntimeError(f"stage {self.kind} announced the output {name!r} but did not write it")
            final = self.folder / name
            if final.is_dir():
                shutil.rmtree(final)
            os.replace(part, final)
            for file in files_below(final):
                files[str(file.relative_to(self.folder))] = file_entry(file)
        return files


def namespace(value):
    """JSON objects as attributes, lists and scalars as they are."""
    return json.loads(json.dumps(value), object_hook=lambda pairs: SimpleNamespace(**pairs))
