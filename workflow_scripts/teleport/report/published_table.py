"""A paper's table with our figures beside its own, from whatever has been run.

A table's specification, JSON made by the plan:

    {"name": "ance-tele-table-3", "file": "config/published/ance-tele-table-3.yaml", "sha256": "…",
     "configuration": "marco", "collection": "collection/KEY",
     "lines": [{"row": 0, "column": 0, "ours": [{"evaluate": ["evaluate/KEY"]} per seed], "released": […]}]}

`lines` holds only those that the configuration can fill.
"""

from collections import Counter

import numpy as np
import pandas as pd

from teleport.report.figures import count_passages, figures, machines
from teleport.report.paper_shape import LEGEND, paper_shape
from teleport.report.published import read_published
from teleport.report.render import NONE, Printed, write_forms
from teleport.runtime.artefact import MANIFEST, STAGES, Artefact


def write_published(spec, root, output_folder):
    """Write NAME.csv, NAME.md and NAME.tex of `spec` below `output_folder`; what is not finished counts as not run.

    A line per figure, but NAME.tex has the shape of the paper's table.

    `root` (a Path) is the folder that holds results/. Raises ValueError when a manifest is torn or edited.
    """
    table = read_published(root / spec["file"])
    lines = make_lines(table, spec, root)
    frame = pd.DataFrame(lines).drop(columns=["row", "decimals", "planned seeds"])
    frame["stages"] = frame["stages"].str.join(" ")
    text, notes = cells(table, lines), footer(table, spec, lines, root)
    shaped = paper_shape(lines, [figure_cells(line) for line in lines])
    paper = Printed(spec["name"], table.title, shaped, [LEGEND, *notes], wide=True)
    write_forms(Printed(spec["name"], table.title, text, notes), frame, output_folder, paper)


def make_lines(table, spec, root):
    """The lines of a table (`make_line`): those of this configuration, or all when it is none of the table's.

    Left out: figures that the paper does not print, except for a system of ours of which no figure is published at all.
    """
    planned = {(line["row"], line["column"]): line for line in spec["lines"]}
    here = any(column.configuration == spec["configuration"] for column in table.columns)
    lines = []
    for place, row in enumerate(table.rows):
        unpublished = row.ours is not None and not any(value is not None for value in row.values)
        for number, column in enumerate(table.columns):
            if here and column.configuration not in (None, spec["configuration"]):
                continue
            if row.values[number] is not None or (unpublished and column.configuration):
                line = make_line(table, row, column, number, planned.get((place, number), {}), root)
                lines.append(line | {"row": place})
    return lines


def make_line(table, row, column, number, planned, root):
    """One published figure and what we have beside it, in the table's units; None: there is none (dict).

    planned: the specification's line, empty when nothing of it is planned.
    """
    published, runs, released = row.values[number], planned.get("ours", []), planned.get("released", [])
    decimals = max(column.decimals if column.decimals is not None else table.decimals, own_decimals(published))
    found, theirs = (figures(table, row, column, those, root) for those in (runs, released))
    ours, sd = float(np.mean(found)) if found else None, float(np.std(found, ddof=1)) if len(found) > 1 else None
    line = {"system": row.system, "group": row.group, "figure": column.name, "configuration": column.configuration}
    line |= {"split": column.split, "measure": column.measure, "published": published}
    line |= {"released": theirs[0] if theirs else None, "ours": ours, "ours sd": sd, "seeds": len(found)}
    line["difference"] = difference(published, ours, decimals)
    cited = row.ours_at(column) is None
    line["verdict"] = "cited" if cited else verdict(published, ours, decimals, table.tolerance.value)
    line["experiment"] = experiment(row, column)
    line["stages"] = [name for run in runs + released for names in run.values() for name in names]
    return line | {"decimals": decimals, "planned seeds": len(runs)}


def experiment(row, column):
    """The experiment that fills a cell, and after which episode; "cited" where nothing here repeats it."""
    ours = row.ours_at(column)
    if ours is None:
        return "cited"
    name, episode = ours.experiment, ours.episode
    if name == "BM25" or row.figure:
        return name
    return f"{name}, {'last episode' if episode == 'last' else f'episode {episode}'}"


def own_decimals(value):
    """How many decimals a figure is printed with at least: 0.09 → 2, 38 → 0."""
    text = f"{value:.10f}".rstrip("0") if value is not None else ""
    return len(text.partition(".")[2])


def difference(published, ours, decimals):
    """Ours minus published, as printed; None unless there are both."""
    return None if None in (published, ours) else round(round(ours, decimals) - published, decimals)


