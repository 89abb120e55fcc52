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

from itertools import chain
from typing import NamedTuple

import numpy as np
import pandas as pd

from teleport.evaluation.significance import holm, paired_p_value, paired_t_p_value
from teleport.report.figures import Stages, collection_text, machines, seconds, trace_figures
from teleport.report.render import NONE, SEVERAL_SEEDS, Printed, cell, write_forms
from teleport.seed import derive_seed
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
    """Write NAME.csv, .md, .tex and .sources.csv of `spec` below `output_folder`, from results/ below `root` (a Path).

    Raises Refusal when an artefact is missing, torn or edited.
    """
    stages = Stages(root)
    table, sources = make_table(spec, stages), trace_figures(spec["rows"], stages)
    cells = pd.concat([row_cells(table.rows), measure_cells(spec, table)], axis=1)
    if "Seconds" in cells:
        cells["Seconds"] = cells.pop("Seconds")  # last, after the measures
    printed = Printed(spec["name"], spec["title"], cells, footer(spec, table, stages))
    write_forms(printed, csv_frame(table), output_folder, sources=sources)


def make_table(spec, stages):
    """The `Table` of a specification."""
    rows = pd.DataFrame([describe(row, spec["columns"], stages) for row in spec["rows"]])
    by_seed, p_values = [{} for _ in spec["rows"]], {}
    for column, (split, measure) in columns(spec).items():
        over_queries = {}
        for i, names in [(i, row["runs"][split]) for i, row in enumerate(spec["rows"]) if split in row["runs"]]:
            scores = pd.concat([stages.query_scores(name)[measure] for name in names], axis=1)  # queries x seeds
            by_seed[i][column], over_queries[i] = scores.mean(), scores.mean(axis=1)
        p_values[column] = corrected_p_values(over_queries, spec["rows"], spec["significance"], column)
    return Table(rows, *over_seeds(by_seed, columns(spec)), pd.DataFrame(p_values))


def over_seeds(rows, names):
    """(means, standard deviations with ddof 1) over seeds, frames of `names`; rows: [{column: figure of each seed}]."""
    series = [{name: pd.Series(row.get(name, ()), dtype=float) for name in names} for row in rows]
    means = pd.DataFrame([{name: values.mean() for name, values in row.items()} for row in series])
    return means, pd.DataFrame([{name: values.std(ddof=1) for name, values in row.items()} for row in series])


def describe(row, names, stages):
    """What a table says of a row besides its measures, {column: what}; names: those of `system_columns` that it has.

    "seconds": mean over seeds, NaN where none were spent; "gap": from the first to the last step, as text; "index":
    with its size, and its recall where it is not exact; "step": that which a dev set has selected, of each seed.
    """
    cells = {name: row["columns"][name] for name in names}
    if cells.get("step"):
        cells["step"] = ", ".join(str(stages.facts(name)["selected_step"]) for name in cells["step"])
    if "seconds" in cells:
        spent = [sum(seconds(stages.artefact(name)) for name in of_seed) for of_seed in cells["seconds"]]
        cells["seconds"] = np.mean(spent) if spent else float("nan")
    if cells.get("gap"):
        facts = stages.facts(cells["gap"])
        cells["gap"] = f"{facts['gap']:,}-{facts['gap'] + facts['steps'] - 1:,}"
    if cells.get("index"):
        name, *made_and_searched = cells["index"]
        made, searched = map(stages.facts, made_and_searched)
        recall = f", recall {searched['recall']:.2f}" if "recall" in searched else ""
        cells["index"] = f"{name}, {made['bytes'] / 1e6:.3g} MB{recall}"
    return {"system": row["system"], "episode": row["episode"]} | cells


def columns(spec):
    """{name of a column: (key in `runs`, measure)}, in order; its name has the split where there are several."""
    return {
        (f"{split} " if len(spec["splits"]) > 1 else "") + f"{name}{suffix}": (f"{split}{suffix}", name)
        for measures, suffix in ((spec["measures"], ""), (spec.get("reranked", {}), RERANKED))
        for split in spec["splits"]
        for name in measures.get(split, ())
    }


def corrected_p_values(scores, rows, significance, column):
    """p of each row against its baseline, Holm-corrected (float [rows], NaN where not tested), by the test that
    `significance` names; nothing is where it is None.

    The baseline is the last episode of the system called so; with `by_episode`, its same episode where it has that.
    scores: {index of a row: Series by query}; a row's system and episode, and the name of the column, seed its test
    """
    p_values, uncorrected, against = np.full(len(rows), np.nan), [], {}
    if significance:
        episodes = {row["episode"]: i for i, row in enumerate(rows) if row["system"] == significance["baseline"]}
        last, same = episodes[max(episodes)], episodes if significance.get("by_episode") else {}
        against = {i: same.get(row["episode"], last) for i, row in enumerate(rows)}
    against = {i: base for i, base in against.items() if i != base and {i, base} <= scores.keys()}
    for i, base in against.items():
        ours_Q, theirs_Q = scores[i].to_numpy(), scores[base].loc[scores[i].index].to_numpy()
        if significance["test"] == "t-test":
            uncorrected.append(paired_t_p_value(ours_Q, theirs_Q))
        else:
            seed = derive_seed(SEED, "significance", rows[i]["system"], rows[i]["episode"], column)
            uncorrected.append(paired_p_value(ours_Q, theirs_Q, significance["resamples"], seed))
    p_values[list(against)] = holm(uncorrected)
    return p_values


def csv_frame(table):
    """The columns of the CSV: those of the rows, measures, then " sd" (with several seeds) and " p" (when tested)."""
    more = [(table.deviations, " sd"), (table.p_values, " p")]
    given = [frame.add_suffix(suffix) for frame, suffix in more if frame.notna().any(axis=None)]
    return pd.concat([table.rows, table.means, *given], axis=1)


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
        best = None if "Hole@" in name else means.min() if "Errors@" in name else means.max()
        figures = zip(means, table.deviations[name], table.p_values[name], strict=True)
        cells[name] = [cell(mean, sd, ".3f", mean == best, "†" if p < level else "") for mean, sd, p in figures]
    return pd.DataFrame(cells)


def footer(spec, table, stages):
    """What a reader must know beside the figures: a list of sentences."""
    facts, test = stages.facts(spec["collection"]), spec["significance"]
    notes = [f"Collection {collection_text(facts, *count_queries(spec, stages))}"]
    if "versions" in facts:
        notes.append(f"Made from {', '.join(f'{name} {version}' for name, version in facts['versions'].items())}.")
    if table.deviations.notna().any(axis=None):
        notes.append(SEVERAL_SEEDS)
    if test:
        notes.append(significance_text(test))
    notes.append("Best of each column in bold.")
    if "step" in spec["columns"]:
        notes.append("Step: that of the training which the dev queries have selected; 0 is where it started.")
    if "seconds" in spec["columns"]:
        names = set(chain(*(seed for row in spec["rows"] for seed in row["columns"]["seconds"])))
        where = machines(map(stages.artefact, names))
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


def count_queries(spec, stages):
    """What every split's figures are means of, such as "412 test queries": judged queries, questions with answers."""
    runs = {split: names for row in reversed(spec["rows"]) for split, names in row["runs"].items()}
    counts = []
    for split in filter(runs.get, spec["splits"]):
        facts, names = stages.facts(runs[split][0]), spec["measures"][split]
        cutoffs = coverage_cutoffs(names)
        if len(cutoffs) < len(names):
            counts.append(f"{facts['num_queries']:,} {split} queries")
        if cutoffs:
            counts.append(f"{facts['num_questions']:,} {split} questions with answers")
    return counts
