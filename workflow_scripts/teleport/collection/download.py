"""Stage `download`: the official files of a collection, below data/downloads or in a local folder, all verified.

The files stay where they are and are used there: this stage's artefact is its manifest alone.
"""

import codecs
import json
from pathlib import Path

from teleport.collection.fetch import fetch, file_digests, forget, has_digest, part_of, verify
from teleport.runtime.files import write_json
from teleport.runtime.log import log
from teleport.settings.collection import DownloadSettings as Settings  # noqa: F401

FOLDER = Path("data/downloads")
RECORDED = FOLDER / "digests.json"  # of files whose publisher gives none, from their first use
LICENCES = Path("data/licences")
PAGES = (b"<!doctype html", b"<html", b"<?xml")  # how pages begin, in lower case


def run(job):
    """Fetch what is missing, verify everything; returns {files: {name: {path, bytes, sha256}}}.

    Raises ValueError when no mirror has a file, when it is not the expected one, and when the local folder lacks it.
    """
    show_licences(job.origins.get("licences", {}))
    files = {}
    for name, expected in job.settings.model_dump()["files"].items():
        path, found = obtain(name, expected, job.origins)
        if not has_digest(expected):
            trust(path, found)
        files[name] = {"path": str(path), "bytes": found["bytes"], "sha256": found["sha256"]}
        log.info("%s: %d bytes, SHA-256 %s", path, found["bytes"], found["sha256"])
    return {"files": files}


def obtain(name, expected, origins):
    """(path, `file_digests`) of one verified file. A wrong file in data/downloads is removed, a local one never."""
    local = origins.get("local")
    path = Path(local or FOLDER, name)
    if local and not path.is_file():
        remedy = "collection.local replaces every download, so put it there, or set collection.local to null."
        raise ValueError(f"{path}: no such file. {remedy}")
    if not path.is_file():
        return path, fetch(path, origins["mirrors"][name], expected)
    if not local:
        forget(part_of(path))  # a note is left when a kill came right after the file got its name
    found = file_digests(path)
    try:
        verify(found, expected, str(path))
    except ValueError:
        if not local:
            path.unlink()
        raise
    return path, found


def trust(path, found):
    """Compare a file without a published digest with the digest of its first use, or record it; never remove it."""
    recorded = read_recorded()
    refuse_page(path)
    if (entry := recorded.get(str(path))) is None:
        log.warning("%s: no digest is published; SHA-256 %s is trusted and holds from now on", path, found["sha256"])
        write_json(RECORDED, recorded | {str(path): {"bytes": found["bytes"], "sha256": found["sha256"]}})
    elif entry["sha256"] != found["sha256"]:
        raise ValueError(
            f"{path} has SHA-256 {found['sha256']}, at its first use it had {entry['sha256']}: another file. "
            f"Bring the old one back, or, if this one is right, delete the entry {str(path)!r} in {RECORDED}."
        )


def read_recorded():
    """The digests of first uses, {path: {bytes, sha256}}. Raises ValueError when their file is torn."""
    if not RECORDED.exists():
        return {}
    try:
        recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
        if all(isinstance(entry["sha256"], str) for entry in recorded.values()):
            return recorded
        problem = "a digest is no text"
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError, OSError) as error:
        problem = f"{type(error).__name__}: {error}"
    raise ValueError(
        f"{RECORDED} does not hold the digests of first uses any more ({problem}): torn or edited. Bring it back from "
        "a copy, or delete it: then the files as they are now are trusted anew."
    )


def refuse_page(path):
    """Raise ValueError when a file is a web page, with which a mirror may answer that has moved or wants a login."""
    with open(path, "rb") as file:
        start = file.read(1000).removeprefix(codecs.BOM_UTF8).lstrip().lower()
    if start.startswith(PAGES):
        raise ValueError(
            f"{path} is a web page, not the file that its name says. Delete it, and the entry {str(path)!r} in "
            f"{RECORDED} where there is one; correct collection.files.{path.name}.mirrors or put the right file there."
        )


def show_licences(licences, folder=LICENCES):
    """Log the terms of every set in `licences` ({set: terms}) once, and note it in `folder`/SET.accepted."""
    for name, terms in licences.items():
        path = folder / f"{name}.accepted"
        if not path.is_file() or path.read_bytes() != f"{terms}\n".encode():
            log.warning("Terms of %s: %s Whoever goes on accepts them; noted in %s.", name, terms, path)
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(terms + "\n", encoding="utf-8")
