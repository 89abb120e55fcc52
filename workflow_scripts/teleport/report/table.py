"""Tables: a row per system and episode, a column per measure, from the scores of single queries.

A table's specification, JSON made by the plan:

    {"name": "main", "title": "...", "measures": ["RR@10"], "splits": ["test"], "collection": "collection/KEY",
     "significance": {"baseline": "Zero-shot", "resamples": 9999, "level": 0.05},
     "rows": [{"system": "ANCE-Tele", "episode": 3, "runs": {"test": ["evaluate/KEY", one per seed]}}]}

`significance` null leaves the test out; its "test" may be "t-test" instead of "permutation". `measures` may be a
mapping of splits to lists. A row may lack splits: the run of an external system need not cover all of them.
"""

from pathlib import Path
from typing import NamedTuple

import pandas as pd

from teleport.evaluation.coverage import coverage_cutoffs
from teleport.evaluation.significance import holm, paired_p_value, paired_t_p_value
from teleport.report.render import footer, latex, markdown
from teleport.report.sources import trace_sources
from teleport.runtime.artefact import STAGES, Artefact
from teleport.runtime.files import write_text
from teleport.runtime.seed import derive_seed

SEED = 42  # of the significance test: rows have seeds of their own, or none


class Table(NamedTuple):
    """The figures of a table, frames with a line per row and the same columns ("RR@10", or "dev RR@10" of many splits).

    rows: system, episode. means: over queries, then over seeds, NaN for a split without a run. deviations: of the
    means, over seeds (ddof 1), NaN for a single seed. p_values: against the baseline row, Holm-corrected within the
    column, NaN in the baseline row and where nothing is tested.
    """

    rows: pd.DataFrame
    means: pd.DataFrame
    deviations: pd.DataFrame
    p_values: pd.DataFrame


def write_table(spec, root, output_folder):
    """Write NAME.csv, NAME.md, NAME.tex and NAME.sources.csv of `spec` below `output_folder`.

    `root` is the folder that holds results/. Raises ValueError when the significance baseline is no row of the table,
    and when an artefact is missing, torn or edited.
    """
    root, stem = Path(root), Path(output_folder) / spec["name"]
    table = make_table(spec, root)
    notes = footer(spec, table, Artefact(root / STAGES / spec["collection"]), count_queries(spec, root))
    texts = {
        "csv": csv_text(csv_frame(table)),
        "md": markdown(spec, table, notes),
        "tex": latex(spec, table, notes),
        "sources.csv": csv_text(trace_sources(spec["rows"], root)),
    }
    for suffix, text in texts.items():
        write_text(f"{stem}.{suffix}", text)


def make_table(spec, root):
    """The `Table` of a specification. Raises ValueError for a baseline that is no row."""
    baseline = find_baseline(spec)
    scores = [read_scores(row, spec, root) for row in spec["rows"]]
    by_seed = [{column: frame.mean() for column, frame in row.items()} for row in scores]
    columns = column_names(spec)
    means = pd.DataFrame([{c: row[c].mean() if c in row else float("nan") for c in columns} for row in by_seed])
    deviations = pd.DataFrame(
        [{c: row[c].std(ddof=1) if c in row else float("nan") for c in columns} for row in by_seed]
    )
    rows = pd.DataFrame([{"system": row["system"], "episode": row["episode"]} for row in spec["rows"]])
    p_values = pd.DataFrame(float("nan"), index=means.index, columns=means.columns)
    if baseline is not None:
        for column in scores[baseline]:
            others = [index for index in means.index if index != baseline and column in scores[index]]
            p_values.loc[others, column] = holm([compare(spec, scores, i, baseline, column) for i in others])
    return Table(rows, means, deviations, p_values)


def find_baseline(spec):
    """The index of the baseline row, the last episode of the system called so; None when nothing is tested.

    Raises ValueError when no row is called so.
    """
    if spec["significance"] is None:
        return None
    label, systems = spec["significance"]["baseline"], [row["system"] for row in spec["rows"]]
    if label not in systems:
        raise ValueError(
            f"table {spec['name']!r} has no row {label!r} to be the baseline of its significance test. "
            f"Choose one of its rows: {', '.join(dict.fromkeys(systems))}."
        )
    return len(systems) - 1 - systems[::-1].index(label)


def column_name(spec, split, measure):
    """The name of a column: the measure, or split and measure where there are several splits."""
    return f"{split} {measure}" if len(spec["splits"]) > 1 else measure


def column_names(spec):
    """The names of all columns, in order."""
    return [column_name(spec, split, name) for split in spec["splits"] for name in measures_of(spec, split)]


def read_scores(row, spec, root):
    """{column: scores of one row, a frame of queries x seeds}, for the splits that the row has."""
    scores = {}
    for split in [split for split in spec["splits"] if split in row["runs"]]:
        paths = [Artefact(root / STAGES / name).path("per_query.parquet") for name in row["runs"][split]]
        frames = [pd.read_parquet(path).set_index(["measure", "query_id"])["value"] for path in paths]
        for measure in measures_of(spec, split):
            values = [frame.loc[measure] for frame in frames]
            scores[column_name(spec, split, measure)] = pd.concat(values, axis=1)
    return scores


def measures_of(spec, split):
    """The measures of one split of a table's specification."""
    return spec["measures"][split] if isinstance(spec["measures"], dict) else spec["measures"]


def compare(spec, scores, index, baseline, column):
    """The uncorrected p of row `index` against the baseline row, on scores of queries averaged over seeds."""
    ours, theirs = scores[index][column].mean(axis=1), scores[baseline][column].mean(axis=1)
    if spec["significance"].get("test") == "t-test":
        return paired_t_p_value(ours.to_numpy(), theirs.loc[ours.index].to_numpy())
    row = spec["rows"][index]
    seed = derive_seed(SEED, "significance", row["system"], row["episode"], column)
    return paired_p_value(ours, theirs.loc[ours.index], spec["significance"]["resamples"], seed)


def count_queries(spec, root):
    """What every split's figures are means of, such as "412 test queries": judged queries, questions with answers."""
    runs = {split: names for row in reversed(spec["rows"]) for split, names in row["runs"].items()}
    counted = []
    for split in [split for split in spec["splits"] if split in runs]:
        facts, names = Artefact(root / STAGES / runs[split][0]).facts, measures_of(spec, split)
        cutoffs = coverage_cutoffs(names)
        if len(cutoffs) < len(names):
            counted.append(f"{facts['num_queries']:,} {split} queries")
        if cutoffs:
            counted.append(f"{facts['num_questions']:,} {split} questions with answers")
    return counted


def csv_frame(table):
    """The columns of the CSV: system, episode, the measures, then " sd" (with several seeds) and " p" (when tested)."""
    parts = [table.rows, table.means]
    for frame, suffix in ((table.deviations, " sd"), (table.p_values, " p")):
        if frame.notna().any(axis=None):
            parts.append(frame.add_suffix(suffix))
    return pd.concat(parts, axis=1)


def csv_text(frame):
    """CSV with six significant digits; empty cells for NaN."""
    return frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")
