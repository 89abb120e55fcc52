"""The curves of the figures that trainings wrote step by step, with a bounded number of points."""

import numpy as np
import pandas as pd

MOST_POINTS = 400  # of one curve
NAMED = ["episode", "seed", "step", "lines"]  # keys of a point besides the columns of its training


def training_curves(reader, trajectories):
    """A line per point of the finished trainings of some seeds (DataFrame): NAMED, and every column that they wrote.

    It reads each table of a train stage that has a column `step`: losses.tsv, and others written per step. `step`
    counts the steps of all episodes, one after another. A segment that continues the training before it (its first step
    is not 0 or 1) already counts from that training's first step. lines: of its table, before it was thinned.
    """
    curves = []
    for trajectory in trajectories:
        offsets, ends = {}, {}
        for number, stage in enumerate((each["train"] for each in trajectory["episodes"]), 1):
            files = reader.artefact(stage).manifest["files"] if reader.finished(stage) else ()
            for file in sorted(name for name in files if name.endswith(".tsv") and "/" not in name):
                curve = read_curve(reader.artefact(stage).path(file))
                if not curve.empty:
                    if curve["step"].iloc[0] <= 1:
                        offsets[file] = ends.get(file, 0)
                    curve["step"] += offsets.setdefault(file, 0)
                    ends[file] = curve["step"].iloc[-1]
                    curves.append(curve.assign(episode=number, seed=trajectory["seed"]))
    return pd.concat(curves) if curves else pd.DataFrame(columns=NAMED)


def read_curve(path):
    """The numbers of a table with a column `step` (DataFrame with `lines`), at most MOST_POINTS of its lines, evenly
    spaced, with the first and the last one; empty for another table."""
    table = pd.read_csv(path, sep="\t")
    if "step" not in table or table.empty:
        return pd.DataFrame()
    kept = table.iloc[np.linspace(0, len(table) - 1, min(len(table), MOST_POINTS)).round().astype(np.int64)]
    return kept.select_dtypes("number").astype({"step": int}).assign(lines=len(table))


def column_points(curves, column):
    """The points of a column of `training_curves` that are finite: {episode, seed, step, value}, a dict each."""
    points = curves.reindex(columns=[*NAMED[:3], column]).replace([np.inf, -np.inf], np.nan).dropna()
    values = [float(f"{value:.6g}") for value in points[column]]
    return points[NAMED[:3]].assign(value=values).to_dict("records")
