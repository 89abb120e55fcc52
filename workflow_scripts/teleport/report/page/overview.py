"""The overview: tables whose cells lead to commands and stages, measures by episode, and the stages as they ran."""

from itertools import chain

import numpy as np
import pandas as pd
from scipy.stats import t

from teleport.report.figures import seconds
from teleport.report.table import baseline_text, columns, describe
from teleport.settings.section import RERANKED

NORMAL_95 = 1.96  # half the width of a 95 % interval, in standard errors
MISSING = object()


def overview_tables(reader, spec, folder):
    """The tables of the configuration (plain JSON), without rows that are not finished.

    [{name, title, columns, baseline, rows: [{system, episode, experiment, said, cells: {column: cell}}]}]; `folder` has
    the written tables, from which the p-values come: nothing is tested twice.
    """
    return [table_content(reader, spec, table, p_values(table, folder)) for table in spec["tables"]]


def p_values(table, folder):
    """The written table (frame with columns such as "RR@10 p"), or None when it is not there or of other rows."""
    path = folder / f"{table['name']}.csv"
    if not table["significance"] or not path.is_file():
        return None
    frame = pd.read_csv(path)
    same = [row["system"] for row in table["rows"]] == frame.get("system", pd.Series()).tolist()
    return frame if same else None


def table_content(reader, spec, table, tested):
    rows, above = [], None
    for number, row in enumerate(table["rows"]):
        if not all(reader.finished(name) for name in chain(*row["runs"].values())):
            continue
        experiment = experiment_of(spec, row)
        named = describe(row, table["columns"], reader.artefact)
        said = {name: named[name] for name in table["columns"]}
        if "seconds" in said:
            said["seconds"] = None if np.isnan(said["seconds"]) else round(said["seconds"])
        cells = {}
        for column, (split, measure) in columns(table).items():
            if split in row["runs"]:
                cells[column] = cell(reader, row["runs"][split], split.removesuffix(RERANKED), measure)
                p = None if tested is None else tested.get(f"{column} p", pd.Series([np.nan] * len(tested)))[number]
                cells[column]["p"] = None if p is None or np.isnan(p) else float(p)
        content = {"system": row["system"], "episode": row["episode"], "said": said, "cells": cells}
        content |= {"experiment": experiment, "differs": differences(spec, experiment, above)}
        rows.append(content)
        above = experiment or above
    test = table["significance"]
    used = {"baseline": baseline_text(test), "level": test["level"]} if test and tested is not None else None
    said = {"name": table["name"], "title": table["title"], "columns": list(columns(table))}
    return said | {"test": used, "rows": rows}


def cell(reader, names, split, measure):
    """A figure with its intervals: mean, sd over seeds, half the widths of 95 % intervals over queries and seeds."""
    by_seed = np.array([reader.scores(name, split)[measure] for name in names])
    by_seed = by_seed[:, ~np.isnan(by_seed).all(axis=0)]
    queries, seeds = by_seed.mean(axis=0), by_seed.mean(axis=1)
    said = {"mean": float(seeds.mean()), "queries": len(queries), "seeds": [float(value) for value in seeds]}
    said["over_queries"] = float(NORMAL_95 * queries.std(ddof=1) / np.sqrt(len(queries))) if len(queries) > 1 else None
    several = len(seeds) > 1
    said["sd"] = float(seeds.std(ddof=1)) if several else None
    said["over_seeds"] = float(t.ppf(0.975, len(seeds) - 1) * said["sd"] / np.sqrt(len(seeds))) if several else None
    return said | {"stages": names}


def experiment_of(spec, row):
    """The name of the experiment whose checkpoint a row scores; None for BM25 and runs from elsewhere."""
    names = set(chain(*row["runs"].values()))
    for experiment in spec["experiments"]:
        runs = [run for seed in experiment["seeds"] for run in seed["runs"]]
        if experiment["label"] == row["system"] and any(names & set(run.values()) for run in runs):
            return experiment["name"]
    return None


def differences(spec, name, above):
    """[[key, value, value of the row above]] of the settings in which two experiments differ (None: not set)."""
    settings = {experiment["name"]: experiment["settings"] for experiment in spec["experiments"]}
    if name is None or above is None or name == above:
        return []
    mine, other = settings[name], settings[above]
    keys = sorted({*mine, *other})
    return [[k, mine.get(k), other.get(k)] for k in keys if mine.get(k, MISSING) != other.get(k, MISSING)]


def stages_as_run(reader, spec):
    """{stage: what the page says of it} of all finished stages of the configuration (plain JSON)."""
    finished = {name: planned for name, planned in spec["stages"].items() if reader.finished(name)}
    return {name: stage_content(reader, name, planned) for name, planned in finished.items()}


def stage_content(reader, name, planned):
    manifest = reader.artefact(name).manifest
    provenance = manifest.get("provenance", {})
    hardware = provenance.get("hardware", {})
    said = {"users": planned["users"], "label": planned["label"], "inputs": manifest.get("inputs", {})}
    said["seconds"] = seconds(reader.artefact(name)) if "wall_seconds" in provenance else None
    said |= {"started": provenance.get("started"), "code": provenance.get("code")}
    said["commit"] = provenance.get("git_commit")
    said |= {"memory": provenance.get("peak_memory_bytes"), "machine": hardware.get("gpu") or hardware.get("processor")}
    said["bytes"] = sum(file["bytes"] for file in manifest["files"].values())
    return said | {"settings": manifest["settings"], "facts": manifest["facts"]}


def dag_of(reader, trajectory):
    """[[episode, link without its folders, stage, finished]] of one experiment under one seed, in order."""
    rows = trajectory["rows"]
    return [[row["episode"], row["link"].split("/")[-1], row["stage"], reader.finished(row["stage"])] for row in rows]
