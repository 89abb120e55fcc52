"""List the stages on disk that nothing uses; with --delete, remove them.

    python workflow_scripts/prune.py config/config.yaml
    python workflow_scripts/prune.py --delete config/config.yaml --also config/nfcorpus.yaml config/own.yaml

A stage is used when a given configuration plans it, or when a folder below results/experiments or a table below
results/tables shows it or what was made from it: results of other configurations stay. Delete such a folder or table to
let its stages go. A configuration may be several files, merged as `--configfile` merges them; `--also` starts another
one, and is needed for experiments that are not finished: nothing shows them yet.
"""

import argparse
import csv
import shutil
import sys
from pathlib import Path

from teleport.plan.plan import Plan
from teleport.report.experiments import stage_links
from teleport.runtime.artefact import MANIFEST, STAGES, Artefact
from teleport.runtime.files import files_below
from teleport.runtime.job import RESUME, SHARDS
from teleport.settings.read import load_files

EXPERIMENTS, TABLES = Path("results/experiments"), Path("results/tables")
UNKNOWN = "Unfinished experiments of other configurations are not known here: name those configurations after --also."


def planned_stages(files):
    """The names (`kind/key`) of all stages of the configuration in `files`."""
    return set(Plan(*load_files(files)).stages)


def shown_stages():
    """The names of the stages that experiments (by links or plan.tsv) and tables (by .sources.csv) show."""
    linked = set(stage_links(EXPERIMENTS).values())
    listed = {f"{row['kind']}/{row['key']}" for path in EXPERIMENTS.rglob("plan.tsv") for row in rows(path, "\t")}
    return linked | listed | {row["stage"] for path in TABLES.rglob("*.sources.csv") for row in rows(path, ",")}


def rows(path, delimiter):
    """The lines of a table with a header (list of dicts)."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def with_upstream(names):
    """`names` and the stages that the finished ones among them were made from, directly or not (set)."""
    found, left = set(), list(names)
    while left:
        name = left.pop()
        if name not in found and (STAGES / name / MANIFEST).is_file():
            left += Artefact(STAGES / name).manifest["inputs"].values()
        found.add(name)
    return found


def orphans(used, *roots):
    """(folders below some roots of stages that are not in `used`, number of all)."""
    folders = sorted(path for root in roots for path in root.glob("*/*") if path.is_dir())
    return [folder for folder in folders if f"{folder.parent.name}/{folder.name}" not in used], len(folders)


def unfinished_work(used):
    """A sentence when there is state of stages that are not in `used`, "" otherwise.

    Their jobs may run, or be continued; what they read cannot be told from the state, and would be removed.
    """
    states, _ = orphans(used, RESUME, SHARDS)
    if not states:
        return ""
    names = ", ".join(map(str, states))
    return (
        f"Stages that no given configuration plans run or were killed; their state is in {names}. Name their "
        "configurations after --also, or delete these folders to give the stages up."
    )


def main():
    parser = argparse.ArgumentParser(description="List (or remove) stages that nothing uses.")
    parser.add_argument("files", nargs="+", help="the files of one configuration, as after --configfile")
    parser.add_argument("--also", nargs="+", action="append", default=[], help="the files of another configuration")
    parser.add_argument("--delete", action="store_true", help="remove what is listed")
    arguments = parser.parse_args()
    try:
        planned = set().union(*(planned_stages(files) for files in [arguments.files, *arguments.also]))
        used = with_upstream(planned | shown_stages())
        folders, number = orphans(used, STAGES)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    if arguments.delete and (reason := unfinished_work(used)):
        sys.exit(f"error: {reason} Nothing was removed.")
    total = 0
    for folder in folders:
        size = sum(file.stat().st_size for file in files_below(folder))
        total += size
        print(f"{size / 1e6:10.1f} MB  {folder}")
        if arguments.delete:
            shutil.rmtree(folder)
    done = "removed" if arguments.delete else "would be removed with --delete"
    print(f"{len(folders)} of {number} stages, {total / 1e6:.1f} MB, {done}")
    if folders and not arguments.delete:
        print(unfinished_work(used) or UNKNOWN)


if __name__ == "__main__":
    main()
