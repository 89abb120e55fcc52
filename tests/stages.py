"""Stages run in a temporary results folder."""

import json

from teleport.collection import corpus, split
from teleport.running.artefact import MANIFEST, SPEC, Artefact
from teleport.running.files import write_json
from teleport.running.job import Job
from teleport.running.run import publish_outputs
from teleport.settings.collection import CorpusSettings, SplitSettings
from teleport.settings.registry import FORMS, form
from teleport.settings.section import Section


def spec_file(root, spec):
    """Write what a stage is told as the workflow does, below the folder `root` of results/; returns the path (str)."""
    path = root / "results/stages" / spec["kind"] / spec["key"] / SPEC
    write_json(path, spec)
    return str(path)


def facts_of(job):
    """The facts of a finished job."""
    return Artefact(job.folder).facts


def warn(job, text):
    """Add a warning to the manifest of a finished job, as if its stage had logged it."""
    path = job.folder / MANIFEST
    manifest = json.loads(path.read_text())
    manifest.setdefault("provenance", {})["warnings"] = [text]
    write_json(path, manifest)


class Parts(dict):
    """Finished stages whose files together are what a test is about: {role: Job}."""

    @property
    def files(self):
        """{name: path} of all their arrays and tables."""
        paths = [path for job in self.values() for path in job.folder.iterdir()]
        paths = [path for path in paths if path.suffix in (".parquet", ".npy") and path.stem != "digests"]
        return {path.name: path for path in sorted(paths, key=lambda path: path.name)}


class Collection(Parts):
    """A finished corpus and its splits. A stage that has it as the role `collection` reads all of them."""

    @property
    def facts(self):
        """Those of the corpus, and the counts of the splits as `splits` ({name: {what: number}})."""
        counts = ("queries", "answers", "judgments", "positives", "dropped")
        splits = {name: self.split(name).facts for name in self.names}
        splits = {name: {what: facts[what] for what in counts if what in facts} for name, facts in splits.items()}
        return Artefact(self["corpus"].folder).facts | {"splits": splits}

    @property
    def names(self):
        """Of the splits."""
        return [role.partition(".")[2] for role in self if role != "corpus"]

    def split(self, name):
        """The Artefact of a split."""
        return Artefact(self[f"split.{name}"].folder)


def roles_of(inputs):
    """`inputs` ({role: Job}) with what the roles `collection` and `tokens` stand for in their place: `Parts`, or a job
    that has written the files of several stages, for a test that needs them alone."""
    roles = {}
    for role, job in inputs.items():
        if role in ("collection", "tokens") and isinstance(job, Parts):
            roles |= job
        elif role == "collection":
            names = [path.stem.partition(".")[2] for path in job.folder.glob("queries.*.parquet")]
            roles |= {"corpus": job} | {f"split.{name}": job for name in names}
        elif role == "tokens":
            names = [path.name.removesuffix(".ids.npy") for path in job.folder.glob("*.ids.npy")]
            roles |= {f"tokens.{name}": job for name in names}
        else:
            roles[role] = job
    return roles


def only_own_files(role, artefact):
    """Of a job that stands for a corpus and its splits, each role sees only its own stage's files."""
    files, of_corpus = artefact.manifest["files"], ("corpus.parquet", "same_text.npy", "digests.npy")
    own = {name for name in files if (name in of_corpus if role == "corpus" else f".{role[6:]}." in name)}
    artefact.manifest["files"] = {name: files[name] for name in own}


class Stages:
    """Makes jobs of any stage below a temporary folder, and finishes them as the runner would."""

    def __init__(self, root):
        self.root, self.count = root, 0

    def make(self, kind, settings=None, inputs=None, threads=1, save_every=60.0, loads=None, origins=None):
        """A job whose inputs are the finished jobs in `inputs` ({role: Job}).

        settings: JSON or a `Section`; `job.settings` is what the stage's module makes of it. loads: {name: module}
        """
        self.count += 1
        spec = {
            "kind": kind,
            "key": f"{self.count:012x}",
            "code": "test",
            "settings": settings.model_dump(mode="json") if isinstance(settings, Section) else settings or {},
            "inputs": {role: f"{job.kind}/{job.key}" for role, job in roles_of(inputs or {}).items()},
            "loads": loads or {},
            "origins": origins or {},
        }
        job = Job(spec, threads=threads, save_every=save_every, root=self.root)
        job.open_resume()
        for role, artefact in job.inputs.items():
            if artefact.manifest["kind"] == "collection" and role.startswith(("corpus", "split.")):
                only_own_files(role, artefact)
        return job

    def finish(self, job, facts=None):
        """Publish what the job wrote, with a manifest; returns the job."""
        inputs = {role: f"{a.folder.parent.name}/{a.folder.name}" for role, a in job.inputs.items()}
        manifest = {"kind": job.kind, "key": job.key, "settings": job.raw_settings, "inputs": inputs}
        manifest["facts"] = facts or {}
        job.folder.mkdir(parents=True, exist_ok=True)
        write_json(job.folder / MANIFEST, manifest | {"files": publish_outputs(job)})
        return job

    def run(self, function, kind, settings=None, inputs=None, threads=1, loads=None, origins=None):
        """Run a stage function and finish it; returns the job. Its facts are in the manifest."""
        job = self.make(kind, settings, inputs, threads, loads=loads, origins=origins)
        return self.finish(job, function(job))

    def collection(self, source, inputs=None, **pinned):
        """The finished stages of the corpus and of all splits of a source (JSON), a `Collection`. pinned: versions and
        files of their settings"""
        source = form(source["source"]).Settings.model_validate(source)
        loads, pinned = {"form": FORMS[source.source]}, {"versions": {}, "files": {}} | pinned
        settings = CorpusSettings(source=source.of_corpus(), **pinned)
        made = Collection(corpus=self.run(corpus.run, "corpus", settings, inputs, loads=loads))
        for name in source.split_names():
            settings = SplitSettings(source=source.of_split(name), split=name, **pinned)
            read = {"corpus": made["corpus"]} | (inputs or {})
            made[f"split.{name}"] = self.run(split.run, "split", settings, read, loads=loads)
        return made
