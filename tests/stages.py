"""Stages run in a temporary results folder."""

from teleport.running.artefact import MANIFEST, SPEC
from teleport.running.files import write_json
from teleport.running.job import Job
from teleport.settings.forms import FORMS
from teleport.settings.section import Section


def spec_file(root, spec):
    """Write what a stage is told as the workflow does, below the folder `root` of results/; returns the path (str)."""
    path = root / "results/stages" / spec["kind"] / spec["key"] / SPEC
    write_json(path, spec)
    return str(path)


class Stages:
    """Makes jobs of any stage below a temporary folder, and finishes them as the runner would."""

    def __init__(self, root):
        self.root, self.count = root, 0

    def make(self, kind, settings=None, inputs=None, threads=1, save_every=60.0, loads=None, origins=None):
        """A job whose inputs are the finished jobs in `inputs` ({role: Job}).

        settings: JSON or a `Section`; `job.settings` is what the stage's module makes of it. loads: {name: module};
        of a collection, by default, that of its form
        """
        if kind == "collection" and isinstance(settings, dict) and "source" in settings and loads is None:
            loads = {"form": FORMS.get(settings["source"]["source"])}
        self.count += 1
        spec = {
            "kind": kind,
            "key": f"{self.count:012x}",
            "code": "test",
            "settings": settings.model_dump(mode="json") if isinstance(settings, Section) else settings or {},
            "inputs": {role: f"{job.kind}/{job.key}" for role, job in (inputs or {}).items()},
            "loads": loads or {},
            "origins": origins or {},
        }
        job = Job(spec, threads=threads, save_every=save_every, root=self.root)
        job.open_resume()
        return job

    def finish(self, job, facts=None):
        """Publish what the job wrote, with a manifest; returns the job."""
        inputs = {role: f"{a.folder.parent.name}/{a.folder.name}" for role, a in job.inputs.items()}
        manifest = {"kind": job.kind, "key": job.key, "settings": job.raw_settings, "inputs": inputs}
        manifest["facts"] = facts or {}
        job.folder.mkdir(parents=True, exist_ok=True)
        write_json(job.folder / MANIFEST, manifest | {"files": job.publish()})
        return job

    def run(self, function, kind, settings=None, inputs=None, threads=1, loads=None, origins=None):
        """Run a stage function and finish it; returns the job. Its facts are in the manifest."""
        job = self.make(kind, settings, inputs, threads, loads=loads, origins=origins)
        return self.finish(job, function(job))
