"""Figures for a paper, as wide as a column: charts of the page, and the `figures` of a configuration.

Charts as PDF and PNG, those of `figures` with their CSV; tables as Markdown, LaTeX and CSV.
"""

import re
from pathlib import Path

import pandas as pd
import vl_convert

from teleport.refusal import Refusal
from teleport.report.charts import Figure, charts
from teleport.report.page.contents import page_contents
from teleport.report.page.curves import training_curves
from teleport.report.page.drawings import episode_figures, negatives_figures, rate_figure, training_figures
from teleport.report.page.forgetting import Traces, forgetting_of
from teleport.report.page.negatives import negatives_of
from teleport.report.page.overview import page_table
from teleport.report.paper.figures import bars, cases, curves, histogram, maps, scores
from teleport.report.paper.plan import planned_figures
from teleport.report.render import csv_text, write_forms
from teleport.report.stages import Reader
from teleport.running.files import write_bytes, write_text

KINDS = {"map": maps, "scores": scores, "curves": curves, "bars": bars, "histogram": histogram, "cases": cases}
COLUMN_POINTS = 219  # of the ACL style
PNG_SCALE = 4  # pixels per point: 288 dpi
FILES = {"Loss.": "loss", "Sources.": "sources", "Since when: the pool.": "first"}
FILES |= {"Since when: all that was mined.": "mined"}  # figures of an experiment by their title
SIZES = {"labelFontSize": 8, "titleFontSize": 8}


def write_figures(plan, root, output_folder):
    """Write NAME.pdf and NAME.png of the figures of a plan's finished stages; returns their names.

    Per experiment, under its first seed: `sources-EXPERIMENT` and `first-EXPERIMENT` (ANCE-Tele Figure 9),
    `mined-EXPERIMENT` (Figures 5, 10) and `loss-EXPERIMENT` (Figure 2); of all experiments `episodes`, the first column
    of the main table (Figures 2, 8a), and `forgetting` (Figure 4), on training queries.
    """
    contents = page_contents(plan)
    reader = Reader(root, contents["collection"])
    traces, sets, figures = Traces(reader), {}, {}
    for at, figure in enumerate(episode_figures(page_table(reader, contents, contents["tables"][0])), 1):
        figures["episodes" if at == 1 else f"episodes-{at}"] = figure
    for experiment in contents["experiments"]:
        name, seed = experiment["name"], experiment["seeds"][0]
        for forgetting in forgetting_of(traces, seed, [], {}):
            sets.setdefault(forgetting["measure"], {}).setdefault(experiment["label"], []).append(forgetting)
        negatives = negatives_of(reader, seed)
        drawn = training_figures(training_curves(reader, [seed])) + (negatives_figures(negatives) if negatives else [])
        figures |= {f"{FILES[each.title]}-{name}": each for each in drawn if each.title in FILES}
    for at, (measure, by_label) in enumerate(sets.items(), 1):  # searches of another depth have another measure
        if (figure := rate_figure(by_label, measure, contents["ghosts"])).rows:
            figures["forgetting" if at == 1 else f"forgetting-{at}"] = figure
    for name, figure in figures.items():
        write_figure(figure, Path(output_folder) / name)
    return write_paper_figures(planned_figures(plan), reader, Path(output_folder), [*figures])


def write_paper_figures(figures, reader, folder, written):
    """Write the finished ones of `figures` (see plan.py) to a folder; returns the names that are `written` already, and
    theirs. Raises Refusal for two files of one name.

    A file is called NAME-SUFFIX, and NAME if the figure is one file.
    """
    for name, figure in figures.items():
        made = KINDS[figure["kind"]](reader, name, figure)
        parts = [file_part(suffix) for suffix in made]
        for number, (part, content) in enumerate(zip(parts, made.values(), strict=True), 1):
            unlike = part if part and parts.count(part) == 1 else "-".join(filter(None, [part, str(number)]))
            file = name if len(made) == 1 else f"{name}-{unlike}"
            if file in written:
                raise Refusal(f"figures.{name}: another figure is called {file} already. Rename it.")
            if isinstance(content, Figure):
                write_figure(content, folder / file)
                write_text(folder / f"{file}.csv", csv_text(pd.DataFrame(content.rows)))
            else:
                table, values = content
                write_forms(table._replace(name=file), values, folder)
            written.append(file)
    return written


def file_part(text):
    """A label as a part of a file's name: "ADORE + STAR" → "adore-star"."""
    return re.sub(r"[^a-z0-9]+", "-", str(text).lower()).strip("-")


def write_figure(figure, path):
    """Write PATH.pdf and PATH.png of a `Figure`."""
    chart = figure.spec | {"width": COLUMN_POINTS, "background": "white"}
    chart |= {"autosize": {"type": "fit-x", "contains": "padding"}}
    config = chart["config"]
    chart["config"] = config | {key: config[key] | SIZES for key in ("axis", "legend")}
    chart["config"]["text"] = config["text"] | {"fontSize": 8}
    if not isinstance(charts()[figure.chart]["height"], dict):
        chart["height"] = COLUMN_POINTS * 0.62
        if isinstance(chart.get("mark"), dict) and chart["mark"]["type"] == "bar":
            chart["mark"] = chart["mark"] | {"size": 18}
    write_bytes(path.with_name(f"{path.name}.pdf"), vl_convert.vegalite_to_pdf(chart))
    write_bytes(path.with_name(f"{path.name}.png"), vl_convert.vegalite_to_png(chart, scale=PNG_SCALE))
