"""Rehearse a paper's workflow at its counts, or a part of them, with drawn texts and a miniature encoder.

    python bench/rehearse.py marco [--scale 0.01] [--questions 1.0] [--cores 2] [--folder data/rehearsal]

Writes the paper's official files in their official forms (`rehearsal/official.py`), a checkpoint of one layer with 32
dimensions in the place of every checkpoint, and a configuration that says so; then runs the paper's own configuration
with it: every episode, table and page. At the end a line per kind of stage: time, memory and disk as measured, beside
the forecast. What it proves is that every stage works at those counts, in how much memory, and how it grows; it says
nothing of the quality of a system, and nothing of the speed of a real encoder.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

import yaml

import texts
from rehearsal.miniature import write_miniature
from rehearsal.official import PAPERS, WRITERS, Corpus
from rehearsal.words import Words
from rounds import REPOSITORY
from teleport.encoder.source import folder_in_package
from teleport.encoder.tokens import load_tokenizer
from teleport.running.files import write_json

SIDES = ("checkpoint", "query_checkpoint")
STEPS = ("steps", "stop_after_steps", "warmup_steps")  # stated as numbers, where most papers have epochs
LEAST_STEPS = 20


def prepare(paper, scale, questions, folder):
    """Write files, checkpoint and the configuration beside the paper's; returns the path of that configuration."""
    counts = PAPERS[paper].scaled(scale, questions)
    files, checkpoint, override = folder / "files", folder / "checkpoint", folder / "rehearsal.yaml"
    wanted = json.dumps({"paper": paper, "counts": counts.__dict__})
    note = folder / "made.json"
    if note.is_file() and json.loads(note.read_text()) == json.loads(wanted):
        return override
    files.mkdir(parents=True, exist_ok=True)
    source = folder_in_package(texts.PACKAGE)
    tokenizer, special = load_tokenizer(source, None)
    words = Words(shuffled(texts.whole_words(tokenizer)), seed=42)
    ranks = {tokenizer.token_to_id(word): rank for rank, word in enumerate(words.vocabulary.tolist())}
    write_miniature(checkpoint, source, ranks, special["vocab_size"])
    started = time.monotonic()
    WRITERS[paper](files, Corpus(words, counts))
    size = sum(path.stat().st_size for path in files.iterdir())
    print(f"{counts.passages:,} passages, {counts.queries}: {size / 1e9:.2f} GB of files in "
          f"{time.monotonic() - started:.0f} s", flush=True)  # fmt: skip
    override.write_text(yaml.safe_dump(overrides(paper, counts, files, checkpoint), sort_keys=False))
    write_json(note, json.loads(wanted))
    return override


def shuffled(words):
    """The words in an order that is not the alphabet's: the first one is the most frequent."""
    return sorted(words, key=lambda word: hashlib.sha256(word.encode()).digest())


def overrides(paper, counts, files, checkpoint):
    """What differs from config/PAPER.yaml: where files and checkpoints are, the counts, and as many steps (dict)."""
    given = yaml.safe_load((REPOSITORY / "config" / f"{paper}.yaml").read_text(encoding="utf-8"))
    miniature = {"hub": None, "revision": None, "folder": str(checkpoint)}
    sizes = {}
    for name in given["collection"]["files"]:
        sizes[name] = {"bytes": (files / name).stat().st_size, "md5": None, "sha256": None}
    external = {
        name: {"encoder": {side: miniature for side in SIDES if side in entry["encoder"]} | {"projection": None}}
        for name, entry in given.get("external", {}).items()
    }
    return {
        "collection": {"local": str(files), "files": sizes},
        "counts": {"passages": counts.passages, "queries": counts.queries, "download_bytes": None}
        | ({"positives": {"train": counts.positives}} if counts.positives else {}),
        "encoder": {"checkpoint": miniature},
        "external": external,
    } | with_steps(given, counts.queries["train"] / PAPERS[paper].queries["train"])


def with_steps(given, share):
    """The blocks of a configuration (dict) that state steps, with `share` of them, at least `LEAST_STEPS`."""

    def scaled(node, key=None):
        if isinstance(node, dict):
            return {name: scaled(value, name) for name, value in node.items()}
        if isinstance(node, list):
            return [scaled(value) for value in node]
        return max(LEAST_STEPS, round(node * share)) if key in STEPS and node else node

    blocks = {name: given[name] for name in ("training", "episodes", "experiments") if name in given}
    return {name: scaled(block) for name, block in blocks.items()}


def run(paper, override, cores, arguments):
    """The paper's workflow; returns its status."""
    command = [sys.executable, "-m", "snakemake", "--cores", str(cores), "--configfile"]
    command += [str(REPOSITORY / "config" / f"{paper}.yaml"), str(override), *arguments]
    return subprocess.run(command).returncode


def compare(paper, override):
    """A line per kind of stage: what was measured beside the forecast of the same stages (list of dicts)."""
    from commands.forecast.forecast import Forecast
    from commands.forecast.hardware import read_hardware
    from teleport.plan.plan import Plan
    from teleport.running.artefact import STAGES, read_manifest
    from teleport.settings.read import load_files

    plan = Plan(*load_files([REPOSITORY / "config" / f"{paper}.yaml", override]))
    estimates = Forecast(plan, read_hardware()[1]).stages
    lines = {}
    for name, stage in plan.stages.items():
        if not (STAGES / name / "manifest.json").is_file():
            continue
        manifest = read_manifest(STAGES / name, "", "")
        made, estimate = manifest["provenance"], estimates[name]
        line = lines.setdefault(stage.kind, dict.fromkeys(COLUMNS, 0) | {"kind": stage.kind})
        line["stages"] += 1
        line["seconds"] += made["wall_seconds"]
        line["forecast_seconds"] += estimate.seconds
        line["longest"] = max(line["longest"], made["wall_seconds"])
        line["memory"] = max(line["memory"], made["peak_memory_bytes"])
        line["disk"] += sum(file["bytes"] for file in manifest["files"].values())
        line["forecast_memory"] = max(line["forecast_memory"], estimate.cost.memory)
        line["forecast_disk"] += estimate.cost.bytes
    return list(lines.values())


COLUMNS = ("stages", "seconds", "forecast_seconds", "longest", "memory", "forecast_memory", "disk", "forecast_disk")


def render(lines):
    """The lines as text, sizes in GB."""
    rows = [("stage", "count", "seconds", "forecast", "longest", "memory", "forecast", "disk", "forecast")]
    for line in lines:
        sizes = [f"{line[name] / 1e9:.3f}" for name in ("memory", "forecast_memory", "disk", "forecast_disk")]
        times = [f"{line[name]:.1f}" for name in ("seconds", "forecast_seconds", "longest")]
        rows.append((line["kind"], str(line["stages"]), *times, *sizes))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paper", choices=sorted(PAPERS))
    parser.add_argument("--scale", type=float, default=0.001, help="share of the passages and questions (1: all)")
    parser.add_argument("--questions", type=float, default=1.0, help="further share of the training questions")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("data/rehearsal"))
    parser.add_argument("--json", type=Path, help="write the comparison there too")
    arguments, passed_on = parser.parse_known_args(arguments)
    folder = (arguments.folder / f"{arguments.paper}-{arguments.scale:g}-{arguments.questions:g}").resolve()
    override = prepare(arguments.paper, arguments.scale, arguments.questions, folder)
    status = run(arguments.paper, override, arguments.cores, passed_on)
    lines = compare(arguments.paper, override)
    print(render(lines))
    if arguments.json:
        write_json(arguments.json, lines)
    return status


if __name__ == "__main__":
    sys.exit(main())
