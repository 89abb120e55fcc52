"""What the first page says: tables, verdicts, every pair of systems, costs; the stages as they ran."""

from itertools import chain

import numpy as np
import pandas as pd
from scipy.stats import t

from teleport.report.figures import seconds
from teleport.report.progress import by_kind, of_seed
from teleport.report.render import Printed
from teleport.report.table import (
    Table,
    columns,
    cost_of,
    describe,
    measure_cells,
    over_seeds,
    row_cells,
    seconds_text,
    verdicts_with_costs,
)
from teleport.report.verdicts import PAIRS, baseline_text, baselines, labels_of, significance_text
from teleport.settings.section import RERANKED

NORMAL_95 = 1.96  # half the width of a 95 % interval, in standard errors
NOTHING = pd.Series(dtype=float)


def page_table(reader, spec, table, folder=None):
    """A table with its finished rows, its verdicts and its pairs.

    {name, title, columns, printed: its `Printed`, rows: [{at, label, system, episode, differs, cells: {column: cell}}],
    starts: {label of an experiment: cell of the first column}, verdicts: [sentence], note, matrices: {column:
    {"at b": {"at a": pair}}}}. folder: where the written table is, which may be missing or of other rows. Nothing is
    tested twice: what is tested is the table's.
    """
    there = [all(map(reader.finished, chain(*row["runs"].values()))) for row in table["rows"]]
    rows, above, labels, (tested, pairs) = [], None, labels_of(table["rows"]), written(folder, table)
    for at, row in [(at, row) for at, row in enumerate(table["rows"]) if there[at]]:
        content = {"at": at, "label": labels[at], "system": row["system"], "episode": row["episode"]}
        experiment = experiment_of(spec, row)
        content["cells"] = {
            column: cell(reader, row["runs"][split], split.removesuffix(RERANKED), measure)
            for column, (split, measure) in columns(table).items()
            if split in row["runs"]
        }
        rows.append(content | {"differs": differences(spec, experiment, above)})
        above = experiment or above
    content = {"name": table["name"], "title": table["title"], "columns": list(columns(table)), "rows": rows}
    content["printed"] = printed(reader, table, rows, tested) if rows else None
    content["starts"] = starts_of(reader, spec, *next(iter(columns(table).values())))
    return content | answers(reader, table, tested, pairs)


def printed(reader, table, rows, tested):
    """The `Printed` of a table's finished rows, as `page_table` gives them; tested: its CSV, or an empty frame."""
    said = pd.DataFrame([describe(table["rows"][row["at"]], table["columns"], reader) for row in rows])
    by_seed = [{column: each["seeds"] for column, each in row["cells"].items()} for row in rows]
    marks, test, p_values = list(baselines(table["significance"])), table["significance"], {}
    for mark in marks if len(tested) else ():
        suffix = f" p {mark}" if len(marks) > 1 else " p"
        lines = tested.reindex(columns=[f"{column}{suffix}" for column in columns(table)]).iloc[[r["at"] for r in rows]]
        p_values[mark] = lines.set_axis(list(columns(table)), axis=1).reset_index(drop=True)
        for row, of_row in zip(rows, p_values[mark].to_dict("records"), strict=True):
            for column, p in of_row.items():
                if column in row["cells"] and not np.isnan(p):
                    row["cells"][column]["p"].append(f"{p} against {baseline_text(test, mark)}")
    full = Table(said, *over_seeds(by_seed, columns(table)), p_values, [])
    cells = pd.concat([row_cells(said), measure_cells(table, full)], axis=1)
    notes = significance_text(test, table["splits"], []) if p_values else []
    return Printed(table["name"], table["title"], cells, [*notes, "Best of each column in bold."])


def written(folder, table):
    """The CSVs of the written table and of its pairs (DataFrames); empty ones where it is missing, or of other rows."""
    paths = [folder and folder / f"{table['name']}{suffix}.csv" for suffix in ("", ".pairs")]
    frames = [pd.read_csv(path) if path and path.is_file() else pd.DataFrame() for path in paths]
    current = frames[0].get("system", NOTHING).tolist() == [row["system"] for row in table["rows"]]
    return frames if current else [pd.DataFrame(), pd.DataFrame()]


