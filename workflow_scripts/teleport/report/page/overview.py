"""What the first page says: tables, verdicts, every pair of systems, costs; the stages as they ran."""

from itertools import chain

import numpy as np
import pandas as pd
from scipy.stats import t

from teleport.report import table as tables
from teleport.report.figures import machines, seconds
from teleport.report.progress import SEED_COLUMNS, by_kind, of_seed
from teleport.report.render import Printed
from teleport.report.verdicts import PAIRS, baseline_text, baselines, labels_of, significance_text
from teleport.settings.section import RERANKED

NORMAL_95 = 1.96  # half the width of a 95 % interval, in standard errors
ROUNDED = 1e-5  # of a mean, more than the six digits of a CSV leave out


def page_table(reader, spec, table):
    """A table with its finished rows, its verdicts and its pairs.

    {title, columns, printed: its `Printed`, rows: [{at, label, system, episode, runs, differs, cells: {column:
    cell}}], starts: {label of an experiment: cell of the first column}, verdicts: [sentence], note, matrices: {column:
    {(b, a): pair}}}. It tests nothing: p-values are those of the written table, which may be missing or of other rows.
    """
    columns, labels = tables.columns(table), labels_of(table["rows"])
    rows, above = [], {}
    for at, row in enumerate(table["rows"]):
        if all(map(reader.finished, chain(*row["runs"].values()))):
            cells = {
                column: cell(reader, row["runs"][split], split.removesuffix(RERANKED), measure)
                for column, (split, measure) in columns.items()
                if split in row["runs"]
            }
            settings = settings_of(spec, row)
            content = {name: row[name] for name in ("system", "episode", "runs")} | {"at": at, "label": labels[at]}
            rows.append(content | {"cells": cells, "differs": differences(settings, above)})
            above = settings or above
    tested, pairs = written(reader.root / "results/tables" / spec["name"], table, rows)
    content = {"title": table["title"], "columns": list(columns), "rows": rows}
    content["printed"] = printed(reader, table, rows, tested) if rows else None
    content["starts"] = starts_of(reader, spec, *next(iter(columns.values())))
    return content | answers(reader, table, tested, pairs)


def printed(reader, table, rows, tested):
    """The `Printed` of a table's finished rows, as `page_table` gives them; tested: its CSV, or an empty frame."""
    columns, places, test = list(tables.columns(table)), [row["at"] for row in rows], table["significance"]
    said = pd.DataFrame([tables.describe(table["rows"][at], table["columns"], reader) for at in places])
    by_seed = [{column: each["seeds"] for column, each in row["cells"].items()} for row in rows]
    marks, p_values = list(baselines(test)), {}
    for mark in marks if len(tested) else ():
        names = [f"{column}{tables.p_suffix(mark, marks)}" for column in columns]
        p_values[mark] = tested.reindex(places, columns=names).set_axis(columns, axis=1).reset_index(drop=True)
        for row, of_row in zip(rows, p_values[mark].to_dict("records"), strict=True):
            for column, p in of_row.items():
                if column in row["cells"] and not np.isnan(p):
                    row["cells"][column]["p"].append(f"{p} against {baseline_text(test, mark)}")
    full = tables.Table(said, *tables.over_seeds(by_seed, columns), p_values, [])
    cells = pd.concat([tables.row_cells(said), tables.measure_cells(table, full)], axis=1)
    notes = significance_text(test, table["splits"], []) if p_values else []
    return Printed(table["name"], table["title"], cells, [*notes, "Best of each column in bold."])


def written(folder, table, rows):
    """The CSVs of the written table and of its pairs (DataFrames); empty where it is missing or outdated. rows: the
    finished ones, as `page_table` gives them"""
    paths = [folder / f"{table['name']}{suffix}.csv" for suffix in ("", ".pairs", ".sources")]
    *frames, sources = [pd.read_csv(path) if path.is_file() else pd.DataFrame() for path in paths]
    current = list(frames[0].get("system", ())) == [row["system"] for row in table["rows"]]
    evaluated = {*chain.from_iterable(chain(*row["runs"].values()) for row in table["rows"])}
    current &= {*sources.get("stage", ())} == evaluated  # not those of other settings
    current = current and {*tables.columns(table)} <= {*frames[0]} and says_the_same(frames[0], rows)
    return frames if current else [pd.DataFrame(), pd.DataFrame()]


def says_the_same(tested, rows):
    """Whether the CSV of a table has the means of its rows (as `page_table` gives them): not where stages were made
    anew, by other code, since it was written."""
    means = [(row["at"], column, cell["mean"]) for row in rows for column, cell in row["cells"].items()]
    return tested.empty or all(np.isclose(tested[column][at], mean, ROUNDED, 0) for at, column, mean in means)


