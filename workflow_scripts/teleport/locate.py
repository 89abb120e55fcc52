"""Finds the files of collections, which `records` reads: local, downloaded, and those of the splits in a folder."""

import re
from pathlib import Path

from teleport.refusal import Refusal
from teleport.settings.section import NAME


def existing(path, key):
    """`path` or `path`.gz, whichever exists; key: its setting, for a refusal."""
    if place := existing_or_none(path):
        return place
    raise Refusal(f"{path}: no such file, and no {Path(path).name}.gz beside it. Put it there, or correct {key}.")


def existing_or_none(path):
    """`path` or `path`.gz, whichever exists; None if neither does."""
    return next((place for place in (Path(path), Path(f"{path}.gz")) if place.is_file()), None)


def fetched(job):
    """{file name: {path, bytes, sha256}} of the files that the stages `download` of a job have verified."""
    roles = [role for role in job.inputs if role.startswith("download")] if job else []
    return {name: file for role in roles for name, file in job.facts(role)["files"].items()}


def located(name, files):
    """The path of a file, or PATH!MEMBER. Raises Refusal if it is missing or no longer has the downloaded size."""
    archive, mark, member = name.partition("!")
    path, expected = Path(files[archive]["path"]), files[archive]["bytes"]
    if not path.is_file() or path.stat().st_size != expected:
        raise Refusal(
            f"{path} is missing or does not have the {expected} bytes that were verified. Put it back, or verify it "
            "again with `snakemake --forcerun download`."
        )
    return f"{path}{mark}{member}" if member else path


def split_names(home, pattern, key):
    """The splits in the folder `home`, sorted: the part of a file's name (without .gz) at the * of `pattern`. Hidden
    files are no splits: macOS leaves some beside real ones."""
    start, _, end = pattern.partition("*")
    expression = start.replace(".", r"\.") + f"(.+){re.escape(end)}"
    files = (path.name.removesuffix(".gz") for path in home.glob("[!.]*"))
    names = {match[1] for name in files if (match := re.fullmatch(expression, name))}
    if not names:
        readable = pattern.replace("(?:queries|qrels)", "queries").replace("*", "SPLIT")
        raise Refusal(
            f"{home}: no files named like {readable}, so there are no queries. Put them there, or correct {key}."
        )
    if unfit := sorted(name for name in names if not re.fullmatch(NAME, name)):
        problem = f"{home} has a file of the split {unfit[0]!r}, and the name of a split must match {NAME}"
        raise Refusal(f"{problem}, because file names contain it. Rename the file.")
    return sorted(names)
