"""Tables of analyses: what is said of every system and episode besides its measures, a column for each that is asked.

A table's specification, JSON made by the plan:

    {"name": "analyses", "title": "...", "collection": "collection/KEY", "errors of": "dev", "against": "BM25",
     "significance": {...},
     "rows": [{"system": "ANCE", "episode": 1, "analyses": {"errors": ["errors/KEY", one per seed],
               "contrast": ["contrast/KEY", ...], "negatives": ["negatives_overlap/KEY", ...]}}]}

A row has only those that can be said of it: an episode without a pool has no `negatives`. `significance`, as in
table.py, is there where forgetting is tested.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from teleport.evaluation.significance import holm
from teleport.report.figures import count_passages
from teleport.report.render import NONE, Printed, csv_text, write_forms
from teleport.report.table import find_baselines, p_value, significance_text
from teleport.runtime.artefact import STAGES, Artefact
from teleport.runtime.files import write_text

# analysis: {column: (fact of its stage, form of a cell)}; AGAINST is the reference's name, TOP a number of the stage.
COLUMNS = {
    "errors": {
        "Errors": ("errors", ",.1f"),
        "Errors per positive": ("errors_per_positive", ",.1f"),
        "Top-TOP errors": ("top_errors", ",.1f"),
        "Ties per positive": ("ties_per_positive", ",.2f"),
    },
    "contrast": {
        "Overlap with AGAINST": ("overlap", ".3f"),
        "Wins over AGAINST": ("wins", ".1f"),
        "Losses": ("losses", ".1f"),
        "Ties": ("ties", ".1f"),
    },
    "negatives": {"Negatives in the top TOP": ("overlap", ".3f")},
    "forgetting": {"Forgotten": ("rate", ".3f"), "Gained": ("gained", ".3f")},
}
TESTED = "Forgotten"
SEVERAL = "Mean ± standard deviation over seeds."


def write_analyses(spec, root, output_folder):
    """Write NAME.csv, NAME.md, NAME.tex and NAME.sources.csv of `spec` below `output_folder`.

    `root` (a Path) is the folder that holds results/. Raises ValueError when an artefact is missing, torn or edited.
    """
    rows = [{name: artefacts(names, root) for name, names in row["analyses"].items()} for row in spec["rows"]]
    said = [figures_of(row, spec) for row in rows]
    firsts = [{name: row[name]} for name in COLUMNS for row in [r for r in rows if name in r][:1]]
    forms = {column: form for row in firsts for column, (_, form) in figures_of(row, spec).items()}
    named = pd.DataFrame([{"system": row["system"], "episode": row["episode"]} for row in spec["rows"]])
    p_values = forgetting_p_values(rows, spec)
    frame = csv_frame(named, said, forms, rows, p_values)
    write_forms(printed(spec, named, said, forms, rows, p_values, root), frame, output_folder)
    sources = [
        [row["system"], row["episode"], name, stage]
        for row in spec["rows"]
        for name, stages in row["analyses"].items()
        for stage in stages
    ]
    frame = pd.DataFrame(sources, columns=["system", "episode", "analysis", "stage"])
    write_text(Path(output_folder) / f"{spec['name']}.sources.csv", csv_text(frame))


def artefacts(names, root):
    """The finished stages called `names`."""
    return [Artefact(root / STAGES / name) for name in names]


def figures_of(row, spec):
    """{column: ([figure of each seed], form of a cell)} of one row, in the order of `COLUMNS`."""
    found = {}
    for analysis, columns in COLUMNS.items():
        for column, (fact, form) in columns.items() if analysis in row else ():
            facts = [stage.facts for stage in row[analysis]]
            top = str(facts[0].get("top", facts[0].get("depth")))
            name = column.replace("AGAINST", str(spec["against"])).replace("TOP", top)
            found[name] = [each[fact] for each in facts], form
    return found


def forgetting_p_values(rows, spec):
    """p of the forgetting rate of each row against the baseline's, Holm-corrected (float [rows], NaN if not tested)."""
    p_values, test = np.full(len(rows), np.nan), spec.get("significance")
    forgotten = {
        i: np.mean([np.load(stage.path("forgotten.npy")) for stage in row["forgetting"]], axis=0)
        for i, row in enumerate(rows)
        if test and "forgetting" in row
    }
    against = {i: base for i, base in find_baselines(spec["rows"], test).items() if {i, base} <= forgotten.keys()}
    said = [p_value(forgotten[i], forgotten[base], test, spec["rows"][i], TESTED) for i, base in against.items()]
    p_values[list(against)] = holm(said)
    return p_values


