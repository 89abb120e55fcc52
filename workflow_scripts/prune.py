"""List the stages on disk that no experiment of the given configurations uses; with --delete, remove them.

    python workflow_scripts/prune.py config/config.yaml
    python workflow_scripts/prune.py --delete config/config.yaml --also config/nfcorpus.yaml config/own.yaml

A configuration may be several files, merged as `--configfile` merges them; `--also` starts another configuration.
"""

import argparse
import shutil
import sys

from teleport.config import load_files
from teleport.plan import Plan
from teleport.stage import RESUME, SHARDS, STAGES, files_below


def used_stages(files):
    """The names (`kind/key`) of all stages of the configuration in `files`."""
    return set(Plan(*load_files(files)).stages)


def main():
    parser = argparse.ArgumentParser(description="List (or remove) stages that no given configuration uses.")
    parser.add_argument("files", nargs="+", help="the files of one configuration, as after --configfile")
    parser.add_argument("--also", nargs="+", action="append", default=[], help="the files of another configuration")
    parser.add_argument("--delete", action="store_true", help="remove what is listed")
    arguments = parser.parse_args()
    try:
        used = set().union(*(used_stages(files) for files in [arguments.files, *arguments.also]))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    folders = sorted(path for root in (STAGES, RESUME, SHARDS) for path in root.glob("*/*") if path.is_dir())
    orphans = [folder for folder in folders if f"{folder.parent.name}/{folder.name}" not in used]
    total = 0
    for folder in orphans:
        size = sum(file.stat().st_size for file in files_below(folder))
        total += size
        print(f"{size / 1e6:10.1f} MB  {folder}")
        if arguments.delete:
            shutil.rmtree(folder)
    done = "removed" if arguments.delete else "would be removed with --delete"
    print(f"{len(orphans)} of {len(folders)} stages, {total / 1e6:.1f} MB, {done}")


if __name__ == "__main__":
    main()