def answers(reader, table, tested, pairs):
    """{verdicts, note, matrices} of a table, from its CSV and that of its pairs."""
    columns, matrices = tables.columns(table), {}
    first = next(iter(columns))
    if not {*PAIRS} <= {*pairs} or first not in {*pairs["column"]}:
        return {"verdicts": [], "note": "", "matrices": {}}
    pairs = pairs[pairs["column"].isin([*columns])]
    said, note = tables.verdicts_with_costs(table, first, tested[first], pairs, reader)
    turned = pairs.rename(columns={"a": "b", "b": "a", "won": "lost", "lost": "won"})
    for pair in pd.concat([pairs, turned.assign(difference=-turned["difference"])]).to_dict("records"):
        split, measure = columns[pair["column"]]
        matrices.setdefault(pair["column"], {})[pair["b"], pair["a"]] = pair | {"split": split, "measure": measure}
    return {"verdicts": said, "note": note, "matrices": matrices}


def starts_of(reader, spec, split, measure):
    """{label of an experiment: cell of the checkpoint that its training starts from}, where that is evaluated."""
    starts = {}
    for experiment in spec["experiments"]:
        names = list(dict.fromkeys(seed["runs"][0].get(split) for seed in experiment["seeds"]))
        if all(map(reader.finished, names)):
            starts[experiment["system"]] = cell(reader, names, split.removesuffix(RERANKED), measure)
    return starts


def cell(reader, names, split, measure):
    """A figure with its intervals: mean, figures of seeds, half the widths of 95 % intervals over queries and seeds."""
    by_seed = np.array([reader.scores(name, split)[measure] for name in names])
    by_seed = by_seed[:, ~np.isnan(by_seed).all(axis=0)]
    queries, seeds = by_seed.mean(axis=0), by_seed.mean(axis=1)
    content = {"mean": float(seeds.mean()), "queries": len(queries), "seeds": seeds.tolist(), "stages": names, "p": []}
    content |= {"measure": measure, "over_queries": half_width(queries, NORMAL_95)}
    return content | {"over_seeds": half_width(seeds, t.ppf(0.975, len(seeds) - 1))}


def half_width(values, errors):
    """Half the width of an interval of so many standard errors around a mean; None of a single value."""
    return float(errors * values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def settings_of(spec, row):
    """The settings of the experiment whose checkpoint a row scores; none of BM25 and runs from elsewhere."""
    names = set(chain(*row["runs"].values()))
    for experiment in [each for each in spec["experiments"] if each["system"] == row["system"]]:
        if any(names & set(run.values()) for seed in experiment["seeds"] for run in seed["runs"]):
            return experiment["settings"]
    return {}


def differences(mine, other):
    """[[key, value, value of the other]] in which the settings of two experiments differ (None: not set)."""
    keys = sorted({*mine, *other}) if mine and other else ()
    return [[key, mine.get(key), other.get(key)] for key in keys if mine.get(key) != other.get(key)]


def costs_table(reader, spec, note):
    """What each system whose trainings are finished has cost, as the tables count it (`Printed`)."""
    last = {(table["name"], row["system"]): row for table in spec["tables"] for row in table["rows"]}
    found = [(system, cost) for (_, system), row in last.items() if (cost := tables.cost_of(row, reader))]
    lines = [(system, *map(tables.seconds_text, (*cost, sum(cost)))) for system, cost in dict.fromkeys(found)]
    frame = pd.DataFrame(lines, columns=["System", "Mining", "Training", "Together"])
    return Printed("costs", "What it cost", frame, [note])


def finished_stages(reader, spec):
    """{name: what the page says of a finished stage}: its entry in the specification, its manifest and provenance."""
    found = {}
    for name in filter(reader.finished, spec["stages"]):
        artefact, manifest = reader.artefact(name), reader.artefact(name).manifest
        size = sum(file["bytes"] for file in manifest["files"].values())
        counted = {"seconds": seconds(artefact), "bytes": size, "machine": machines([artefact])}
        found[name] = spec["stages"][name] | manifest | manifest["provenance"] | counted
    return found


def status_of(reader, spec):
    """(tables of what runs and of every experiment and seed, {kind: (finished, planned)}).

    The specification's `status`, what runs and what is left by the forecast, is only there for who looks meanwhile.
    """
    shown, seeds, seen = [], [], spec.get("status")
    if seen:
        names = [name.capitalize() for name in seen["columns"]]
        note = f"{seen['left'][:1].upper()}{seen['left'][1:]}. Seen at {seen['seen']}."
        nothing = [] if seen["unfinished"] else ["No stage is running, and none was stopped."]
        shown.append(Printed("", "What runs", pd.DataFrame(seen["unfinished"], columns=names), [*nothing, note]))
    for experiment in spec["experiments"]:
        for seed in experiment["seeds"]:
            by_episode = zip(seed["episodes"], seed["runs"][1:], strict=True)
            episodes = [[episode["train"], *runs.values()] for episode, runs in by_episode]
            stages = {row["stage"] for row in seed["rows"]}
            seeds.append(of_seed(experiment["label"], seed["seed"], episodes, stages, reader.finished))
    if seeds:
        frame = pd.DataFrame(seeds, columns=[name.capitalize() for name in SEED_COLUMNS])
        shown.append(Printed("", "Experiments and seeds", frame, []))
    return shown, by_kind(spec["stages"], reader.finished)
