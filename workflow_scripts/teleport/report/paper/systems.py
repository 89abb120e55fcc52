"""Kinds of `figures` that are of several systems: curves by step, bars of a published table, histograms of errors."""

from itertools import accumulate

from teleport.report.charts import Figure
from teleport.report.curves import column_points, training_curves
from teleport.report.published import read_published
from teleport.report.published_table import make_lines


def curves(reader, name, figure):
    """{suffix: Figure}: a chart of a column of the trainings, and one of a measure after every episode."""
    by_step, by_episode = [], []
    for label, seeds in figure["behind"]:
        points = training_curves(reader, seeds if figure["column"] else ())
        if figure["episode"] is not None:
            points = points[points["episode"] == figure["episode"]]
        for point in column_points(points, figure["column"]):
            named = {"label": label, "seed": point["seed"], "step": point["step"]}
            by_step.append(named | {"value": point["value"], "part": point["episode"]})
        for seed in seeds:
            named = {"label": label, "seed": seed["seed"]}
            by_episode += [named | point for point in measure_points(reader, seed, figure["measure"])]
    text = "By the number of steps, all episodes one after another."
    figures = {figure["column"]: Figure("lines", by_step, f"{figure['column']}.", text)}
    figures[figure["measure"]] = Figure("lines", by_episode, f"{figure['split']} {figure['measure']}.", text)
    return {suffix: each for suffix, each in figures.items() if suffix and each.rows}


def measure_points(reader, seed, measure):
    """Yield {step, value, part} of a measure of the checkpoints of a seed, by the steps of all trainings before."""
    trains = [each["train"] for each in seed["episodes"]]
    taken = [reader.facts(train)["steps"] if reader.finished(train) else 0 for train in trains]
    for step, run in zip(accumulate(taken, initial=0), seed["runs"], strict=False):
        if reader.finished(run):
            yield {"step": step, "value": reader.facts(run)["means"][measure], "part": 0}


def bars(reader, name, figure):
    """{suffix: Figure}: a chart for each column of a published table of which something is finished."""
    spec, figures = figure["behind"], {}
    lines = make_lines(read_published(reader.root / spec["file"]), spec, reader)
    for column in dict.fromkeys(line["figure"] for line in lines if line["ours"] is not None):
        rows = [
            {"group": line["group"] or line["system"], "system": line["system"], "value": line[of], "paper": paper}
            for line in lines
            for of, paper in (("ours", False), ("published", True))
            if line["figure"] == column and line["verdict"] != "cited" and line[of] is not None
        ]
        figures[column] = Figure("bars", rows, f"{column}.", "Bars: here; diamonds: the paper's own.")
    return figures


def histogram(reader, name, figure):
    """{suffix: Figure}: for each system the shares of queries, and of all errors, by the errors of a query."""
    figures = {}
    for label, stage in figure["behind"]:
        decades = reader.facts(stage)["histogram"] if reader.finished(stage) else []
        rows = [
            {"errors": errors_text(decade["from"]), "of": of, "share": decade[of]}
            for decade in decades
            for of in ("queries", "errors")
        ]
        if rows:
            figures[label] = Figure("histogram", rows, "Pairwise errors.", f"{label}.", "STAR and ADORE, Figure 3")
    return figures


def errors_text(lowest):
    """The errors of a decade, such as "10-99" (text)."""
    return f"{lowest:,}-{10 * lowest - 1:,}" if lowest else "0"
