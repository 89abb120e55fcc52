"""The identity of a collection or checkpoint by its content: file digests and package versions enter stages' keys.

A changed file or package is another collection with its own stages; results of the old one are kept.
"""

import hashlib
import os
import re
from contextlib import suppress
from glob import glob
from pathlib import Path

from teleport.collection.download import FOLDER, read_recorded
from teleport.collection.forms.apidocs import package_version
from teleport.encoder.packages import versions_of
from teleport.encoder.source import digest_of_weights, find_weights, require_digest
from teleport.plan.about_key import AboutKey
from teleport.running.files import read_saved, sha256_file, write_json
from teleport.settings.collection import CorpusSettings, Download, DownloadSettings, Expected, Fetched, SplitSettings
from teleport.settings.encoder import Identified, PretrainedSettings
from teleport.settings.section import Local, Section

REMEMBERED = Path("results/digests.json")
REMEMBER_FROM_BYTES = 8 * 2**20  # smaller files are hashed faster than they are looked up
UNREAD = re.compile(r"(^|/)\.|\.md$")  # in a checkpoint's folder: .git and model cards decide nothing


def identify_corpus(source):
    """The `CorpusSettings` of a source, with the digests and versions that pin its passages."""
    return CorpusSettings(**pinned(source.of_corpus()))


def identify_split(source, name):
    """The `SplitSettings` of a split of a source, with the digests and versions that pin its content."""
    return SplitSettings(split=name, **pinned(source.of_split(name), name))


def pinned(source, split=None):
    """Return the fields of `CorpusSettings` (dict) that pin the content of a part of a source."""
    versions = source.versions() if hasattr(source, "versions") else {}
    digests = source_digests(source, split)  # none for ids of ir_datasets, which verifies their content itself
    if isinstance(source, Fetched):  # download stages make its files, wherever they come from
        unplaced = {"files": dict.fromkeys(source.files, Download()), "local": None, "licences": {}}
        source = source.model_copy(update=unplaced)
    return {"source": source, "versions": versions, "files": digests}


def identify_download(source, name):
    """Return (the `DownloadSettings` of one of a source's `files`; its origins: {mirrors, local, licences}, which enter
    no key). A local file without a published digest is identified by its content, unless that was downloaded before."""
    file = source.files[name]
    expected, local = Expected.taken_from(file), Path(source.local or "", name)
    if source.local and local.is_file() and not (file.sha256 or file.md5):
        digest, downloaded = identify_file(local, "collection.local"), read_recorded().get(str(FOLDER / name), {})
        if digest != downloaded.get("sha256"):
            expected = expected.model_copy(update={"sha256": digest})
    origins = {"mirrors": {name: file.mirrors}, "local": source.local, "licences": source.licences}
    return DownloadSettings(files={name: expected}), origins


def fetched_elsewhere(source):
    """A sentence (list of str) for each file without a digest that was first fetched from none of its mirrors: another
    collection may have a file of this name, and would lend it."""
    if not isinstance(source, Fetched) or source.local:
        return []
    recorded, sentences = read_recorded(), []
    for name, file in source.files.items():
        before = recorded.get(str(FOLDER / name), {}).get("mirrors")
        if before and file.mirrors and not (file.sha256 or file.md5) and set(before).isdisjoint(file.mirrors):
            sentences.append(
                f"{FOLDER / name} was fetched from {before[0]}, and collection.files names {file.mirrors[0]}. If it is "
                "another file, rename one of them, or give its sha256."
            )
    return sentences


