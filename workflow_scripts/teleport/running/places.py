"""Places to take finished stages from: a folder with `stages` in it, such as another results folder, a tar archive of
one, or a repository of the hub that has it.

A stage is read once: it is copied and compared with its own manifest at the same time, under a temporary name beside
its folder. Only files that the manifest lists are copied, and no other name in an archive becomes a path here. The copy
is then like a result of an earlier run: it is taken only if the current code would make it from the current inputs. So
a place decides no result and no key.
"""

import hashlib
import json
import os
import re
import tarfile
from contextlib import nullcontext, suppress
from pathlib import Path, PurePosixPath

from teleport.refusal import Refusal
from teleport.running.artefact import DELETED, MANIFEST, SPEC, STAGE, deletion, is_deletion, parse_manifest
from teleport.running.files import kind_of, part_of, remove, require_free_space, sync, write_json
from teleport.running.hub import HUB_NAME, hub_errors
from teleport.running.job import Job
from teleport.running.locks import sole_process
from teleport.running.log import log
from teleport.running.run import FINISHED, take

FOLDER = "stages"  # in a place; laid out like results/stages
REMEDY = "Run `teleport share` again, or leave it out."
BLOCK = 2**20  # bytes in memory at a time
HUB = re.compile(f"{HUB_NAME}@([0-9a-f]{{40}})")
OURS = (MANIFEST, FINISHED, SPEC, DELETED)  # names in a stage's folder that are not results


def require_place(path, key=""):
    """Raise Refusal for a path that is not a place. key: "artefacts: " if a configuration names it. A repository is not
    looked up: a plan needs no network."""
    if path.startswith("hub:"):
        if not HUB.fullmatch(path):
            given = "hub:OWNER/NAME@COMMIT, with the 40 digits that `teleport share` has printed"
            raise Refusal(f"{key}{path}: give {given}.")
    elif not (os.path.isdir(f"{path}/{FOLDER}") or os.path.isfile(path)):
        problem = f"has no folder `{FOLDER}`" if os.path.isdir(path) else "does not exist, or is not a regular file"
        raise Refusal(f"{key}{path} {problem}. Give an archive or folder of `teleport share`, or a folder `results`.")


def place_at(path):
    """The `Folder`, `Archive` or `Repository` at a path."""
    require_place(path)
    if path.startswith("hub:"):
        return Repository(path)
    return Archive(Path(path)) if os.path.isfile(path) else Folder(Path(path))


class Folder:
    """A folder whose subfolder `stages` is laid out like results/stages."""

    def __init__(self, path):
        self.path = path

    def names(self):
        """The names ("kind/key") of its stages."""
        names = ("/".join(path.parts[-3:-1]) for path in sorted(self.path.glob(f"{FOLDER}/*/*/{MANIFEST}")))
        return [name for name in names if STAGE.fullmatch(name)]

    def open(self, file):
        """A file such as "train/0123456789ab/manifest.json", opened to read bytes; None if there is none."""
        path = self.path / FOLDER / file
        try:
            mode = path.lstat().st_mode
            if path.is_symlink() or not path.is_file():
                raise Refusal(f"{path} is {kind_of(mode)}, not a regular file. {REMEDY}")
            return open(path, "rb")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def has(self, file):
        """Whether there is a file, as `open` names it."""
        return os.path.lexists(self.path / FOLDER / file)


