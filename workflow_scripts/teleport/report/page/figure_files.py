"""Charts of the page as PDF and PNG for a paper, as wide as a column."""

from collections import Counter
from pathlib import Path

import vl_convert

from teleport.report.page.charts import SOURCE_COLOURS, charts
from teleport.report.page.forgetting import Traces, forgetting_of
from teleport.report.page.negatives import negatives_of
from teleport.report.page.overview import table_content, training_curves
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
    reader, figures = Reader(root, spec["collection"]), {}
    figures["episodes"] = "episodes", episode_rows(reader, spec)
    figures["forgetting"] = "rates", forgetting_rows(reader, spec["experiments"])
    for name, seed in ((experiment["name"], experiment["seeds"][0]) for experiment in spec["experiments"]):
        negatives = negatives_of(reader, seed, spec["flags"]) or {"episodes": [], "pools": []}
        figures[f"loss-{name}"] = "curve", loss_rows(reader, seed)
        figures[f"sources-{name}"] = "sources", source_rows(negatives)
        figures[f"first-{name}"] = "first", first_rows(negatives, "trained")
        figures[f"mined-{name}"] = "first", first_rows(negatives, "mined")
    drawn = {name: figure for name, figure in figures.items() if figure[1]}
    for name, (chart, rows) in drawn.items():
        write_figure(chart, rows, Path(output_folder) / name)
    return list(drawn)


def episode_rows(reader, spec):
    """A row per episode of every system with several: system, episode, mean and its 95 % interval over queries."""
    table = table_content(reader, spec, spec["tables"][0])
    column, rows = table["columns"][0], []
    episodes = Counter(row["system"] for row in table["rows"])
    for row in [row for row in table["rows"] if column in row["cells"] and episodes[row["system"]] > 1]:
        mean, half = row["cells"][column]["mean"], row["cells"][column]["over_queries"] or 0.0
        named = {"system": f"{row['system']}, {column}", "episode": row["episode"]}
        rows.append(named | {"mean": mean, "low": mean - half, "high": mean + half})
    return rows


def loss_rows(reader, seed):
    """A row per step: episode, seed, step and value of the loss; the steps of all episodes one after another."""
    return [
        {"episode": curve["episode"], "seed": seed["seed"], "step": step + curve["offset"], "value": loss}
        for curve in training_curves(reader, seed)
        for step, loss in zip(curve["steps"], curve["columns"].get("loss", ()), strict=False)
    ]


def forgetting_rows(reader, experiments):
    """A row per experiment (first seed) and step: label, step, rate."""
    traces = Traces(reader)
    return [
        {"label": experiment["label"], "step": step, "rate": rate}
        for experiment in experiments
        for content in forgetting_of(traces, experiment["seeds"][0], [], {})
        for step, rate in zip(content["checkpoints"][1:], content["rates"], strict=True)
    ]


def source_rows(content):
    """A row per episode and source; stacked in the order of their colours."""
    order = {name: number for number, name in enumerate(SOURCE_COLOURS)}
    return [
        {"episode": episode, "source": source, "count": count, "order": order.get(source, len(order))}
        for episode, pool in zip(content["episodes"], content["pools"], strict=True)
        for source, count in pool["sources"].items()
    ]


def first_rows(content, level):
    """A row per episode and episode of first encounter; level: trained or mined, of which there may be none."""
    episodes, lines = content["episodes"], content.get(level, {"first": ()})["first"]
    return [
        {"episode": episode, "first": first, "count": count, "order": first}
        for episode, line in zip(episodes, lines, strict=False)
        for first, count in zip(episodes, line, strict=True)
        if count
    ]


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
