"""A published table as people read it: its cells and its notes."""

from collections import Counter

import pandas as pd

from teleport.report.figures import machines
from teleport.report.render import NONE, Printed
from teleport.runtime.artefact import MANIFEST, STAGES, Artefact


def printed(table, spec, lines, root):
    """The table as it is printed (`Printed`), from its lines (`make_line`)."""
    return Printed(spec["name"], table.title, cells(table, lines), footer(table, spec, lines, root), long=True)


def cells(table, lines):
    """The table as text (DataFrame): a line per published figure; the column Group is there when a row has one."""
    columns = {
        "Group": [line["group"] or "" for line in lines],
        "System": [line["system"] for line in lines],
        "Figure": [line["figure"] for line in lines],
        "Published": [number(line, "published", "not reported") for line in lines],
        "Released checkpoint": [number(line, "released") for line in lines],
        "Ours": [ours(line) for line in lines],
        "Difference": [number(line, "difference", sign="+") for line in lines],
        "Verdict": [line["verdict"] for line in lines],
        "Experiment": [line["experiment"] for line in lines],
    }
    if not any(columns["Group"]):
        del columns["Group"]
    if table.kind != "measures":  # a checkpoint has neither hours nor episodes
        del columns["Released checkpoint"]
    return pd.DataFrame(columns)


def number(line, name, absent=NONE, sign=""):
    """A number of a line with the decimals of its figure, as text."""
    return absent if line[name] is None else f"{line[name]:{sign}.{line['decimals']}f}"


def ours(line):
    """Our figure, with its deviation over seeds, and how many of the planned seeds it has when that is not all."""
    deviation = "" if line["ours sd"] is None else f" ± {number(line, 'ours sd')}"
    partial = 0 < line["seeds"] < line["planned seeds"]
    return number(line, "ours") + deviation + partial * f" ({line['seeds']} of {line['planned seeds']} seeds)"


def footer(table, spec, lines, root):
    """What a reader must know beside the figures: a list of sentences."""
    others = sorted({c.configuration for c in table.columns} - {spec["configuration"]})
    notes = [f"Published: {table.source}.", count(lines)]
    if len(others) == len({column.configuration for column in table.columns}):
        notes.append(f"Only the configuration {' or '.join(others)} can fill this table.")
    elif others:
        notes.append(f"Figures of {' and '.join(others)}: {', '.join(f'results/published/{name}' for name in others)}.")
    notes.append(f"Tolerance ±{table.tolerance.value:g}, above and below: {table.tolerance.reason}.")
    if any(line["ours sd"] is not None for line in lines):
        notes.append("Mean ± standard deviation over seeds.")
    if table.kind == "measures":
        notes.append("Released checkpoint: the system as its makers gave it, under our evaluation.")
    if any(line["ours"] is not None or line["released"] is not None for line in lines):
        notes.append(data(Artefact(root / STAGES / spec["collection"]).facts, lines))
    return notes + table.notes + (hardware(lines, root) if table.kind == "hours" else [])


def count(lines):
    """How many lines were run, and with which verdict."""
    counts = Counter(line["verdict"] for line in lines if line["ours"] is not None)
    ran = sum(counts.values())
    parts = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
    return f"{ran} of {len(lines)} figures were run{': ' + parts if parts else ''}. What was not run is not reproduced."


def data(facts, lines):
    """On what our figures were measured, in numbers: a toy collection must not be mistaken for the paper's."""
    splits = sorted({line["split"] or "train" for line in lines} & set(facts["splits"]))
    queries = ", ".join(f"{facts['splits'][split]['queries']:,} {split} queries" for split in splits)
    return f"Ours on collection {facts['corpus_digest'][:16]}: {facts['num_passages']:,} passages, {queries}."


def hardware(lines, root):
    """Where our hours were spent."""
    names = sorted({name for line in lines for name in line["stages"] if (root / STAGES / name / MANIFEST).is_file()})
    found = [Artefact(root / STAGES / name) for name in names]
    notes = [f"Hours of ours on {machines(found)}."] if found else []
    if any(stage.manifest["provenance"]["attempt"] > 1 for stage in found):
        notes.append("Of a search that was interrupted only the time of its last attempt counts.")
    return notes
