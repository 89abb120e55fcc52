"""The content of results: stages that nothing uses, and stages and links that are not sound."""

import csv
import os
import shutil
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import chain
from pathlib import Path

from teleport.refusal import Refusal
from teleport.report.links import stage_links
from teleport.report.words import number
from teleport.running.artefact import MANIFEST, STAGE, STAGES, Artefact, is_finished, other_than_stages, remake
from teleport.running.files import files_below, is_left
from teleport.running.job import RESUME, SHARDS
from teleport.running.log import Progress

EXPERIMENTS, TABLES, BENCHMARKS = (Path("results", name) for name in ("experiments", "tables", "benchmarks"))
MB = 10**6
HASHING = 8  # threads at most: with more, the disk is the limit
OTHERS = "Unfinished experiments of other configurations are not known here: name those configurations after --also."


def prune(planned, delete):
    """Print the stages that nothing uses, and remove them if `delete`."""
    folders, num_stages, unfinished = unused(planned)
    if delete and unfinished:
        raise Refusal(f"{unfinished} Nothing was removed.")
    total = 0
    for folder in folders:
        size = sum(file.stat().st_size for file in files_below(folder))
        total += size
        print(f"{size / 1e6:10.1f} MB  {folder}")
        if delete:
            (folder / MANIFEST).unlink(missing_ok=True)  # first, so that a half removed stage never looks finished
            shutil.rmtree(folder)
    done = "removed" if delete else "would be removed with --delete"
    print(f"{len(folders)} of {number(num_stages, 'stage')}, {total / 1e6:.1f} MB, {done}")
    if folders and not delete:
        print(unfinished or OTHERS)


def unused(planned):
    """(folders of the stages that are not used, number of all stages, a sentence about unfinished work or "").

    A stage is used if it is in `planned` ("kind/key"), if an experiment (by links or plan.tsv) or a table (by
    .sources.csv) shows it, or if a used stage was made from it. The sentence is about the state of other stages: their
    jobs may run or be continued, and the state does not show what they read.
    """
    for path in filter(is_foreign, chain(EXPERIMENTS.rglob("*"), TABLES.rglob("*"))):
        remedy = "Replace the link by the folder, or remove it to give up the stages that it shows"
        raise Refusal(f"{path} is a link to a folder; stages that it uses are not searched for. {remedy}.")
    shown = set(stage_links(EXPERIMENTS).values()) | rows(EXPERIMENTS.rglob("plan.tsv"), "\t", "kind", "key")
    used = with_upstream(planned | shown | rows(TABLES.rglob("*.sources.csv"), ",", "stage"))
    states = ", ".join(str(folder) for folder in orphans(used, RESUME, SHARDS)[0])
    reason = f"Other stages, which no given configuration plans, run or were killed; their state is in {states}."
    remedy = "Name their configurations after --also, or delete these folders to give the stages up."
    return *orphans(used, STAGES), f"{reason} {remedy}" if states else ""


def is_foreign(path):
    """Whether a path is a link to a folder that is not a stage."""
    return path.is_symlink() and path.is_dir() and not STAGE.fullmatch("/".join(path.readlink().parts[-2:]))


def rows(paths, delimiter, *columns):
    """The stages ("kind/key") that these columns of tables name (set)."""
    stages = set()
    for path in filter(Path.is_file, paths):
        try:
            with open(path, encoding="utf-8", newline="") as file:
                lines = csv.DictReader(file, delimiter=delimiter)
                names = {"/".join(line[column] or "" for column in columns) for line in lines}
            wrong = other_than_stages(names)
        except KeyError as error:
            wrong = f"has no column {error}"
        except (UnicodeDecodeError, csv.Error) as error:
            wrong = f"cannot be read ({error})"
        if wrong:
            raise Refusal(f"{path} {wrong}: torn or edited. Delete it to release the stages that it shows.")
        stages |= names
    return stages


def with_upstream(names):
    """`names` and the stages that the finished ones among them were made from, directly or not (set)."""
    used, left = set(), list(names)
    while left:
        name = left.pop()
        if name not in used and is_finished(name):
            left += Artefact(STAGES / name).manifest["inputs"].values()
        used.add(name)
    return used


def orphans(used, *roots):
    """(folders below `roots` of stages that are not in `used`, number of all). Targets of links are not ours."""
    entries = [path for root in roots for path in root.glob("*/*") if path.is_dir()]
    folders = sorted(path for path in entries if not (path.is_symlink() or path.parent.is_symlink()))
    return [folder for folder in folders if stage_of(folder) not in used], len(folders)


def stage_of(folder):
    """The stage ("kind/key") of a folder. A part of it (`files.part_of`) may be a copy under way, unless it is left."""
    key = folder.name.partition(".")[0]
    return f"{folder.parent.name}/{folder.name if is_left(folder, key) else key}"


def check_stages():
    """(sentences on artefacts that do not match their SHA-256; number of all stages).

    Several threads hash one stage each (hashlib lets the others compute), with one block of a file in memory at a time.
    The log has the bytes read, the rate and the time left.
    """
    folders = [manifest.parent for manifest in sorted(STAGES.glob(f"*/*/{MANIFEST}"))]
    pool, done = ThreadPoolExecutor(min(HASHING, len(os.sched_getaffinity(0)))), 0
    try:
        checks = {pool.submit(wrong_in, folder): size_of(folder) for folder in folders}
        total, progress = sum(checks.values()) // MB, Progress(None)
        for check in as_completed(checks):
            check.result()  # an error of ours, or of the disk, ends all
            if done // MB < total:
                progress(done // MB, total, "MB")
            done += checks[check]
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C, tasks that have not begun
    return [wrong for check in checks if (wrong := check.result())], len(folders)


def size_of(folder):
    """Bytes of the files of a stage by its manifest; 0 where that is torn."""
    try:
        return Artefact(folder).bytes
    except Refusal:
        return 0


def wrong_in(folder):
    """The fault of the artefact in a folder (text), or None."""
    try:
        Artefact(folder).verify()
    except Refusal as refusal:
        return str(refusal)


def broken_links():
    """Sentences on links of the experiments to missing stages (list of str).

    Links are made before their stages: a stage without a benchmark, which a job leaves at its end, was never made.
    """
    return [
        f"{link} leads to {name}, a stage that is not there. {remake(*name.split('/'))} If you no longer want the "
        "experiment, delete its folder."
        for link, name in sorted(stage_links(EXPERIMENTS).items())
        if not (link / MANIFEST).is_file() and (BENCHMARKS / f"{name}.tsv").is_file()
    ]
