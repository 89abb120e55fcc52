"""The overview: tables and the stages as they ran; how far the stages are; the curves of trainings."""

from collections import Counter
from itertools import chain

import numpy as np
import pandas as pd
from scipy.stats import t

from teleport.report.figures import seconds
from teleport.report.marks import MARK, baseline_text, baselines
from teleport.report.table import columns, describe
from teleport.settings.section import RERANKED

NORMAL_95 = 1.96  # half the width of a 95 % interval, in standard errors
MOST_POINTS = 400  # of one curve


def overview(reader, spec, folder):
    """What every section needs (plain JSON): collection, tables, experiments, and all finished stages by name.

    folder: where the written tables are. An experiment has per seed its stages in order: [[episode, link without its
    folders, stage, finished]].
    """
    return {
        "configuration": spec["configuration"],
        "collection": reader.facts(spec["collection"]),
        "tables": overview_tables(reader, spec, folder),
        "stages": {n: stage_content(reader.artefact(n), s) for n, s in spec["stages"].items() if reader.finished(n)},
        "planned": len(spec["stages"]),
        "experiments": [
            {"name": e["name"], "label": e["label"], "seeds": [[s["seed"], dag_of(reader, s)] for s in e["seeds"]]}
            for e in spec["experiments"]
        ],
    }


def dag_of(reader, trajectory):
    rows = trajectory["rows"]
    return [[row["episode"], row["link"].split("/")[-1], row["stage"], reader.finished(row["stage"])] for row in rows]


def overview_tables(reader, spec, folder):
    """The tables of the configuration (plain JSON); folder: where the written tables are."""
    return [table_content(reader, spec, table, folder / f"{table['name']}.csv") for table in spec["tables"]]


def table_content(reader, spec, table, written=None):
    """{name, title, columns, test, rows: [{system, episode, said, differs, cells: {column: cell}}]} of finished rows.

    written: the table's CSV, which may be missing or of other rows. The p-values are its: nothing is tested twice. What
    has several marks, or levels by split, is marked in the table alone.
    """
    test, tested, rows, above = table["significance"], pd.DataFrame(), [], None
    systems = [row["system"] for row in table["rows"]]
    if test and written and written.is_file():
        tested = pd.read_csv(written)
    simple = list(baselines(test)) == [MARK] and not isinstance(test["level"], dict)
    if not simple or tested.get("system", pd.Series()).tolist() != systems:
        test, tested = None, pd.DataFrame()
    for number, row in enumerate(table["rows"]):
        if not all(map(reader.finished, chain(*row["runs"].values()))):
            continue
        experiment, said = experiment_of(spec, row), describe(row, table["columns"], reader)
        if "seconds" in said:
            said["seconds"] = None if np.isnan(said["seconds"]) else round(said["seconds"])
        cells = {}
        for column, (split, measure) in columns(table).items():
            if split in row["runs"]:
                p = tested[f"{column} p"][number] if f"{column} p" in tested else np.nan
                figure = cell(reader, row["runs"][split], split.removesuffix(RERANKED), measure)
                cells[column] = figure | {"p": None if np.isnan(p) else float(p)}
        content = {"system": said.pop("system"), "episode": said.pop("episode"), "said": said, "cells": cells}
        rows.append(content | {"differs": differences(spec, experiment, above)})
        above = experiment or above
    used = test and {"baseline": baseline_text(test, MARK), "level": test["level"]}
    return {"name": table["name"], "title": table["title"], "columns": list(columns(table)), "test": used, "rows": rows}


def cell(reader, names, split, measure):
    """A figure with its intervals: mean, sd over seeds, half the widths of 95 % intervals over queries and seeds."""
    by_seed = np.array([reader.scores(name, split)[measure] for name in names])
    by_seed = by_seed[:, ~np.isnan(by_seed).all(axis=0)]
    queries, seeds = by_seed.mean(axis=0), by_seed.mean(axis=1)
    content = {"mean": float(seeds.mean()), "queries": len(queries), "seeds": seeds.tolist()}
    content |= dict.fromkeys(("over_queries", "sd", "over_seeds"))
    if len(queries) > 1:
        content["over_queries"] = float(NORMAL_95 * queries.std(ddof=1) / np.sqrt(len(queries)))
    if len(seeds) > 1:
        content["sd"] = sd = float(seeds.std(ddof=1))
        content["over_seeds"] = float(t.ppf(0.975, len(seeds) - 1) * sd / np.sqrt(len(seeds)))
    return content | {"stages": names}