def csv_frame(named, said, forms, rows, p_values):
    """The columns of the CSV: the means over seeds, " sd" where there are several, " p", the histograms of errors."""
    means = pd.DataFrame([{column: np.mean(values) for column, (values, _) in row.items()} for row in said])
    deviations = pd.DataFrame([{c: np.std(v, ddof=1) for c, (v, _) in row.items() if len(v) > 1} for row in said])
    shares = pd.DataFrame(
        [{f"{what} {b['from']}+": b[what] for b in histogram(row) for what in ("queries", "errors")} for row in rows]
    )
    order = [column for column in forms if column in deviations]
    parts = [named, means.reindex(columns=list(forms)), deviations[order].add_suffix(" sd")]
    if not np.isnan(p_values).all():
        parts.append(pd.DataFrame({f"{TESTED} p": p_values}))
    return pd.concat([*parts, shares], axis=1)


def histogram(row):
    """The histogram of a row's errors under its first seed; empty without one."""
    return row["errors"][0].facts["histogram"] if "errors" in row else []


def printed(spec, named, said, forms, rows, p_values, root):
    """The table as it is printed (`Printed`)."""
    cells = {column: [cell(*row[column]) if column in row else NONE for row in said] for column in forms}
    if spec.get("significance"):
        marks = ["†" if p < spec["significance"]["level"] else "" for p in p_values]
        cells[TESTED] = [text + mark for text, mark in zip(cells[TESTED], marks, strict=True)]
    texts = named.astype(str).rename(columns=str.capitalize)
    notes = footer(spec, said, rows, Artefact(root / STAGES / spec["collection"]).facts)
    return Printed(spec["name"], spec["title"], pd.concat([texts, pd.DataFrame(cells)], axis=1), notes)


def cell(values, form):
    """A figure as text, with its deviation over several seeds; whole numbers (of one seed) without decimals."""
    if len(values) == 1 and isinstance(values[0], int):
        return f"{values[0]:,}"
    return f"{np.mean(values):{form}}" + (f" ± {np.std(values, ddof=1):{form}}" if len(values) > 1 else "")


def footer(spec, said, rows, facts):
    """What a reader must know beside the figures: a list of sentences."""
    notes = [f"Collection {facts['corpus_digest'][:16]}: {count_passages(facts)}."]
    if any(len(values) > 1 for row in said for values, _ in row.values()):
        notes.append(SEVERAL)
    asked = {analysis: row[analysis][0].facts for row in rows for analysis in row}
    if "errors" in asked:
        notes.append(
            "Errors: irrelevant passages of the whole corpus with a higher score than a positive, summed over the "
            f"positives of a query, in the mean over {asked['errors']['num_queries']:,} {spec['errors of']} queries. "
            "Top-K errors count at most K of each positive. Ties: irrelevant passages with the positive's score, which "
            "do not count."
        )
        notes += [
            shares_text(name["system"], name["episode"], row) for name, row in zip(spec["rows"], rows, strict=True)
        ]
    if "contrast" in asked:
        contrast = asked["contrast"]
        notes.append(
            f"Overlap: passages that are among the first {contrast['depth']} of both, as a share of so many. "
            f"Wins, losses and ties of {contrast['num_queries']:,} queries by {contrast['measure']}."
        )
    if "negatives" in asked:
        notes.append(
            f"Negatives in the top {asked['negatives']['depth']}: share of a training query's negatives that are among "
            "its first negatives under the checkpoint that was trained on them."
        )
    if "forgetting" in asked:
        notes.append(
            f"Forgotten and gained: shares of {asked['forgetting']['num_queries']:,} training queries whose reciprocal "
            "rank in the first 100 passages (or mining.depth, when that is less) is lower, or higher, after an episode."
        )
    if spec.get("significance"):
        notes.append(significance_text(spec["significance"]))
    return [note for note in notes if note]


def shares_text(system, episode, row):
    """The histogram of a row's errors as a sentence (STAR and ADORE, Figure 3); empty without one."""
    parts = [
        f"{b['from']:,} or more: {b['queries']:.1%} of queries, {b['errors']:.1%} of errors" for b in histogram(row)
    ]
    return f"Errors of {system}, episode {episode}, by decades: {'; '.join(parts)}." if parts else ""
