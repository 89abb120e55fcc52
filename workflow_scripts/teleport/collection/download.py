"""Stage `download`: the official files of a collection, below data/downloads or in a local folder, all verified.

The files stay where they are and are used there: this stage's artefact is its manifest alone.
"""

import codecs
import json
from contextlib import contextmanager, suppress
from pathlib import Path

from teleport.collection.fetch import OtherFile, fetch, forget, has_digest, part_of, set_aside, take_back, verified
from teleport.refusal import Refusal
from teleport.running.files import write_json
from teleport.running.locks import try_lock, wait_until
from teleport.running.log import log
from teleport.settings.collection import DownloadSettings as Settings  # noqa: F401

FOLDER = Path("data/downloads")
RECORDED = FOLDER / "digests.json"  # digests at first use of files whose publisher gives none
LICENCES = Path("data/licences")
PAGES = (b"<!doctype html", b"<html", b"<?xml")  # how web pages begin, in lower case
BEGINNINGS = {".gz": b"\x1f\x8b", ".tgz": b"\x1f\x8b", ".zip": b"PK", ".bz2": b"BZh", ".xz": b"\xfd7zXZ"}


def run(job):
    """Fetch what is missing, verify everything; returns {files: {name: {path, bytes, sha256}}}."""
    show_licences(job.origins.get("licences", {}))
    files = {}
    for name, expected in job.settings.model_dump()["files"].items():
        path, digests = obtain(name, expected, job.origins)
        if not has_digest(expected):
            trust(path, digests, job.origins["mirrors"][name])
        files[name] = {"path": str(path), "bytes": digests["bytes"], "sha256": digests["sha256"]}
        log.info("%s: %d bytes, SHA-256 %s", path, digests["bytes"], digests["sha256"])
    return {"files": files}


def obtain(name, expected, origins):
    """(path, {bytes, sha256, md5}) of a verified file. A wrong one in data/downloads is set aside."""
    local = origins.get("local")
    path = Path(local or FOLDER, name)
    if local and not path.is_file():
        remedy = "collection.local replaces every download, so put it there, or set collection.local to null."
        raise Refusal(f"{path}: no such file. {remedy}")
    if local:
        return path, verified(path, expected, str(path))
    if path.is_file():
        forget(part_of(path))  # the headers remain if a kill came right after the file was renamed
    with suppress(OtherFile, FileNotFoundError):
        return path, verified(path, expected, str(path))
    with locked(path, f"another workflow fetches {path}"):
        return path, obtain_alone(path, origins["mirrors"][name], expected)


def obtain_alone(path, mirrors, expected):
    """{bytes, sha256, md5} of a file of data/downloads that is missing or another one, while no other job writes it."""
    known = expected if has_digest(expected) else expected | {"sha256": sha256_of_first_use(path)}
    if digests := take_back(path, known):
        return digests
    if not path.is_file():
        return fetch(path, mirrors, expected)
    try:
        return verified(path, expected, str(path))  # another workflow may have fetched it meanwhile
    except OtherFile as error:
        raise set_aside(path, path, error) from None


@contextmanager
def locked(path, reason):
    """Within the block no other job writes the file `path`. Waits until none does and shows `reason`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "a") as file:
        with suppress(OSError):  # on a file system without locks nobody waits
            wait_until(lambda: try_lock(file), reason)
        yield


def trust(path, digests, mirrors):
    """Compare a file without a published digest with the digest of its first use, or record it; never remove it."""
    if other := what_it_is_instead(path):  # a mirror that has moved or wants a login may send it
        raise Refusal(
            f"{path} is {other}, not the file that its name says. Delete it, and the entry {str(path)!r} in "
            f"{RECORDED} where there is one; correct collection.files.{path.name}.mirrors or put the right file there."
        )
    if str(path) not in (recorded := read_recorded()):
        entry = {"bytes": digests["bytes"], "sha256": digests["sha256"], "mirrors": list(mirrors)}
        log.warning("%s: no digest is published; SHA-256 %s is trusted from now on", path, entry["sha256"])
        with locked(RECORDED, f"another job writes {RECORDED}"):
            recorded = {str(path): entry} | read_recorded()
            write_json(RECORDED, recorded)
    if (first := recorded[str(path)]["sha256"]) != digests["sha256"]:
        raise Refusal(
            f"{path} has SHA-256 {digests['sha256']}, but had {first} at its first use: another file. "
            f"Restore the old one, or, if this one is right, delete the entry {str(path)!r} in {RECORDED}."
        )


def what_it_is_instead(path):
    """Return the kind of a file (str) if its first bytes do not fit its name, else None."""
    with open(path, "rb") as file:
        start = file.read(1000)
    text = start.removeprefix(codecs.BOM_UTF8).lstrip().lower()
    if not start:
        return "empty"
    if text.startswith(PAGES):
        return "a web page"
    if not start.startswith(BEGINNINGS.get(path.suffix, b"")):
        return f"no {path.suffix} file"
    return "a JSON object" if text.startswith(b"{") and ".json" not in path.name else None


def read_recorded():
    """The digests of first uses, {path: {bytes, sha256, mirrors}}."""
    if not RECORDED.exists():
        return {}
    try:
        recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
        if all(isinstance(entry["sha256"], str) for entry in recorded.values()):
            return recorded
        problem = "a digest is not text"
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError, OSError) as error:
        problem = f"{type(error).__name__}: {error}"
    raise Refusal(
        f"{RECORDED} no longer has the digests of first uses ({problem}): torn or edited. Restore it from "
        "a copy, or delete it: then the files are trusted as they are now."
    )


def sha256_of_first_use(path):
    """The digest that was recorded for a file without a published one; None without."""
    return read_recorded().get(str(path), {}).get("sha256")


def show_licences(licences, folder=LICENCES):
    """Log the terms of every set in `licences` ({set: terms}) once, and note it in `folder`/SET.accepted."""
    for name, terms in licences.items():
        path = folder / f"{name}.accepted"
        if not path.is_file() or path.read_bytes() != f"{terms}\n".encode():
            log.warning("Terms of %s: %s By going on you accept them; noted in %s.", name, terms, path)
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(terms + "\n", encoding="utf-8")
