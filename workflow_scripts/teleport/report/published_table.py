"""A paper's table with our figures beside its own, from whatever has been run.

A table's specification, JSON made by the plan:

    {"name": "ance-tele-table-3", "file": "config/published/ance-tele-table-3.yaml", "sha256": "…",
     "configuration": "marco", "collection": "collection/KEY",
     "lines": [{"row": 0, "column": 0, "ours": [{"evaluate": ["evaluate/KEY"]} per seed], "released": […]}]}

`lines` holds only those that the configuration can fill.
"""

import numpy as np
import pandas as pd

from teleport.report.figures import figures
from teleport.report.published import read_published
from teleport.report.published_text import printed
from teleport.report.render import write_forms


def write_published(spec, root, output_folder):
    """Write NAME.csv, NAME.md and NAME.tex of `spec` below `output_folder`; stages that are not finished count as
    not run. `root` (a Path) is the folder that holds results/. Raises ValueError when a manifest is torn or edited.
    """
    table = read_published(root / spec["file"])
    lines = make_lines(table, spec, root)
    frame = pd.DataFrame(lines).drop(columns=["decimals", "planned seeds"])
    frame["stages"] = frame["stages"].str.join(" ")
    write_forms(printed(table, spec, lines, root), frame, output_folder)


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
            if here and column.configuration != spec["configuration"]:
                continue
            if row.values[number] is not None or unpublished:
                lines.append(make_line(table, row, column, number, planned.get((place, number), {}), root))
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
    line["verdict"] = verdict(published, ours, decimals, table.tolerance.value)
    line["experiment"] = experiment(row)
    line["stages"] = [name for run in runs + released for names in run.values() for name in names]
    return line | {"decimals": decimals, "planned seeds": len(runs)}


def experiment(row):
    """The experiment that fills a row, and after which episode; "cited" for a system that nothing here repeats."""
    if row.ours is None:
        return "cited"
    name, episode = row.ours.experiment, row.ours.episode
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