def verdict(published, ours, decimals, tolerance):
    """What a line shows: "exact" when ours, rounded as printed, is the published figure; "within tolerance", or
    "off (above)" and "off (below)", by the difference of the same rounded figures; "not run" without a figure of ours,
    "no published figure" with one but nothing to compare it with. Too good is off as much as too bad is.
    """
    if ours is None:
        return "not run"
    if published is None:
        return "no published figure"
    above = difference(published, ours, decimals)
    if abs(above) <= tolerance:
        return "within tolerance" if above else "exact"
    return "off (above)" if above > 0 else "off (below)"


def cells(table, lines):
    """The lines (`make_line`) as text (DataFrame); the column Group is there when a row has one."""
    texts = [figure_cells(line) for line in lines]
    columns = {
        "Group": [line["group"] or "" for line in lines],
        "System": [line["system"] for line in lines],
        "Figure": [line["figure"] for line in lines],
        "Published": [text["published"] for text in texts],
        "Released checkpoint": [text["released"] for text in texts],
        "Ours": [text["ours"] for text in texts],
        "Difference": [number_cell(line, "difference", sign="+") for line in lines],
        "Verdict": [line["verdict"] for line in lines],
        "Experiment": [line["experiment"] for line in lines],
    }
    if not any(columns["Group"]):
        del columns["Group"]
    if not any(row.released for row in table.rows):
        del columns["Released checkpoint"]
    return pd.DataFrame(columns)


def figure_cells(line):
    """The figures of a line as text: {"published", "released", "ours"}."""
    published = number_cell(line, "published", "not reported")
    return {"published": published, "released": number_cell(line, "released"), "ours": our_cell(line)}


def number_cell(line, name, absent=NONE, sign=""):
    """A number of a line with the decimals of its figure, as text."""
    return absent if line[name] is None else f"{line[name]:{sign}.{line['decimals']}f}"


def our_cell(line):
    """Our figure, with its deviation over seeds, and how many of the planned seeds it has when that is not all."""
    deviation = "" if line["ours sd"] is None else f" ± {number_cell(line, 'ours sd')}"
    partial = 0 < line["seeds"] < line["planned seeds"]
    return number_cell(line, "ours") + deviation + partial * f" ({line['seeds']} of {line['planned seeds']} seeds)"


def footer(table, spec, lines, root):
    """What a reader must know beside the figures: a list of sentences."""
    filling = {column.configuration for column in table.columns if column.configuration}
    others = sorted(filling - {spec["configuration"]})
    notes = [f"Published: {table.source}.", count_verdicts(lines)]
    if not filling:
        return [*notes, *table.notes]
    if len(others) == len(filling):
        notes.append(f"Only the configuration {' or '.join(others)} can fill this table.")
    elif others:
        notes.append(f"Figures of {' and '.join(others)}: {', '.join(f'results/published/{name}' for name in others)}.")
    notes.append(f"Tolerance ±{table.tolerance.value:g}, above and below: {table.tolerance.reason}.")
    if any(line["ours sd"] is not None for line in lines):
        notes.append("Mean ± standard deviation over seeds.")
    if any(row.released for row in table.rows):
        notes.append("Released checkpoint: the system as its makers gave it, under our evaluation.")
    if any(line["ours"] is not None or line["released"] is not None for line in lines):
        notes.append(measured_on(Artefact(root / STAGES / spec["collection"]).facts, lines))
    timed = any(table.kind_of(column) in ("hours", "costs") for column in table.columns)
    return notes + table.notes + (spent_on(lines, root) if timed else [])


def count_verdicts(lines):
    """How many of the lines that something here repeats were run, and with which verdict; how many are only cited."""
    counts = Counter(line["verdict"] for line in lines if line["ours"] is not None)
    ran, cited = sum(counts.values()), sum(line["verdict"] == "cited" for line in lines)
    if cited == len(lines):
        return "All figures are only cited: nothing here repeats these systems."
    parts = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
    text = f"{ran} of {len(lines) - cited} figures were run{': ' + parts if parts else ''}. "
    text += "What was not run is not reproduced."
    return text + (f" {cited} more {'figures are' if cited > 1 else 'figure is'} only cited." if cited else "")


def measured_on(facts, lines):
    """On what our figures were measured, in numbers: a toy collection must not be mistaken for the paper's."""
    splits = sorted({line["split"] or "train" for line in lines} & set(facts["splits"]))
    queries = ", ".join(f"{facts['splits'][split]['queries']:,} {split} queries" for split in splits)
    return f"Ours on collection {facts['corpus_digest'][:16]}: {count_passages(facts)}, {queries}."


def spent_on(lines, root):
    """Where our times were spent."""
    names = sorted({name for line in lines for name in line["stages"] if (root / STAGES / name / MANIFEST).is_file()})
    found = [Artefact(root / STAGES / name) for name in names]
    notes = [f"Times of ours on {machines(found)}."] if found else []
    if any(stage.manifest["provenance"]["attempt"] > 1 for stage in found):
        notes.append("Of a search that was interrupted only the time of its last attempt counts.")
    return notes
