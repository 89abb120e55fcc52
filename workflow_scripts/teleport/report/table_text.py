"""A table of measures as people read it: three decimals, best of a column bold, significance marked."""

import pandas as pd

from teleport.evaluation.coverage import coverage_cutoffs
from teleport.report.figures import machines
from teleport.report.render import NONE, Printed
from teleport.runtime.artefact import STAGES, Artefact


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

    The best of each column, as printed, is **bold**; a hole rate (`Hole@k`) says nothing about quality and has no best.
    """
    rounded, level = table.means.round(3), (spec["significance"] or {"level": 0})["level"]
    columns = {}
    for name in rounded.columns:
        best, texts = None if "Hole@" in name else rounded[name].max(), []
        for mean, sd, p in zip(rounded[name], table.deviations[name], table.p_values[name], strict=True):
            if pd.isna(mean):
                texts.append(NONE)
                continue
            text = f"**{mean:.3f}**" if mean == best else f"{mean:.3f}"
            texts.append(text + (f" ± {sd:.3f}" if pd.notna(sd) else "") + ("†" if p < level else ""))
        columns[name] = texts
    return pd.DataFrame(columns)


def footer(spec, table, root):
    """What a reader must know beside the figures: a list of sentences."""
    facts, test = Artefact(root / STAGES / spec["collection"]).facts, spec["significance"]
    counted = ", ".join([f"{facts['num_passages']:,} passages", *count_queries(spec, root)])
    notes = [f"Collection {facts['corpus_digest'][:16]}: {counted}."]
    if "versions" in facts:
        notes.append(f"Made from {', '.join(f'{name} {version}' for name, version in facts['versions'].items())}.")
    if table.deviations.notna().any(axis=None):
        notes.append("Mean ± standard deviation over seeds.")
    if test:
        resampled = f"permutation test over queries, {test['resamples']:,} resamples"
        kind = "t-test over queries" if test["test"] == "t-test" else resampled
        method = f"two-sided paired {kind}, Holm-corrected within the column"
        notes.append(f"† differs from {test['baseline']}, p < {test['level']:g} ({method}).")
    notes.append("Best of each column in bold.")
    if "seconds" in spec["columns"]:
        names = {name for row in spec["rows"] for seed in row["columns"]["seconds"] for name in seed}
        where = machines(Artefact(root / STAGES / name) for name in names)
        notes.append(f"Seconds of mining and training, as if each system ran alone, one stage after another: {where}.")
    return notes


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
