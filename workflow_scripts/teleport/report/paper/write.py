"""What `figures` of a configuration asks for: charts as PDF, PNG and CSV, tables as Markdown, LaTeX and CSV."""

import re

import pandas as pd

from teleport.report.paper.cases import cases
from teleport.report.paper.queries import maps, scores
from teleport.report.paper.systems import bars, curves, histogram
from teleport.report.render import csv_text, write_forms
from teleport.running.files import write_text

CHARTS = {"map": maps, "scores": scores, "curves": curves, "bars": bars, "histogram": histogram}


def write_paper_figures(spec, reader, folder, write_figure):
    """Write the finished ones of a specification's `figures` (see page_specs.py) to a folder; returns their names.

    A file is called NAME-SUFFIX, and NAME where the figure is one file. write_figure: draws a `Figure` to a path.
    """
    written = []
    for name, figure in spec["figures"].items():
        if figure["kind"] == "cases":
            made = cases(reader, name, figure, spec["against"])
        else:
            made = CHARTS[figure["kind"]](reader, name, figure)
        for suffix, content in made.items():
            file = name if len(made) == 1 else f"{name}-{file_part(suffix)}"
            if figure["kind"] == "cases":
                write_forms(content[0]._replace(name=file), content[1], folder)
            else:
                write_figure(content, folder / file)
                write_text(folder / f"{file}.csv", csv_text(pd.DataFrame(content.rows)))
            written.append(file)
    return written


def file_part(text):
    """A label as a part of a file's name: "ADORE + STAR" → "adore-star"."""
    return re.sub(r"[^a-z0-9]+", "-", str(text).lower()).strip("-")
