"""Tables: a row per system and episode, a column per measure, from the scores of single queries.

A table's specification, JSON made by the plan:

    {"name": "main", "title": "...", "collection": "collection/KEY",
     "splits": ["test"], "measures": {"test": ["RR@10"]}, "columns": ["negatives", "episodes", "seconds"],
     "significance": {"baseline": "Zero-shot", "test": "permutation", "resamples": 9999, "level": 0.05},
     "rows": [{"system": "ANCE-Tele", "episode": 3, "runs": {"test": ["evaluate/KEY", one per seed]},
               "columns": {"negatives": "query 60", "episodes": 3, "seconds": [["train/KEY", ...], one per seed]}}]}

`reranked` may be there too, measures of re-ranked candidates by split; a row has them as "SPLIT (re-ranked)" in `runs`.
`columns` are what the table says of a system besides its measures. `significance` null leaves the test out; its "test"
may be "t-test", and `"by_episode": true` compares episode by episode. A row may lack splits: the run of an external
system need not cover all of them.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from teleport.evaluation.significance import holm, paired_p_value, paired_t_p_value
from teleport.report.costs import seconds
from teleport.report.figures import count_passages, machines, trace_figures
from teleport.report.render import NONE, Printed, csv_text, write_forms
from teleport.runtime.artefact import STAGES, Artefact
from teleport.runtime.files import write_text
from teleport.runtime.seed import derive_seed
from teleport.settings.measures import coverage_cutoffs
from teleport.settings.section import RERANKED

SEED = 42  # of the significance test: rows have seeds of their own, or none


class Table(NamedTuple):
    """The figures of a table, frames with a line per row and the same columns ("RR@10", or "dev RR@10" of many splits).

    rows: system, episode, and the columns that the specification asks for. means: over queries, then over seeds, NaN
    for a split without a run. deviations: of the means, over seeds (ddof 1), NaN for a single seed. p_values: against
    the baseline row, Holm-corrected within the column, NaN in a baseline row and where nothing is tested.
    """

    rows: pd.DataFrame
    means: pd.DataFrame
    deviations: pd.DataFrame
    p_values: pd.DataFrame


def write_table(spec, root, output_folder):
    """Write NAME.csv, NAME.md, NAME.tex and NAME.sources.csv of `spec` below `output_folder`.

    `root` (a Path) is the folder that holds results/. Raises ValueError when an artefact is missing, torn or edited.
    """
    table = make_table(spec, root)
    write_forms(printed(spec, table, root), csv_frame(table), output_folder)
    write_text(Path(output_folder) / f"{spec['name']}.sources.csv", csv_text(trace_figures(spec["rows"], root)))


def make_table(spec, root):
    """The `Table` of a specification."""
    against, none = find_baselines(spec["rows"], spec["significance"]), pd.Series(dtype=float)

    def artefact(name):
        return Artefact(root / STAGES / name)

    rows = pd.DataFrame([describe(row, spec["columns"], artefact) for row in spec["rows"]])
    scores = [read_scores(row, spec, root) for row in spec["rows"]]
    by_seed = [{column: row[column].mean() if column in row else none for column in columns(spec)} for row in scores]
    means = pd.DataFrame([{column: values.mean() for column, values in row.items()} for row in by_seed])
    deviations = pd.DataFrame([{column: values.std(ddof=1) for column, values in row.items()} for row in by_seed])
    p_values = pd.DataFrame(float("nan"), index=means.index, columns=means.columns)
    for column in columns(spec):
        tested = [i for i, base in against.items() if column in scores[i] and column in scores[base]]
        p_values.loc[tested, column] = holm([compare(spec, scores, i, against[i], column) for i in tested])
    return Table(rows, means, deviations, p_values)


def describe(row, names, artefact):
    """What a table says of a row besides its measures, {column: what}.

    names: the columns that it has of `system_columns`; artefact: the function that opens a stage by its name.
    "seconds": mean over seeds, NaN where none were spent; "gap": from the first to the last step, as text; "index":
    with its size, and the share of the exact run that it finds where it is not exact; "step": that which a dev set has
    selected, of each seed.
    """
    said = {name: row["columns"][name] for name in names}
    if said.get("step"):
        said["step"] = ", ".join(str(artefact(name).facts["selected_step"]) for name in said["step"])
    if "seconds" in said:
        spent = [sum(seconds(artefact(name)) for name in of_seed) for of_seed in said["seconds"]]
        said["seconds"] = np.mean(spent) if spent else float("nan")
    if said.get("gap"):
        facts = artefact(said["gap"]).facts
        said["gap"] = f"{facts['gap']:,}-{facts['gap'] + facts['steps'] - 1:,}"
    if said.get("index"):
        name, *stages = said["index"]
        made, searched = (artefact(stage).facts for stage in stages)
        recall = f", recall {searched['recall']:.2f}" if "recall" in searched else ""
        said["index"] = f"{name}, {made['bytes'] / 1e6:.3g} MB{recall}"
    return {"system": row["system"], "episode": row["episode"]} | said


def find_baselines(rows, significance):
    """{index of a row: that of its baseline}, of all rows that are tested; none without `significance`.

    The baseline is the last episode of the system called so; with `by_episode`, its same episode where it has that.
    """
    if not significance:
        return {}
    episodes = {row["episode"]: i for i, row in enumerate(rows) if row["system"] == significance["baseline"]}
    last, same = max(episodes.values()), episodes if significance.get("by_episode") else {}
    found = {i: same.get(row["episode"], last) for i, row in enumerate(rows)}
    return {i: base for i, base in found.items() if i != base}


def columns(spec):
    """{name of a column: (key in `runs`, measure)}, in order; its name has the split where there are several."""
    several, found = len(spec["splits"]) > 1, {}
    for measures, suffix in ((spec["measures"], ""), (spec.get("reranked", {}), RERANKED)):
        for split in [split for split in spec["splits"] if split in measures]:
            prefix = f"{split} " if several else ""
            found |= {f"{prefix}{name}{suffix}": (f"{split}{suffix}", name) for name in measures[split]}
    return found


def read_scores(row, spec, root):
    """{column: scores of one row, a frame of queries x seeds}, for the splits that the row has."""
    frames = {}
    for split, names in row["runs"].items():
        paths = [Artefact(root / STAGES / name).path("per_query.parquet") for name in names]
        frames[split] = [pd.read_parquet(path).set_index(["measure", "query_id"])["value"] for path in paths]
    own = {column: place for column, place in columns(spec).items() if place[0] in frames}
    return {column: pd.concat([f.loc[name] for f in frames[split]], axis=1) for column, (split, name) in own.items()}


def compare(spec, scores, index, baseline, column):
    """The uncorrected p of row `index` against the baseline row, on scores of queries averaged over seeds."""
    ours, theirs = scores[index][column].mean(axis=1), scores[baseline][column].mean(axis=1)
    theirs = theirs.loc[ours.index]
    return p_value(ours.to_numpy(), theirs.to_numpy(), spec["significance"], spec["rows"][index], column)


def p_value(ours_Q, theirs_Q, significance, row, column):
    """The uncorrected p of two systems' scores of the same queries (float), by the test that `significance` names.

    The system and episode of `row`, which has the first of the scores, and the name of their column seed the test.
    """
    if significance["test"] == "t-test":
        return paired_t_p_value(ours_Q, theirs_Q)
    seed = derive_seed(SEED, "significance", row["system"], row["episode"], column)
    return paired_p_value(ours_Q, theirs_Q, significance["resamples"], seed)


def csv_frame(table):
    """The columns of the CSV: those of the rows, measures, then " sd" (with several seeds) and " p" (when tested)."""
    parts = [table.rows, table.means]
    for frame, suffix in ((table.deviations, " sd"), (table.p_values, " p")):
        if frame.notna().any(axis=None):
            parts.append(frame.add_suffix(suffix))
    return pd.concat(parts, axis=1)


def printed(spec, table, root):
    """A `Table` as it is printed (`Printed`)."""
    rows, measures = row_cells(table.rows), measure_cells(spec, table)
    spent = [name for name in rows if name == "Seconds"]  # last, after the measures
    frame = pd.concat([rows.drop(columns=spent), measures, rows[spent]], axis=1)
    return Printed(spec["name"], spec["title"], frame, footer(spec, table, root))


def row_cells(rows):
    """What a table says of its rows, as text; the number of episodes takes the place of the row's own episode."""
    texts = rows.drop(columns="episode") if "episodes" in rows else rows
    if "seconds" in texts:
        texts = texts.assign(seconds=texts["seconds"].map("{:,.0f}".format, na_action="ignore"))
    return texts.astype(object).where(texts.notna(), NONE).astype(str).rename(columns=str.capitalize)


