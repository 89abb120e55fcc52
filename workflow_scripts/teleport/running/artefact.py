"""A finished stage for its readers: its manifest, and its files, which are checked against it."""

import hashlib
import json
import os
import re
from functools import cached_property
from pathlib import Path

from teleport.refusal import Refusal
from teleport.running.files import read_saved, sha256_file, sync, write_json

STAGES = Path("results/stages")
STAGE = re.compile("[a-z][a-z0-9_]*/[0-9a-f]{12}")  # the name of a stage, its folder below STAGES
MANIFEST, DELETED = "manifest.json", "deleted.json"
SPEC = "stage.json"  # beside the manifest: the planned stage, which its job reads
HISTORY, PROGRESS = "history.log", "progress.json"  # in a resume folder: a line per attempt; the last report
WARNINGS = "warnings.json"  # in a resume folder: of all attempts
# Only `teleport verify` hashes larger files: hashing an index of 27 GB at every use would take longer than the search.
ALWAYS_HASHED_BYTES = 64 * 2**20
CARD = "README.md"  # of a checkpoint: text for people
# Facts of an artefact that other stages read, besides its files.
READ_FACTS = ("positive_grade", "num_passages", "lower_case", "include_prompt", "end_step", "selected_step", "steps")


def other_than_stages(names):
    """Return, as text, the first name in a list of stages that is not a stage's; None if all are."""
    return next((f"names the stage {name[:40]!r}" for name in names if not STAGE.fullmatch(name)), None)


def read_manifest(folder, missing, remedy):
    """The manifest in a folder (dict); `missing`: the sentence if there is none. Manifests of shards, and old ones,
    have no digest of their content."""
    path = folder / MANIFEST
    if not path.is_file():  # or a pipe, at which a reader would wait
        raise Refusal(f"{path} is missing: {missing}")
    return parse_manifest(path.read_bytes(), path, remedy)


def parse_manifest(content, path, remedy):
    """The manifest (dict) in bytes read from a path."""
    try:
        manifest = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: no JSON, or not in UTF-8
        raise Refusal(f"{path} is not valid JSON ({error}): torn or edited. {remedy}") from None
    if not isinstance(manifest, dict) or manifest.get("sha256") not in (None, content_digest(manifest)):
        raise Refusal(f"{path} does not match its own SHA-256: torn or edited. {remedy}")
    return manifest


def content_digest(manifest):
    """The SHA-256 (hex) of all of a manifest but this digest itself."""
    content = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def signed(manifest):
    """A manifest (dict) with its `content_digest`, which reveals an edit of it as a file's digest does."""
    as_read = json.loads(json.dumps(manifest))
    return as_read | {"sha256": content_digest(as_read)}


def deletion(manifest):
    """The content (dict) of the file DELETED, which lists the deleted files of a manifest (dict)."""
    return {"files": sorted(manifest["files"]), "manifest": content_digest(manifest)}


def is_deletion(note, manifest):
    """Whether the content of DELETED (dict) is about the files of this manifest, and not of an earlier one."""
    return note.get("manifest") == content_digest(manifest)


def remake(kind, key):
    """A sentence on how to rerun a finished stage. Snakemake does not notice if files that only stages read are
    missing."""
    manifest = STAGES / kind / key / MANIFEST
    return f"Run the workflow again with --forcerun {manifest}: this stage and all that follow then rerun."


def is_finished(name, root=Path(".")):
    """Whether the stage called `name` ("kind/key") is finished; root: the folder that holds results/."""
    try:
        os.stat(f"{root}/{STAGES}/{name}/{MANIFEST}")  # called for each of thousands of stages, and a Path is slow
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


