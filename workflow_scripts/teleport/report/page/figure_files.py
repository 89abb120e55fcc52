"""Charts of the page as PDF and PNG for a paper, as wide as a column."""

from pathlib import Path

import vl_convert

from teleport.report.page.chart import SOURCE_COLOURS
from teleport.report.page.charts import charts
from teleport.report.page.curves import training_curves
from teleport.report.page.forgetting import Traces, forgetting_of
from teleport.report.page.negatives import negatives_of
from teleport.report.page.overview import table_content
from teleport.report.page.reader import Reader

COLUMN_POINTS = 219  # of the ACL style
PNG_SCALE = 4  # pixels per point: 288 dpi
FONT = {"labelFontSize": 8, "titleFontSize": 8, "titleFontWeight": "normal"}
CONFIG = {"axis": FONT, "legend": FONT | {"symbolSize": 40}, "view": {"stroke": None}}


def write_figures(spec, root, output_folder):
    """Write NAME.pdf and NAME.png of the figures of a specification's finished stages; returns their names.

    Per experiment, under its first seed: `sources-EXPERIMENT` and `first-EXPERIMENT` (ANCE-Tele Figure 9),
    `mined-EXPERIMENT` (Figures 5, 10) and `loss-EXPERIMENT` (Figure 2); of all experiments `episodes`, the first column
    of the main table (Figures 2, 8a), and `forgetting` (Figure 4), on training queries.
    """
    reader, drawn = Reader(root, spec["collection"]), {}
    if scores := episode_rows(reader, spec):
        drawn["episodes"] = ("episodes", scores)
    if rates := forgetting_rows(reader, spec["experiments"]):
        drawn["forgetting"] = ("rates", rates)
    for experiment in spec["experiments"]:
        if losses := loss_rows(reader, experiment["seeds"][0]):
            drawn[f"loss-{experiment['name']}"] = ("curve", losses)
        if said := negatives_of(reader, experiment["seeds"][0], spec["flags"]):
            drawn[f"sources-{experiment['name']}"] = ("sources", source_rows(said))
            for name, level in (("first", "trained"), ("mined", "mined")):
                if level in said:
                    drawn[f"{name}-{experiment['name']}"] = ("first", first_rows(said, level))
    for name, (chart, rows) in drawn.items():
        write_figure(chart, rows, Path(output_folder) / name)
    return list(drawn)


def episode_rows(reader, spec):
    """A row per episode of every system with several: system, episode, mean and its 95 % interval over queries."""
    table = table_content(reader, spec, spec["tables"][0], None)
    column, rows = table["columns"][0], []
    for row in table["rows"]:
        cell = row["cells"].get(column)
        if cell and sum(other["system"] == row["system"] for other in table["rows"]) > 1:
            half = cell["over_queries"] or 0.0
            scores = {"mean": cell["mean"], "low": cell["mean"] - half, "high": cell["mean"] + half}
            rows.append({"system": f"{row['system']}, {column}", "episode": row["episode"]} | scores)
    return rows


def loss_rows(reader, seed):
    """A row per step: episode, seed, step and value of the loss; the steps of all episodes one after another."""
    rows = []
    for curve in training_curves(reader, seed):
        if "loss" in curve["columns"]:
            of_step = {"episode": curve["episode"], "seed": seed["seed"]}
            pairs = zip(curve["steps"], curve["columns"]["loss"], strict=True)
            rows += [of_step | {"step": step + curve["offset"], "value": loss} for step, loss in pairs]
    return rows


def forgetting_rows(reader, experiments):
    """A row per experiment (first seed) and step: label, step, rate."""
    traces, rows = Traces(reader), []
    for experiment in experiments:
        for said in forgetting_of(traces, experiment["seeds"][0], [], {}):
            steps = zip(said["checkpoints"][1:], said["rates"], strict=True)
            rows += [{"label": experiment["label"], "step": step, "rate": rate} for step, rate in steps]
    return rows


def source_rows(said):
    """A row per episode and source; stacked in the order of their colours."""
    pools = zip(said["episodes"], said["pools"], strict=True)
    counts = [(episode, *counted) for episode, pool in pools for counted in pool["sources"].items()]
    place = {name: number for number, name in enumerate(SOURCE_COLOURS)}
    return [{"episode": e, "source": s, "count": n, "order": place.get(s, len(place))} for e, s, n in counts]


def first_rows(said, level):
    """A row per episode and episode of first encounter."""
    episodes, table = said["episodes"], said[level]["first"]
    cells = [(e, f, n) for e, line in zip(episodes, table, strict=True) for f, n in zip(episodes, line, strict=True)]
    return [{"episode": e, "first": f, "count": n, "order": f} for e, f, n in cells if n]


def write_figure(name, rows, path):
    """Write PATH.pdf and PATH.png of the chart `name` with some rows."""
    chart = charts()[name].to_dict()
    chart |= {"datasets": {"values": rows}, "width": COLUMN_POINTS, "background": "white"}
    chart |= {"autosize": {"type": "fit-x", "contains": "padding"}, "config": CONFIG}
    if name == "sources":
        chart["encoding"]["color"]["legend"]["values"] = list(dict.fromkeys(row["source"] for row in rows))
    if not isinstance(chart["height"], dict):
        chart["height"] = COLUMN_POINTS * 0.62
        if chart.get("mark", {}).get("type") == "bar":
            chart["mark"] |= {"size": 18}
    else:
        del chart["autosize"]  # a height of steps fits no width: the bars alone are as wide as the column
        chart["width"] = COLUMN_POINTS * 0.7
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f"{path.name}.pdf").write_bytes(vl_convert.vegalite_to_pdf(chart))
    path.with_name(f"{path.name}.png").write_bytes(vl_convert.vegalite_to_png(chart, scale=PNG_SCALE))