def measure_cells(spec, table):
    """The measures' columns as text: "0.505", with " ± 0.003" over several seeds and "†" where p is below the level.

    The best of each column, as printed, is **bold**: of errors (`Errors@k`) the lowest. A hole rate (`Hole@k`) says
    nothing about quality and has no best.
    """
    cells, level = {}, (spec["significance"] or {"level": 0})["level"]
    for name, means in table.means.round(3).items():
        best, texts = None if "Hole@" in name else means.min() if "Errors@" in name else means.max(), []
        for mean, sd, p in zip(means, table.deviations[name], table.p_values[name], strict=True):
            text = f"**{mean:.3f}**" if mean == best else f"{mean:.3f}"
            text += (f" ± {sd:.3f}" if pd.notna(sd) else "") + ("†" if p < level else "")
            texts.append(NONE if pd.isna(mean) else text)
        cells[name] = texts
    return pd.DataFrame(cells)


def footer(spec, table, root):
    """What a reader must know beside the figures: a list of sentences."""
    facts, test = Artefact(root / STAGES / spec["collection"]).facts, spec["significance"]
    counted = ", ".join([count_passages(facts), *count_queries(spec, root)])
    notes = [f"Collection {facts['corpus_digest'][:16]}: {counted}."]
    if "versions" in facts:
        notes.append(f"Made from {', '.join(f'{name} {version}' for name, version in facts['versions'].items())}.")
    if table.deviations.notna().any(axis=None):
        notes.append("Mean ± standard deviation over seeds.")
    if test:
        notes.append(significance_text(test))
    notes.append("Best of each column in bold.")
    if "step" in spec["columns"]:
        notes.append("Step: that of the training which the dev queries have selected; 0 is where it started.")
    if "seconds" in spec["columns"]:
        names = {name for row in spec["rows"] for seed in row["columns"]["seconds"] for name in seed}
        where = machines(Artefact(root / STAGES / name) for name in names)
        notes.append(f"Seconds of mining and training, as if each system ran alone, one stage after another: {where}.")
    return notes


def significance_text(test):
    """What a mark of significance says, in a sentence."""
    resampled = f"permutation test over queries, {test['resamples']:,} resamples"
    kind = "t-test over queries" if test["test"] == "t-test" else resampled
    method = f"two-sided paired {kind}, Holm-corrected within the column"
    return f"† differs from {baseline_text(test)}, p < {test['level']:g} ({method})."


def baseline_text(test):
    """What rows are compared with, in words."""
    return test["baseline"] + (" of the same episode" if test.get("by_episode") else "")


def count_queries(spec, root):
    """What every split's figures are means of, such as "412 test queries": judged queries, questions with answers."""
    runs = {split: names for row in reversed(spec["rows"]) for split, names in row["runs"].items()}
    counted = []
    for split in [split for split in spec["splits"] if split in runs]:
        facts, names = Artefact(root / STAGES / runs[split][0]).facts, spec["measures"][split]
        cutoffs = coverage_cutoffs(names)
        if len(cutoffs) < len(names):
            counted.append(f"{facts['num_queries']:,} {split} queries")
        if cutoffs:
            counted.append(f"{facts['num_questions']:,} {split} questions with answers")
    return counted