def experiment_of(spec, row):
    """The name of the experiment whose checkpoint a row scores; None for BM25 and runs from elsewhere."""
    names = set(chain(*row["runs"].values()))
    for experiment in [each for each in spec["experiments"] if each["label"] == row["system"]]:
        if any(names & set(run.values()) for seed in experiment["seeds"] for run in seed["runs"]):
            return experiment["name"]
    return None


def differences(spec, name, above):
    """[[key, value, value of the row above]] of the settings in which two experiments differ (None: not set)."""
    settings = {experiment["name"]: experiment["settings"] for experiment in spec["experiments"]}
    mine, other = (settings[name], settings[above]) if name and above else ({}, {})
    keys = [k for k in sorted({*mine, *other}) if k not in mine or k not in other or mine[k] != other[k]]
    return [[key, mine.get(key), other.get(key)] for key in keys]


def stage_content(artefact, planned):
    """What the page says of a finished stage; planned: its entry in the specification."""
    manifest, provenance = artefact.manifest, artefact.manifest.get("provenance", {})
    hardware = provenance.get("hardware", {})
    return {
        "users": planned["users"],
        "label": planned["label"],
        "inputs": manifest.get("inputs", {}),
        "seconds": seconds(artefact) if "wall_seconds" in provenance else None,
        "started": provenance.get("started"),
        "code": provenance.get("code"),
        "commit": provenance.get("git_commit"),
        "memory": provenance.get("peak_memory_bytes"),
        "machine": hardware.get("gpu") or hardware.get("processor"),
        "bytes": sum(file["bytes"] for file in manifest["files"].values()),
        "settings": manifest["settings"],
        "facts": manifest["facts"],
    }


def status_of(reader, spec):
    """{kinds: [[kind, finished, planned]], seeds: [[experiment, seed, finished episodes, episodes, finished stages,
    stages]], attempts: [[stage, label, attempts]], seen: the specification's `status` or None} (plain JSON).

    `status`, what runs and what is left by the forecast, is only there for who looks while it runs.
    """
    planned, finished = spec["stages"], list(filter(reader.finished, spec["stages"]))
    done, kinds = (Counter(name.split("/")[0] for name in names) for names in (finished, planned))
    seeds = []
    for label, seed in ((e["label"], seed) for e in spec["experiments"] for seed in e["seeds"]):
        stages = {row["stage"] for row in seed["rows"]}
        pairs = zip(seed["episodes"], seed["runs"][1:], strict=True)
        episodes = [all(map(reader.finished, (episode["train"], *runs.values()))) for episode, runs in pairs]
        counts = sum(episodes), len(episodes), sum(map(reader.finished, stages)), len(stages)
        seeds.append([label, seed["seed"], *counts])
    attempts = {name: reader.artefact(name).manifest.get("provenance", {}).get("attempt", 1) for name in finished}
    return {
        "kinds": [[kind, done[kind], number] for kind, number in kinds.items()],
        "seeds": seeds,
        "attempts": [[name, planned[name]["label"], number] for name, number in attempts.items() if number > 1],
        "seen": spec.get("status"),
    }


def training_curves(reader, trajectory):
    """[{episode, file, offset, points, steps, columns: {name: [values]}}] of the finished trainings of one seed.

    A file is any table of a train stage with a column `step`: losses.tsv, and what else a training writes per step.
    `offset` + step counts the steps of all episodes, one after another; a segment that goes on with the training before
    it (its first step is not 0 or 1) has counted them since that one's first.
    """
    curves, offsets, ends = [], {}, {}
    for number, stage in enumerate((each["train"] for each in trajectory["episodes"]), 1):
        files = reader.artefact(stage).manifest["files"] if reader.finished(stage) else ()
        for file in sorted(name for name in files if name.endswith(".tsv") and "/" not in name):
            if curve := read_curve(reader.artefact(stage).path(file)):
                if curve["steps"][0] <= 1:
                    offsets[file] = ends.get(file, 0)
                offset = offsets.setdefault(file, 0)
                ends[file] = offset + curve["steps"][-1]
                curves.append({"episode": number, "file": file, "offset": offset} | curve)
    return curves


def read_curve(path):
    """{points, steps, columns} of a table with a column `step`, at most MOST_POINTS of its lines, evenly spaced, with
    the first and the last one; None for another table."""
    table = pd.read_csv(path, sep="\t")
    if "step" not in table or table.empty:
        return None
    lines = np.linspace(0, len(table) - 1, min(len(table), MOST_POINTS)).round().astype(np.int64)
    kept = table.iloc[lines].select_dtypes("number").astype(float)
    steps = kept.pop("step").astype(int).tolist()
    columns = {name: [float(f"{value:.6g}") if np.isfinite(value) else None for value in kept[name]] for name in kept}
    return {"points": len(table), "steps": steps, "columns": columns}
