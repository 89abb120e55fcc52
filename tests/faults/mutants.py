"""Are the promises of docs/reliability.md tested? Each line of the library that keeps one is broken in a copy.

    python tests/faults/mutants.py [--processes 2] [--only NUMBER ...]

A mutant is killed when the tests named for it fail, which pass without it. The table of all goes into
docs/measured/mutants.md; the status is 1 where more live than are listed in `LIVING`, or where a line is no longer in
its file: correct the list then.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import yaml
from campaign import replace_table

REPOSITORY = Path(__file__).parents[2]
COPIED = ("rules", "workflow_scripts", "config", "profiles", "tests", "bench", "docs", "Snakefile", "Makefile",
          "pyproject.toml", "environment.yml", "requirements.lock", "README.md")  # fmt: skip
PATIENCE_SECONDS = 300  # a mutant that waits for ever is killed too
LIVING = {}  # {promise: why no test can tell it from the library}


class Mutant(NamedTuple):
    """An entry of mutants.yaml."""

    promise: str
    file: str
    old: str
    new: str
    tests: str


MUTANTS = [Mutant(**each) for each in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))]


def text_of(mutant, folder=REPOSITORY):
    """(path, text) of a mutant's file. Raises ValueError unless the old text stands in it once."""
    path = folder / "workflow_scripts/teleport" / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.file} has {text.count(mutant.old)} times {mutant.old!r} ({mutant.promise})")
    return path, text


def status_of(tests, folder):
    """(pytest's status, seconds) of tests (names between spaces) in a copy; 1 where they fail, or wait for ever."""
    paths = [f"tests/{name}" for name in tests.split()]
    pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu"]
    environment, started = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}, time.monotonic()
    try:
        done = subprocess.run(
            [*pytest, *paths], cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return 1, time.monotonic() - started
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{tests}: pytest ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode, time.monotonic() - started


def killed(mutant, folder):
    """(whether tests failed, seconds) with a mutant in the copy `folder`, which is sound afterwards."""
    path, text = text_of(mutant, folder)
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        status, seconds = status_of(mutant.tests, folder)
    finally:
        path.write_text(text, encoding="utf-8")
    return status == 1, seconds


def require_sound(tests, folder):
    """Raise RuntimeError when tests fail, or do not end, in a copy without a mutant: they would kill any."""
    status, seconds = status_of(tests, folder)
    if status:
        raise RuntimeError(f"{tests}: fail without a mutant, too, or take more than {PATIENCE_SECONDS} s")
    say(f"sound  {seconds:4.0f} s  {tests}")


def say(text):
    print(text, file=sys.stderr, flush=True)


def try_mutants(mutants, processes=2):
    """[(mutant, killed, seconds)] of some mutants, each in one of so many copies of the repository.

    Every list of tests has passed before, without a mutant.
    """
    with TemporaryDirectory() as folder, ThreadPoolExecutor(processes) as threads:
        copies = []
        for number in range(processes):
            copies.append(Path(folder, str(number)))
            copies[-1].mkdir()
            for name in COPIED:
                source, target = REPOSITORY / name, copies[-1] / name
                (shutil.copytree if source.is_dir() else shutil.copy)(source, target)

        def in_a_copy(function, argument):
            copy = copies.pop()
            try:
                return function(argument, copy)
            finally:
                copies.append(copy)

        def one(mutant):
            dead, seconds = in_a_copy(killed, mutant)
            say(f"{'killed' if dead else 'LIVES '} {seconds:4.0f} s  {mutant.promise}")
            return mutant, dead, seconds

        list(threads.map(partial(in_a_copy, require_sound), dict.fromkeys(mutant.tests for mutant in mutants)))
        return list(threads.map(one, mutants))


def machine():
    """The commit, and what computes (text)."""
    git = ["git", "-C", str(REPOSITORY)]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    edited = subprocess.run([*git, "diff", "--quiet", "HEAD"]).returncode
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    cores = len(os.sched_getaffinity(0))
    return f"commit {commit}{' and edits' if edited else ''}, {cores} cores of {cpu[1] if cpu else 'a processor'}"


def table(results):
    """The results as lines of Markdown."""
    lines = ["| promise | file | killed | seconds |", "|---|---|---|--:|"]
    for mutant, dead, seconds in results:
        file = f"commands/{Path(mutant.file).name}" if mutant.file.startswith("..") else mutant.file
        end = "yes" if dead else LIVING.get(mutant.promise, "**no**")
        lines.append(f"| {mutant.promise} | `{file}` | {end} | {seconds:.0f} |")
    number = sum(dead for _, dead, _ in results)
    return "\n".join([*lines, f"| **{number} of {len(results)}**, {machine()} | | | |"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", type=int, nargs="+", help="numbers in the list, from 0")
    arguments = parser.parse_args()
    chosen = [MUTANTS[number] for number in arguments.only or range(len(MUTANTS))]
    for mutant in chosen:
        text_of(mutant)
    results = try_mutants(chosen, arguments.processes)
    if arguments.only:
        print(table(results))
    else:
        replace_table(REPOSITORY / "docs/measured/mutants.md", "| promise |", table(results))
    return int(any(not dead and mutant.promise not in LIVING for mutant, dead, _ in results))


if __name__ == "__main__":
    sys.exit(main())
