"""A paper's table with our figures beside its own, from whatever has been run.

A table's specification, JSON made by the plan:

    {"name": "ance-tele-table-3", "file": "config/published/ance-tele-table-3.yaml", "sha256": "…",
     "configuration": "marco", "collection": "collection/KEY",
     "lines": [{"row": 0, "column": 0, "ours": [{"evaluate": ["evaluate/KEY"]} per seed], "released": […]}]}

`lines` holds only those that the configuration can fill.
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from teleport.report.figures import figures
from teleport.report.published import Column, Row, read_published
from teleport.report.published_render import csv_text, footer, latex, markdown
from teleport.runtime.files import write_text

EXACT, WITHIN, NOT_RUN, NOTHING_PUBLISHED = "exact", "within tolerance", "not run", "no published figure"


@dataclass(frozen=True)
class Line:
    """One published figure and what we have beside it, in the table's units; None: there is none."""

    row: Row
    column: Column
    decimals: int
    published: float | None
    released: float | None
    ours: float | None
    deviation: float | None
    seeds: int
    planned_seeds: int
    verdict: str
    stages: tuple

    @property
    def difference(self):
        """Ours minus published, as printed."""
        both = self.ours is not None and self.published is not None
        return round(round(self.ours, self.decimals) - self.published, self.decimals) if both else None


def write_published(spec, root, output_folder):
    """Write NAME.csv, NAME.md and NAME.tex of `spec` below `output_folder`; stages that are not finished count as
    not run. `root` is the folder that holds results/. Raises ValueError when a manifest is torn or edited.
    """
    root, stem = Path(root), Path(output_folder) / spec["name"]
    table = read_published(root / spec["file"])
    lines = make_lines(table, spec, root)
    notes = footer(table, spec, lines, root)
    for suffix, text in {
        "csv": csv_text(lines),
        "md": markdown(table, lines, notes),
        "tex": latex(table, spec["name"], lines, notes),
    }.items():
        write_text(f"{stem}.{suffix}", text)


def make_lines(table, spec, root):
    """The lines of a table: those of this configuration, or all when it is none of the table's.

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
    """One `Line`. planned: the specification's line, empty when nothing of it is planned."""
    published, runs = row.values[number], planned.get("ours", [])
    decimals = max(column.decimals if column.decimals is not None else table.decimals, own_decimals(published))
    ours = pd.Series(figures(table, row, column, runs, root), dtype=float)
    released = figures(table, row, column, planned.get("released", []), root)
    mean = float(ours.mean()) if len(ours) else None
    return Line(
        row,
        column,
        decimals,
        published,
        released[0] if released else None,
        mean,
        float(ours.std(ddof=1)) if len(ours) > 1 else None,
        len(ours),
        len(runs),
        verdict(published, mean, decimals, table.tolerance.value),
        tuple(n for key in ("ours", "released") for run in planned.get(key, []) for ns in run.values() for n in ns),
    )


def own_decimals(value):
    """How many decimals a figure is printed with at least: 0.09 → 2, 38 → 0."""
    text = f"{value:.10f}".rstrip("0") if value is not None else ""
    return len(text.partition(".")[2])


def verdict(published, ours, decimals, tolerance):
    """What a line shows: "exact" when ours, rounded as printed, is the published figure; "within tolerance", or
    "off (above)" and "off (below)", by the difference of the same rounded figures; "not run" without a figure of ours,
    "no published figure" with one but nothing to compare it with. Too good is off as much as too bad is.
    """
    if ours is None:
        return NOT_RUN
    if published is None:
        return NOTHING_PUBLISHED
    difference = round(round(ours, decimals) - published, decimals)
    if difference == 0:
        return EXACT
    if abs(difference) <= tolerance:
        return WITHIN
    return "off (above)" if difference > 0 else "off (below)"
