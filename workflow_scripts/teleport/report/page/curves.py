"""Training curves: every column that a training left beside its steps, thinned to what a screen can show."""

import numpy as np
import pandas as pd

MOST_POINTS = 400  # of one curve


def training_curves(reader, trajectory):
    """[{episode, stage, file, offset, points, steps, columns: {name: [values]}}] of the finished trainings of one seed.

    A file is any table of a train stage with a column `step`: losses.tsv, and what else a training writes per step.
    `offset` + step counts the steps of all episodes, one after another; a segment that goes on with the training before
    it (its first step is not 0 or 1) has counted them since that one's first.
    """
    found, offsets, ends = [], {}, {}
    for number, episode in enumerate(trajectory["episodes"], 1):
        if not reader.finished(episode["train"]):
            continue
        artefact = reader.artefact(episode["train"])
        for file in sorted(name for name in artefact.manifest["files"] if name.endswith(".tsv") and "/" not in name):
            curve = read_curve(artefact.path(file))
            if curve is not None:
                if curve["steps"][0] <= 1:
                    offsets[file] = ends.get(file, 0)
                offset = offsets.setdefault(file, 0)
                ends[file] = offset + curve["steps"][-1]
                found.append({"episode": number, "stage": episode["train"], "file": file, "offset": offset} | curve)
    return found


def read_curve(path):
    """{points, steps, columns} of a table with a column `step`; None for another one."""
    table = pd.read_csv(path, sep="\t")
    if "step" not in table or table.empty:
        return None
    kept = table.iloc[thinned(len(table))].select_dtypes("number").astype(float)
    steps = [int(step) for step in kept.pop("step")]
    columns = {name: [float(f"{value:.6g}") if np.isfinite(value) else None for value in kept[name]] for name in kept}
    return {"points": len(table), "steps": steps, "columns": columns}


def thinned(number):
    """At most MOST_POINTS of `number` lines, evenly spaced, with the first and the last one (int64)."""
    return np.unique(np.linspace(0, number - 1, min(number, MOST_POINTS)).round().astype(np.int64))
