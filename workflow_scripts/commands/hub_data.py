"""A dataset repository of the hub as FROM of `teleport new`: its tables at one commit. No code of it is read or run."""

import glob
import re
import shutil
from pathlib import Path, PurePosixPath

from commands.pairs.find import BESIDE, SUFFIXES, form_of, refuse_packed, refuse_unread
from teleport.refusal import Refusal
from teleport.report.words import number
from teleport.running.files import (
    gigabytes,
    require_free_space,
    require_new_folder,
    sha256_file,
    write_new_folder,
    write_text,
)
from teleport.running.hub import HUB_NAME, hub_errors

WHERE = re.compile(rf"{HUB_NAME}(?:@((?:refs/(?:convert|pr)/)?[^/@]+))?(?:/([^@]+))?")
DIGESTS = "SHA256SUMS"  # as `sha256sum -c` reads it


def fetch_dataset(where, copy, made):
    """Copy the tables of hub:OWNER/NAME[@REVISION][/FOLDER] into the new folder `copy`, with their digests; returns
    (the folder to read, where they are from with the hash of the commit, a sentence). made: of `write_new_folder`"""
    from huggingface_hub import HfApi, snapshot_download

    if not (match := WHERE.fullmatch(where)) or ".." in PurePosixPath(match[3] or "").parts:
        raise Refusal(f"{where}: give hub:OWNER/NAME@REVISION, or hub:OWNER/NAME@REVISION/FOLDER.")
    require_new_folder(copy)
    repository, revision, below = match[1], match[2] or "main", PurePosixPath(match[3] or ".")
    with hub_errors(f"{where} cannot be read from the hub", "Check its name, its revision and the network."):
        info = HfApi().dataset_info(repository, revision=revision, files_metadata=True)
        files = {file.rfilename: file for file in info.siblings}
        names = tables_in(files, below, where)
        require_free_space(copy, sum(files[name].size or 0 for name in names))
        options = {"repo_type": "dataset", "revision": info.sha, "allow_patterns": [*map(glob.escape, names)]}
        cached = Path(snapshot_download(repository, **options))

    def write(part):
        for name in names:
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(cached / name, part / name)
        digests = {name: sha256_file(part / name) for name in names}
        for name, digest in digests.items():
            if (lfs := files[name].lfs) and lfs["sha256"] != digest:
                raise Refusal(
                    f"{cached / name} does not have the SHA-256 that the hub lists. Remove it, and run again."
                )
        write_text(part / DIGESTS, "".join(f"{digest}  {name}\n" for name, digest in digests.items()))

    write_new_folder(write, copy, made)
    size = sum((copy / name).stat().st_size for name in names)
    at = f"hub:{repository}@{info.sha}"
    summary = f"{at}: {number(len(names), 'file')}, {gigabytes(size)}, in {copy}; {copy / DIGESTS} has their digests."
    return copy / below, at, summary


def tables_in(files, below, where):
    """The names among `files` of tables in a folder (PurePosixPath) of a repository. Raises Refusal if there are
    none."""
    folders, names = [below / beside for beside in BESIDE], [PurePosixPath(name) for name in sorted(files)]
    beside = [name for name in names if name.parent in folders]
    refuse_packed(beside)
    refuse_unread(beside)
    tables = [name for name in names if form_of(name)]
    if names := [str(name) for name in tables if name.parent in folders]:
        return names
    others = ", ".join(sorted({str(name.parent) for name in tables}))
    remedy = f"Name one of its folders, behind a slash: {others}" if others else "Give a repository that has tables"
    raise Refusal(f"{where}: no file there ends with {SUFFIXES}. {remedy}.")