def answers(reader, table, tested, pairs):
    """{verdicts, note, matrices} of a table, from its CSV and that of its pairs."""
    if pairs.empty or not {*PAIRS} <= {*pairs}:
        return {"verdicts": [], "note": "", "matrices": {}}
    first = next(iter(columns(table)))
    said, note = verdicts_with_costs(table, first, tested[first], pairs, reader)
    matrices = {}
    for pair in pairs.to_dict("records"):
        turned = pair | {"difference": -pair["difference"], "won": pair["lost"], "lost": pair["won"]}
        lines = matrices.setdefault(pair["column"], {})
        lines.setdefault(pair["b"], {})[pair["a"]] = pair
        lines.setdefault(pair["a"], {})[pair["b"]] = turned
    return {"verdicts": said, "note": note, "matrices": matrices}


def starts_of(reader, spec, split, measure):
    """{label of an experiment: cell of the checkpoint that its training starts from}, where that is evaluated."""
    starts = {}
    for experiment in spec["experiments"]:
        names = list(dict.fromkeys(seed["runs"][0].get(split) for seed in experiment["seeds"]))
        if all(map(reader.finished, names)):
            starts[experiment["label"]] = cell(reader, names, split.removesuffix(RERANKED), measure)
    return starts


def cell(reader, names, split, measure):
    """A figure with its intervals: mean, sd over seeds, half the widths of 95 % intervals over queries and seeds."""
    by_seed = np.array([reader.scores(name, split)[measure] for name in names])
    by_seed = by_seed[:, ~np.isnan(by_seed).all(axis=0)]
    queries, seeds = by_seed.mean(axis=0), by_seed.mean(axis=1)
    content = {"mean": float(seeds.mean()), "queries": len(queries), "seeds": seeds.tolist(), "stages": names, "p": []}
    content |= {"measure": measure, "over_queries": None, "over_seeds": None}
    if len(queries) > 1:
        content["over_queries"] = float(NORMAL_95 * queries.std(ddof=1) / np.sqrt(len(queries)))
    if len(seeds) > 1:
        content["over_seeds"] = float(t.ppf(0.975, len(seeds) - 1) * seeds.std(ddof=1) / np.sqrt(len(seeds)))
    return content


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


def costs_table(reader, spec, note):
    """What each system whose trainings are finished has cost, as the tables count it (`Printed`)."""
    last = {row["system"]: row for table in spec["tables"] for row in table["rows"]}
    found = {system: cost for system, row in last.items() if (cost := cost_of(row, reader))}
    lines = [[system, *map(seconds_text, (*cost, sum(cost)))] for system, cost in found.items()]
    frame = pd.DataFrame(lines, columns=["System", "Mining", "Training", "Together"])
    return Printed("costs", "What it cost", frame, [note])


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
        "attempt": provenance.get("attempt", 1),
        "bytes": sum(file["bytes"] for file in manifest["files"].values()),
        "settings": manifest["settings"],
        "facts": manifest["facts"],
    }


def status_of(reader, spec):
    """(tables of what runs and of every experiment and seed, {kind: (finished, planned)}).

    The specification's `status`, what runs and what is left by the forecast, is only there for who looks meanwhile.
    """
    tables, seeds, seen = [], [], spec.get("status")
    if seen:
        names = [name.capitalize() for name in seen["columns"]]
        note = f"{seen['left'][:1].upper()}{seen['left'][1:]}. Seen at {seen['seen']}."
        nothing = [] if seen["unfinished"] else ["No stage is running, and none was stopped."]
        tables.append(Printed("", "What runs", pd.DataFrame(seen["unfinished"], columns=names), [*nothing, note]))
    for label, seed in ((e["label"], seed) for e in spec["experiments"] for seed in e["seeds"]):
        episodes = [
            [episode["train"], *runs.values()] for episode, runs in zip(seed["episodes"], seed["runs"][1:], strict=True)
        ]
        stages = {row["stage"] for row in seed["rows"]}
        seeds.append(of_seed(label, seed["seed"], episodes, stages, reader.finished))
    if seeds:
        frame = pd.DataFrame(seeds, columns=["Experiment", "Seed", "Episodes", "Stages"])
        tables.append(Printed("", "Experiments and seeds", frame, []))
    return tables, by_kind(spec["stages"], reader.finished)
