"""The share of a run of the workflow that no stage worked in, and where that time went.

    python bench/overhead.py                        the last run in this folder, by the newest file in .snakemake/log
    python bench/overhead.py -- --cores all […]     run `snakemake --cores all […]` now and take its time

A stage works while its `run(job)` runs. A moment counts as work when at least one stage works in it, otherwise as the
phase nearest to work that any process is in; concurrent stages are not counted twice. Only stages whose manifests were
written during the run count. Snakemake's log begins after its imports, so the first form misses about a second.
"""

import argparse
import csv
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

STAGES, BENCHMARKS, LOGS = Path("results/stages"), Path("results/benchmarks"), Path(".snakemake/log")
# Nearest to work first.
PHASES = {
    "work": "stages work",
    "publish": "hashing, publishing, provenance",
    "load": "imports of stage modules, checks of resume state",
    "interpreter": "start and end of the stages' interpreters",
    "start": "start of Snakemake: imports, configuration, plan, DAG",
    "between": "scheduling, tables and links, end of Snakemake",
}


@dataclass(frozen=True)
class Span:
    """The part of a run from `start` to `end` (seconds since 1970) in which some process was in `phase`."""

    phase: str
    start: float
    end: float


def stage_spans(manifest_file, benchmark_file):
    """The spans of one finished stage: its command's start, then load, work and publish up to its manifest's time."""
    provenance = json.loads(manifest_file.read_text())["provenance"]
    seconds, end = provenance["seconds"], manifest_file.stat().st_mtime
    spans = []
    for phase in ("publish", "work", "load"):
        spans.append(Span(phase, end - seconds[phase], end))
        end -= seconds[phase]
    command = command_seconds(benchmark_file)
    return [*spans, Span("interpreter", end - max(0.0, command - sum(seconds.values())), end)]


def command_seconds(file):
    """Wall seconds of a stage's command as Snakemake's benchmark file has them, 0 without one."""
    if not file.is_file():
        return 0.0
    with open(file, newline="") as stream:
        return float(next(csv.DictReader(stream, delimiter="\t"))["s"])


def run_spans(root, start, end):
    """The spans of all stages below `root` that were finished between `start` and `end`."""
    spans = []
    for manifest in sorted((root / STAGES).glob("*/*/manifest.json")):
        if start <= manifest.stat().st_mtime <= end:
            kind, key = manifest.parent.parts[-2:]
            spans += stage_spans(manifest, root / BENCHMARKS / kind / f"{key}.tsv")
    return spans


def shares(spans, start, end):
    """{phase: seconds} of the run from `start` to `end`: every moment counts for one phase, so they sum to the run."""
    order = list(PHASES)
    first = min((span.start for span in spans), default=end)
    spans = [*spans, Span("start", start, first), Span("between", start, end)]
    edges = sorted({min(max(edge, start), end) for span in spans for edge in (span.start, span.end)})
    seconds = dict.fromkeys(order, 0.0)
    for left, right in zip(edges, edges[1:], strict=False):
        active = [order.index(span.phase) for span in spans if span.start <= left and right <= span.end]
        seconds[order[min(active)]] += right - left
    return seconds


def last_run(root):
    """(start, end) of the last run of Snakemake in `root`, by its log. Raises ValueError when there is none."""
    logs = sorted((root / LOGS).glob("*.snakemake.log"))
    if not logs:
        raise ValueError(f"{root / LOGS} has no log of a run: name Snakemake's arguments after `--` to run it now.")
    start = datetime.strptime(logs[-1].name.split(".snakemake")[0], "%Y-%m-%dT%H%M%S.%f")
    return start.timestamp(), logs[-1].stat().st_mtime


def measured_run(root, arguments):
    """(start, end) of a run of Snakemake with `arguments` in `root`. Raises ValueError when it fails."""
    start = time.time()
    status = subprocess.run([sys.executable, "-m", "snakemake", *arguments], cwd=root).returncode
    if status:
        raise ValueError(f"snakemake ended with {status}: a share of a run that failed means nothing.")
    return start, time.time()


def main(arguments=None):
    parser = argparse.ArgumentParser(description="The share of a run in which no stage worked.")
    parser.add_argument("--directory", type=Path, default=Path("."), help="where the workflow runs or ran")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("snakemake", nargs="*", help="after `--`: arguments with which to run Snakemake now")
    arguments = parser.parse_args(arguments)
    root = arguments.directory
    try:
        start, end = measured_run(root, arguments.snakemake) if arguments.snakemake else last_run(root)
    except ValueError as error:
        sys.exit(f"error: {error}")
    seconds = shares(run_spans(root, start, end), start, end)
    whole = sum(seconds.values())
    overhead = 1 - seconds["work"] / whole
    for phase, text in PHASES.items():
        print(f"{seconds[phase]:8.1f} s  {seconds[phase] / whole:6.1%}  {text}")
    print(f"{whole:8.1f} s, overhead {overhead:.1%}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"seconds": seconds, "whole": whole, "overhead": overhead}, indent=1))


if __name__ == "__main__":
    main()
