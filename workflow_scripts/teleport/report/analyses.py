"""Tables of analyses: a row per system and episode, and a column for each figure of the analyses that are configured.

A table, as the plan describes it (rows.py):

    {"name": "analyses", "title": "...", "collection": {"corpus": "corpus/KEY", …}, "errors of": "dev",
     "against": "BM25",
     "significance": {...},
     "rows": [{"system": "ANCE", "episode": 1, "seeds": [1], "analyses": {"errors": ["errors/KEY", one per seed],
               "contrast": ["contrast/KEY", ...], "negatives": ["negatives_overlap/KEY", ...]}}]}

A row has only the analyses that apply to it: an episode without a pool has no `negatives`. `significance`, as in
table.py, is set where forgetting is tested.
"""

from itertools import chain

import numpy as np
import pandas as pd

from teleport.report.render import SEVERAL_SEEDS, Printed, cell, write_forms
from teleport.report.stages import Stages, collection_text, warnings_of
from teleport.report.table import Table, by_mark, csv_frame, marks_of, means_over_seeds, row_cells
from teleport.report.verdicts import significance_text, test_column

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
SHARES = ("queries", "errors")  # of a histogram
TESTED, TESTED_SPLIT = "Forgotten", "train"
NOTES = {
    "errors": "Errors: irrelevant passages of the whole corpus with a higher score than a positive, summed over the "
    "positives of a query, mean over {num_queries:,} {split} queries. Top-K errors count at most K per "
    "positive. Ties: irrelevant passages with the positive's score, which do not count.",
    "contrast": "Overlap: the share of the first {depth} passages that both have. Wins, losses and "
    "ties of {num_queries:,} queries by {measure}.",
    "negatives": "Negatives in the top K: share of a training query's negatives that are among its first K "
    "negatives under the checkpoint that was trained on them.",
    "forgetting": "Forgotten and gained: shares of {num_queries:,} training queries whose reciprocal rank in the first "
    "100 passages (or mining.depth, when that is less) is lower, or higher, after an episode.",
}
DECADE = "{range}: {queries:.1%} of queries, {errors:.1%} of errors"


def write_analyses(spec, root, output_folder):
    """Write NAME.csv, .md, .tex and .sources.csv of `spec` to `output_folder`, from results/ below `root` (a Path)."""
    stages, test = Stages(root), spec.get("significance")
    rows = [{name: list(map(stages.artefact, names)) for name, names in r["analyses"].items()} for r in spec["rows"]]
    figures = [figures_of(row, spec, COLUMNS) for row in rows]
    names = [column for analysis in COLUMNS for row in rows for column in figures_of(row, spec, [analysis])]
    by_seed = [{column: values for column, (values, _) in row.items()} for row in figures]
    means, deviations = means_over_seeds(by_seed, dict.fromkeys(names))
    forgotten = {
        i: pd.DataFrame(np.stack([np.load(stage.path("forgotten.npy")) for stage in row["forgetting"]], axis=1) * 1.0)
        for i, row in enumerate(rows)
        if test and "forgetting" in row
    }
    tested = by_mark({TESTED: test_column(forgotten, spec["rows"], test, TESTED, TESTED_SPLIT)})
    named = pd.DataFrame(spec["rows"], columns=["system", "episode"])
    table = Table(named, means, deviations.dropna(axis=1, how="all"), *tested)
    shares = [{f"{of} {b['range']}".replace(",", ""): b[of] for b in histogram(row) for of in SHARES} for row in rows]
    sources = [
        [row["system"], row["episode"], name, stage]
        for row in spec["rows"]
        for name, names in row["analyses"].items()
        for stage in names
    ]
    write_forms(
        Printed(spec["name"], spec["title"], cells(spec, table, figures), footer(spec, table, rows, stages)),
        pd.concat([csv_frame(table), pd.DataFrame(shares)], axis=1),
        output_folder,
        sources=pd.DataFrame(sources, columns=["system", "episode", "analysis", "stage"]),
    )


def figures_of(row, spec, analyses):
    """{column: ([figure of each seed], form of a cell)} of some analyses of a row ({analysis: [Artefact per seed]})."""
    figures = {}
    for analysis in (analysis for analysis in analyses if analysis in row):
        facts = [stage.facts for stage in row[analysis]]
        top = str(facts[0].get("top", facts[0].get("depth")))
        for column, (fact, form) in COLUMNS[analysis].items():
            name = column.replace("TOP", top).replace("AGAINST", str(spec["against"]))
            values = [each[fact] for each in facts]
            figures[name] = values, ",.0f" if len(values) == 1 and isinstance(values[0], int) else form
    return figures


def histogram(row):
    """[{"range": of errors, as text, and SHARES}]: the histogram of a row's errors, means over seeds; empty without
    one."""
    seeds = [stage.facts["histogram"] for stage in row.get("errors", ())]
    return [
        {"range": errors_text(decade["from"])}
        | {of: sum(each[of] for seed in seeds for each in seed[at : at + 1]) / len(seeds) for of in SHARES}
        for at, decade in enumerate(max(seeds, key=len, default=()))
    ]


def errors_text(lowest):
    """The errors of a decade, such as "10-99" (text)."""
    return f"{lowest:,}-{10 * lowest - 1:,}" if lowest else "0"


def cells(spec, table, figures):
    """The table as text (DataFrame)."""
    texts, deviations = row_cells(table.rows), table.deviations.reindex(columns=table.means.columns)
    for column, means in table.means.items():
        forms = [row[column][1] if column in row else "" for row in figures]
        marks = marks_of(table, column, spec.get("significance"), TESTED_SPLIT)
        lines = zip(means, deviations[column], forms, marks, strict=True)
        texts[column] = [cell(mean, sd, form, mark=mark) for mean, sd, form, mark in lines]
    return texts


def footer(spec, table, rows, stages):
    """Return the sentences (list) that a reader needs beside the figures."""
    notes = [f"Collection {collection_text(stages.facts(spec['collection']['corpus']))}"]
    if not table.deviations.empty:
        notes.append(SEVERAL_SEEDS)
    facts = {analysis: row[analysis][0].facts for row in rows for analysis in row}
    for analysis in filter(facts.get, NOTES):
        notes.append(NOTES[analysis].format_map(facts[analysis] | {"split": spec["errors of"]}))
        for of, row in zip(spec["rows"], rows, strict=True):
            if analysis == "errors" and (decades := histogram(row)):  # STAR and ADORE, Figure 3
                shares = "; ".join(DECADE.format_map(decade) for decade in decades)
                notes.append(f"Errors of {of['system']}, episode {of['episode']}, by decades: {shares}.")
    test = spec.get("significance")
    notes += significance_text(test, [TESTED_SPLIT], table.comparisons) if test else []
    return notes + warnings_of(stages, chain.from_iterable(chain(*row["analyses"].values()) for row in spec["rows"]))