def source_digests(source, split=None):
    """{path: SHA-256} of the local files of a source's passages, and of a split if one is named. A split refers to
    passages by row, so its key has their files anyway."""
    if not source.patterns:
        fetched = source.files if isinstance(source, Fetched) else ()
        named = named_files(source, "collection")
        return {path: identify_file(path, key) for key, path in named.items() if path not in fetched}
    files, (corpus, *others) = {}, source.patterns
    others = [pattern.replace("*", split) for pattern in others] if split else []
    apart = "queries" if getattr(source, "queries", None) else "path"  # the folder of all but the corpus
    for key, patterns in (("path", [corpus]), (apart, others)):
        folder = Path(getattr(source, key))
        if not folder.is_dir():
            missing = f"there is no folder {folder}. Give the path of an existing folder."
            raise AboutKey(f"collection.{key}: {missing}", f"collection.{key}")
        names = [pattern + ending for pattern in patterns for ending in ("", ".gz")]
        there = [folder / name for name in names if os.path.lexists(folder / name)]
        files |= dict.fromkeys(there, f"collection.{key}")
        if not files:  # the corpus comes first
            missing = f"{source.path} has no {corpus}, plain or .gz. Name the corpus's folder."
            raise AboutKey(f"collection.path: {missing}", "collection.path")
    for path, key in files.items():
        if path.with_name(f"{path.name}.gz") in files:
            both = f"{path} and {path.name}.gz both exist"
            raise AboutKey(f"{key}: {both}. Remove the one that should not be read.", key)
    return {str(path): identify_file(path, key) for path, key in files.items()}


def named_files(value, key):
    """{key of the configuration: path} of every `LocalPath` in the settings `value`, and in sections in it."""
    if isinstance(value, Local):
        return {key: value}
    entries = value.items() if isinstance(value, dict) else value if isinstance(value, Section) else ()
    return {place: path for name, each in entries for place, path in named_files(each, f"{key}.{name}").items()}


def identify_checkpoint(checkpoint, key):
    """A `CheckpointSource` as `Identified`: with the version of its packages, or digests of the files in its folder.
    key: of the configuration, for a refusal"""
    if checkpoint.package:
        return Identified.taken_from(checkpoint, version=package_version(checkpoint.package))
    if checkpoint.packages:
        versions = versions_of(checkpoint.packages, key).values()
        return Identified.taken_from(checkpoint, version=", ".join(dict.fromkeys(versions)))
    if not checkpoint.folder:
        return Identified.taken_from(checkpoint)
    folder = Path(checkpoint.folder)
    if not folder.is_dir():
        key = f"{key}.folder"
        raise AboutKey(f"{key}: there is no folder {folder}. Give the path of a checkpoint.", key)
    weights = find_weights(folder, key)  # before anything below a wrong folder, such as /, is read
    names = [name for name in sorted(glob("**", root_dir=folder, recursive=True)) if not UNREAD.search(name)]
    paths = {name: folder / name for name in names}  # below linked folders, too
    read = {name: path for name, path in paths.items() if path.exists() and not path.is_dir()}
    files = {name: identify_file(path, f"{key}.folder") for name, path in read.items()}
    digest = digest_of_weights(weights, [files[each.name] for each in weights])
    require_digest(weights, digest, checkpoint.sha256, key)
    return Identified.taken_from(checkpoint, sha256=digest, files=files)


def pretrained_settings(encoder, seed, place="encoder"):
    """The settings of a pretrained stage. seed: of the projection, if the encoder has one; place: of the encoder in the
    configuration, for a refusal"""
    others = {"seed": seed if encoder.projection else None}
    for key in ("checkpoint", "query_checkpoint"):
        given = getattr(encoder, key)
        others[key] = given and identify_checkpoint(given, f"{place}.{key}")
    return PretrainedSettings.taken_from(encoder, **others)


def identify_file(file, key):
    """The digest of an external file. key: of the configuration, for a refusal"""
    if Path(file).exists() and not Path(file).is_file():  # a pipe may never end
        raise AboutKey(f"{key}: {file} is a folder, pipe, device or socket. Give the path of a regular file.", key)
    try:
        return file_digest(Path(file))
    except FileNotFoundError:
        raise AboutKey(f"{key}: there is no file {file}. Give the path of an existing file.", key) from None
    except OSError as error:
        raise AboutKey(f"{key}: {file} cannot be read ({error.strerror}). Correct that, or the path.", key) from None


def file_digest(path):
    """SHA-256 of a file. A large file's digest is remembered while its size and times stay; no tool can set its
    ctime."""
    status = path.stat()
    if status.st_size < REMEMBER_FROM_BYTES:
        return sha256_file(path)
    digests = read_saved(REMEMBERED)
    times = f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
    stamp = hashlib.sha256(f"{path.resolve()} {status.st_size} {times}".encode()).hexdigest()
    if stamp not in digests:
        digests[stamp] = sha256_file(path)
        with suppress(OSError):  # such as results of somebody else, which cannot be written to
            write_json(REMEMBERED, digests)
    return digests[stamp]