class Archive:
    """A tar archive, not compressed. All members are checked first; nothing is unpacked.

    Raises Refusal for a member whose name is not stages/KIND/KEY/..., for links and devices, and for an archive that is
    cut or has a torn header, at which tarfile would stop silently.
    """

    def __init__(self, path):
        self.path, self.members, name = path, {}, "its beginning"
        try:
            self.tar = tarfile.open(path, "r:")  # noqa: SIM115
            for member in self.tar:
                name = member.name
                self.add(member)
            self.tar.fileobj.seek(self.tar.offset)
            if self.tar.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                raise tarfile.ReadError("no header and no end")
        except tarfile.TarError as error:
            raise Refusal(f"{path} is not a tar archive, or is torn after {name} ({error}). {REMEDY}") from None

    def add(self, member):
        """Check and note one member."""
        parts = PurePosixPath(member.name).parts
        where = f"{self.path}: its member {member.name!r}"
        if not (member.isdir() or member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)):
            raise Refusal(f"{where} is a link, a device or another special file. {REMEDY}")
        if parts[:1] != (FOLDER,) or ".." in parts or not (member.isdir() or STAGE.fullmatch("/".join(parts[1:3]))):
            raise Refusal(f"{where} is not below {FOLDER}/KIND/KEY. {REMEDY}")
        if member.isdir():
            return
        if (file := "/".join(parts[1:])) in self.members:
            raise Refusal(f"{where} occurs twice. {REMEDY}")
        self.members[file] = member

    def names(self):
        """Return the same as `Folder.names`."""
        names = (file.removesuffix(f"/{MANIFEST}") for file in self.members if file.endswith(f"/{MANIFEST}"))
        return sorted(name for name in names if STAGE.fullmatch(name))

    def has(self, file):
        """Whether there is a file, as `Folder.open` names it."""
        return file in self.members

    def open(self, file):
        """Return the same as `Folder.open`."""
        member = self.members.get(file)
        return member and self.tar.extractfile(member)


class Repository:
    """A repository of the hub at one commit, laid out like the folder of a `Folder`. Nothing of it is kept in the hub's
    cache: a file is downloaded when it is opened, and its name is removed at once."""

    def __init__(self, path):
        self.path = path
        self.repository, self.commit = HUB.fullmatch(path).groups()
        self.files = set(self.ask("list_repo_files", revision=self.commit))

    def ask(self, method, **options):
        """Return the result of a method of the hub's client."""
        from huggingface_hub import HfApi

        with hub_errors(f"cannot get {self.path}", "Check its name, its commit and the network."):
            return getattr(HfApi(), method)(self.repository, **options)

    def names(self):
        """Return the same as `Folder.names`."""
        parts = (file.split("/") for file in sorted(self.files))
        names = ["/".join(part[1:3]) for part in parts if part[:1] == [FOLDER] and part[3:] == [MANIFEST]]
        return [name for name in names if STAGE.fullmatch(name)]

    def has(self, file):
        """Whether there is a file, as `Folder.open` names it."""
        return f"{FOLDER}/{file}" in self.files

    def open(self, file):
        """Return the same as `Folder.open`."""
        if not self.has(file):
            return None
        with part_of(Path("results/fetched")) as folder:
            options = {"filename": f"{FOLDER}/{file}", "revision": self.commit, "local_dir": folder}
            return open(self.ask("hf_hub_download", **options), "rb")


def signed_at(place, name, file=MANIFEST):
    """The manifest (dict) of a stage ("kind/key") of a place, or its stage.json, which also names the stage; None if it
    is missing. Raises Refusal if it is torn, edited or another stage's."""
    where = f"{place.path}: {FOLDER}/{name}/{file}"
    if (opened := place.open(f"{name}/{file}")) is None:
        return None
    with opened:
        content = parse_manifest(opened.read(), where, REMEDY)
    if (described := f"{content.get('kind')}/{content.get('key')}") != name:
        raise Refusal(f"{where} describes {described}, another stage. {REMEDY}")
    if file == MANIFEST and not {"sha256", "stamp", "files", "inputs"} <= content.keys():
        raise Refusal(f"{where} is not the manifest of a finished stage. {REMEDY}")
    return content


def vectors_left_out(place, name, manifest):
    """Whether a place has a stage without its files, as after `Artefact.delete_files`."""
    if (opened := place.open(f"{name}/{DELETED}")) is None:
        return False
    with opened, suppress(ValueError, AttributeError):
        return is_deletion(json.loads(opened.read()), manifest)
    return False