class Artefact:
    """A finished stage, for its readers; `name`: "kind/key". Raises Refusal if the manifest is missing, torn or another
    stage's."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.name = f"{self.folder.parent.name}/{self.folder.name}"
        self.remedy = remake(self.folder.parent.name, self.folder.name)
        self.manifest = read_manifest(self.folder, f"not finished, or deleted. {self.remedy}", self.remedy)
        described = f"{self.manifest.get('kind')}/{self.manifest.get('key')}"
        if described != self.name:
            raise Refusal(f"{self.folder / MANIFEST} describes {described}, another stage. {self.remedy}")

    @property
    def root(self):
        """The folder (Path) that holds results/."""
        return self.folder.parents[3]

    def input(self, role):
        """The stage (`Artefact`) that this one read in a role, such as "corpus"; None without one."""
        name = self.manifest["inputs"].get(role)
        return name and Artefact(self.folder.parents[1] / name)

    @property
    def facts(self):
        """The counts and measurements that the stage returned (dict)."""
        return self.manifest["facts"]

    def path(self, name, full=False):
        """The path of file or folder `name` of this artefact, after comparing sizes with the manifest, and SHA-256 for
        files up to 64 MiB or, with `full`, for all."""
        files = self.manifest["files"]
        listed = [file for file in files if file == name or file.startswith(name + "/")]
        if not listed:
            raise Refusal(f"{self.folder} has no artefact {name!r}; its manifest lists {sorted(files)}.")
        for file in listed:
            if self.is_deleted(file):
                raise Refusal(f"{self.folder / file} was deleted after it was read (keep_vectors). {self.remedy}")
            check_file(self.folder / file, files[file], full, self.remedy)
        return self.folder / name

    @cached_property
    def deleted(self):
        """Whether `delete_files` has deleted the files of this manifest, and not of an earlier one."""
        return is_deletion(read_saved(self.folder / DELETED), self.manifest)

    def is_deleted(self, file):
        """Whether a file of the manifest is missing because it was deleted."""
        return not (self.folder / file).exists() and self.deleted  # the note is written before files are removed

    @property
    def bytes(self):
        """The size of its files by the manifest, without deleted ones."""
        return sum(file["bytes"] for name, file in self.manifest["files"].items() if not self.is_deleted(name))

    def delete_files(self):
        """Delete all files of the artefact but the manifest, after recording their names (keep_vectors)."""
        note = deletion(self.manifest)
        write_json(self.folder / DELETED, note)
        for file in note["files"]:
            (self.folder / file).unlink(missing_ok=True)

    def verify(self):
        """Check every file that was not deleted by its full SHA-256; the first bad one is refused."""
        for name in self.manifest["files"]:
            if not self.is_deleted(name):
                self.path(name, full=True)

    @property
    def digest(self):
        """One SHA-256 over the names and contents of all files that stages read, and over READ_FACTS: equal digests
        mean equal artefacts. The files of a `download` stay where they are, and its facts list them."""
        facts = self.manifest.get("facts", {})
        files = facts["files"] if self.manifest["kind"] == "download" else self.manifest["files"]
        lines = "".join(f"{n} {f['sha256']}\n" for n, f in sorted(files.items()) if not n.endswith(CARD))
        lines += "".join(f"{name} {facts[name]}\n" for name in READ_FACTS if name in facts)
        return hashlib.sha256(lines.encode()).hexdigest()


def file_entry(path):
    """Return a file's entry in a manifest: `{bytes, sha256}`. By then the file is on the disk, even if the power
    fails."""
    sync(path)
    return {"bytes": path.stat().st_size, "sha256": sha256_file(path)}


def check_file(path, expected, full, remedy):
    """Compare a file with its manifest entry `{bytes, sha256}`."""
    if not path.is_file():
        raise Refusal(f"{path} is missing, but its manifest lists it. {remedy}")
    size = path.stat().st_size
    if size != expected["bytes"]:
        raise Refusal(f"{path} has {size} bytes, but {expected['bytes']} in its manifest: torn or edited. {remedy}")
    if (full or size <= ALWAYS_HASHED_BYTES) and sha256_file(path) != expected["sha256"]:
        raise Refusal(f"{path} does not match the SHA-256 in its manifest: torn or edited. {remedy}")