def receive(place, job, manifest):
    """Copy a stage's result from a place into its folder, so that `take` may publish it. Raises Refusal for the first
    file that does not match the manifest; nothing of the copy is left then."""
    files, name = manifest["files"], f"{job.kind}/{job.key}"
    for file in files:
        path = PurePosixPath(file)
        if path.is_absolute() or ".." in path.parts or not path.parts or path.parts[0] in OURS:
            raise Refusal(f"{place.path}: the manifest of {name} lists {file!r}, outside its stage. {REMEDY}")
    deleted = vectors_left_out(place, name, manifest)
    sent = {file: entry for file, entry in files.items() if place.has(f"{name}/{file}")}
    if not deleted and (missing := files.keys() - sent.keys()):
        where = f"{place.path}: {FOLDER}/{name}/{min(missing)}"
        raise Refusal(f"{where} is missing, but its manifest lists it. {REMEDY}")
    require_free_space(job.folder, sum(entry["bytes"] for entry in sent.values()))
    with part_of(job.folder) as part:
        for file, expected in sent.items():
            copy_checked(place.open(f"{name}/{file}"), part / file, expected, f"{place.path}: {FOLDER}/{name}/{file}")
        part.mkdir(exist_ok=True)  # for a stage without files
        if deleted:
            write_json(part / DELETED, deletion(manifest))
        write_json(part / FINISHED, manifest)
        job.folder.mkdir(exist_ok=True)
        for old in (FINISHED, MANIFEST, DELETED):  # of an earlier result, whose files are about to be replaced
            (job.folder / old).unlink(missing_ok=True)
        for path in sorted(part.iterdir(), key=lambda path: path.name == FINISHED):  # FINISHED comes last
            remove(job.folder / path.name)
            os.replace(path, job.folder / path.name)


def restore(place, job, files):
    """Copy the files of a finished stage that are not here, such as vectors that were left out before, and that a place
    has; returns whether there were any. files: {name: manifest entry} of the stage here"""
    name = f"{job.kind}/{job.key}"
    missing = [file for file in files if not (job.folder / file).exists() and place.has(f"{name}/{file}")]
    require_free_space(job.folder, sum(files[file]["bytes"] for file in missing))
    with part_of(job.folder) as part:
        for file in missing:
            where = f"{place.path}: {FOLDER}/{name}/{file}"
            copy_checked(place.open(f"{name}/{file}"), part / file, files[file], where)
        for file in missing:
            (job.folder / file).parent.mkdir(parents=True, exist_ok=True)
            os.replace(part / file, job.folder / file)
    return bool(missing)


def copy_checked(source, target, expected, where):
    """Copy an open file, and compare its size and SHA-256 with its manifest entry at the same time."""
    digest, left = hashlib.sha256(), expected["bytes"]
    target.parent.mkdir(parents=True, exist_ok=True)
    with source, open(target, "xb") as copy:
        while left >= 0 and (block := source.read(BLOCK)):
            left -= len(block)
            digest.update(block)
            copy.write(block)
    if left or digest.hexdigest() != expected["sha256"]:
        raise Refusal(f"{where} does not match the size and SHA-256 in its manifest: torn or edited. {REMEDY}")
    sync(target)


def arrives(job, paths):
    """Whether one of some places (list of paths) has the result that this code makes of a stage from these inputs. The
    stage is then finished, and a shard of it has nothing to make."""
    if not paths:
        return False
    name, whole = f"{job.kind}/{job.key}", Job(job.spec | {"shard": None}, root=job.root)
    with sole_process(whole) if job.shard else nullcontext():
        if job.shard and take(job):  # the job of another shard was first
            return True
        for path in paths:
            place = place_at(path)
            if manifest := signed_at(place, name):
                if manifest["stamp"] == job.stamp():
                    receive(place, job, manifest)
                    log.info("%s was copied from %s", name, path)
                    return take(job)
                log.info("%s has %s, but from other code or other inputs: it is computed here", path, name)
    return False
