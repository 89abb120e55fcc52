"""A paper's table with our figures beside its own, from the stages that are finished.

A table, as the plan describes it (published.py):

    {"name": "ance-tele-table-3", "file": "config/published/ance-tele-table-3.yaml",
     "collections": {"marco": {"corpus": "corpus/KEY", "splits": {"dev": "split/KEY"}}},
     "lines": [{"row": 0, "column": 0, "ours": [{"evaluate": ["evaluate/KEY"]} per seed], "released": […]}]}

`collections` has the configurations that fill the table, `lines` only the cells that they can fill.
"""

from collections import Counter

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from teleport.evaluation.significance import LEAST_SEEDS
from teleport.refusal import Refusal
from teleport.report.figures import figures, over_seeds
from teleport.report.published import read_published
from teleport.report.render import NONE, SEVERAL_SEEDS, Printed, cell, write_forms
from teleport.report.stages import Stages, collection_text, machines, warnings_of
from teleport.report.words import listed

HERE = "Here"  # the column of NAME.tex with the experiments that repeat a system, or "cited"
EQUIVALENT = (
    "Equivalent: by two one-sided tests at 5 % each, ours and the published system differ by less than the tolerance. "
    "The published figure counts as one run, and its seeds as varying like ours."
)
LEGEND = "Cells: published / ours; published only, if nothing here repeats the system."


def write_published(spec, root, output_folder):
    """Write NAME.csv, .md and .tex of `spec` below `output_folder`, from results/ below `root` (a Path): a line per
    figure, but NAME.tex has the shape of the paper's table. Unfinished stages count as not run."""
    printed, paper, values = printed_published(spec, root)
    write_forms(printed, values, output_folder, paper)


def printed_published(spec, root):
    """(a line per figure, the paper's shape: two `Printed` tables; the figures as a frame) of a specification."""
    table, stages = read_published(root / spec["file"]), Stages(root)
    lines = pd.DataFrame(make_lines(table, spec, stages))
    texts, notes = pd.DataFrame(map(figure_cells, lines.to_dict("records"))), footer(table, spec, lines, stages)
    paper = Printed(spec["name"], table.title, paper_shape(lines, texts), [LEGEND, *notes], wide=True)
    named = lines[["group", "system", "figure"]].fillna("")
    frame = pd.concat([named, texts, lines[["verdict", "experiment"]]], axis=1).rename(columns=str.capitalize)
    unused = [] if frame["Group"].any() else ["Group"]
    unused += [] if any(row.released for row in table.rows) else ["Released checkpoint"]
    printed = Printed(spec["name"], table.title, frame.drop(columns=unused), notes)
    values = lines.drop(columns=["row", "decimals", "planned seeds"]).assign(stages=lines["stages"].str.join(" "))
    return printed, paper, values


def published_measures(specs, root):
    """{(evaluate stages of all seeds, measure): [(title of a table, its figure as a measure)]} of specifications."""
    values = {}
    for spec in specs:
        table = read_published(root / spec["file"])
        figures_of = table.cells
        for line in spec["lines"]:
            figure = figures_of[line["row"], line["column"]]
            if figure.kind != "measures" or figure.value is None:
                continue
            for runs in filter(None, (line["ours"], line["released"])):
                names = tuple(dict.fromkeys(run["evaluate"][0] for run in runs))
                values.setdefault((names, figure.column.measure), []).append((table.title, figure.value / figure.scale))
    return values


def make_lines(table, spec, stages):
    """The lines of a table (`make_line`): those of its configurations, or all if no configuration of the table is
    given. Figures that the paper does not print are left out, except for a system of ours with no published figure at
    all."""
    planned = {(line["row"], line["column"]): line for line in spec["lines"]}
    here = any(column.configuration in spec["collections"] for column in table.columns)
    lines = []
    for (i, j), figure in table.cells.items():
        row, configuration = figure.row, figure.column.configuration
        unpublished = row.ours is not None and not any(value is not None for value in row.values)
        shown = not here or configuration in (None, *spec["collections"])
        if shown and (figure.value is not None or (unpublished and configuration)):
            lines.append(make_line(table, figure, planned.get((i, j), {}), stages) | {"row": i})
    if not lines:
        names = listed(spec["collections"]) or "no configuration"
        raise Refusal(f"{spec['file']} has no figure for {names}: take {spec['name']} out of `published`.")
    return lines


def make_line(table, figure, planned, stages):
    """A published figure and ours (None: there is none) as a dict; planned: the specification's line, or {}."""
    runs, released = planned.get("ours", []), planned.get("released", [])
    row, column, published, source = figure.row, figure.column, figure.value, figure.ours
    decimals = max(table.decimals if column.decimals is None else column.decimals, own_decimals(published))
    by_seed, theirs = (figures(figure, each, stages) for each in (runs, released))
    ours, deviation = over_seeds(by_seed)
    reach = reach_of_a_run(by_seed)
    experiment = source.experiment if source else "cited"
    tolerance = table.tolerance.of(queries_of(column, runs, stages), figure.scale) if by_seed else None
    if source and experiment != "BM25" and not row.figure:
        experiment += ", last episode" if source.episode == "last" else f", episode {source.episode}"
    return {
        "system": row.system,
        "group": row.group,
        "figure": column.name,
        "configuration": column.configuration,
        "split": column.split,
        "measure": column.measure,
        "published": published,
        "released": theirs[0] if theirs else None,
        "ours": ours,
        "ours sd": deviation,
        "seeds": len(by_seed),
        "difference": difference(published, ours, decimals),
        "tolerance": tolerance,
        "reach": reach,
        "verdict": verdict(published, ours, decimals, tolerance, reach) if source else "cited",
        "experiment": experiment,
        "stages": [name for run in runs + released for names in run.values() for name in names],
        "decimals": decimals,
        "planned seeds": len(runs),
    }


def queries_of(column, runs, stages):
    """The number of queries, or questions with answers, that a figure is a mean over; None without a finished run of
    them."""
    name = next((names[0] for run in runs for names in run.values() if stages.finished(names[0])), None)
    facts = stages.facts(name) if name else {}
    return facts.get("num_questions" if (column.measure or "").startswith("Cov@") else "num_queries")


def own_decimals(value):
    """The fewest decimals that show a figure in full: 0.09 → 2, 38 → 0."""
    text = f"{value:.10f}".rstrip("0") if value is not None else ""
    return len(text.partition(".")[2])


def difference(published, ours, decimals):
    """Ours minus published, as printed; None unless there are both."""
    return None if None in (published, ours) else round(round(ours, decimals) - published, decimals)


def reach_of_a_run(by_seed):
    """Half of the 90 % interval of one more run's difference from the mean of ours, whose figures these are (list of
    float): t · sd · √(1 + 1/S). None for fewer than LEAST_SEEDS seeds."""
    seeds = len(by_seed)
    if seeds < LEAST_SEEDS:
        return None
    return float(stdtrit(seeds - 1, 0.95) * over_seeds(by_seed)[1] * np.sqrt(1 + 1 / seeds))


def verdict(published, ours, decimals, tolerance, reach=None):
    """Return the verdict of a line: "equivalent" when the whole interval of a run, by its `reach`, is within the
    tolerance (Schuirmann 1987); "exact" when ours, rounded as printed, is the published figure; "within tolerance",
    "off (above)" or "off (below)", by the difference of the rounded figures; "not run" without a figure of ours, "no
    published figure" when there is nothing to compare ours with. A figure that is too good is off, too.
    """
    if ours is None:
        return "not run"
    if published is None:
        return "no published figure"
    above = difference(published, ours, decimals)
    if reach is not None and abs(ours - published) + reach <= tolerance:
        return "equivalent"
    if abs(above) <= tolerance:
        return "within tolerance" if above else "exact"
    return "off (above)" if above > 0 else "off (below)"


def figure_cells(line):
    """The figures of a line as text by column, with the decimals of the figure. Ours has its deviation over seeds, and
    the number of seeds if not all planned ones are finished."""
    form = f".{line['decimals']}f"
    partial = 0 < line["seeds"] < line["planned seeds"]
    seeds = f" ({line['seeds']} of {line['planned seeds']} seeds)" if partial else ""
    return {
        "published": "not reported" if pd.isna(line["published"]) else cell(line["published"], None, form),
        "released checkpoint": cell(line["released"], None, form),
        "ours": cell(line["ours"], line["ours sd"], form, mark=seeds),
        "difference": cell(line["difference"], None, f"+{form}"),
    }


def paper_shape(lines, texts):
    """The lines of a table (frame of `make_line`) in the paper's shape: a row per system, a column per figure (frame),
    and Group when a row has one; texts: their `figure_cells`. A released checkpoint that was evaluated here has a row
    of its own below its system."""
    published = texts["published"].where(lines["published"].notna(), NONE)
    beside = published.where(lines["verdict"] == "cited", published + " / " + texts["ours"])
    rows, lines = [], lines.assign(beside=beside, theirs=texts["released checkpoint"], group=lines["group"].fillna(""))
    for _, of_row in lines.groupby("row", sort=False):
        group, system = of_row.iloc[0][["group", "system"]]
        run = of_row[of_row["verdict"] != "cited"]
        here = "; ".join(run["experiment"].unique()) or "cited"
        here = "not run" if len(run) and run["ours"].isna().all() else here
        cells, released = (dict(zip(of_row["figure"], of_row[of], strict=True)) for of in ("beside", "theirs"))
        rows.append({"Group": group, "System": system} | cells | {HERE: here})
        if of_row["released"].notna().any():
            rows.append({"Group": group, "System": f"{system} (released checkpoint)"} | released | {HERE: "evaluated"})
    frame = pd.DataFrame(rows).fillna(NONE)
    groups = ["Group"] if frame["Group"].any() else []
    frame["Group"] = frame["Group"].where(frame["Group"] != frame["Group"].shift(), "")  # only in a group's first row
    return frame[[*groups, "System", *lines["figure"].unique(), HERE]]


def footer(table, spec, lines, stages):
    """Return the sentences (list) that a reader needs beside the figures."""
    filling = {column.configuration for column in table.columns if column.configuration}
    others = sorted(filling - set(spec["collections"]))
    notes = [f"Published: {table.source}.", count_verdicts(lines)]
    if not filling:
        return [*notes, *table.notes]
    if len(others) == len(filling):
        notes.append(f"Only the configuration {listed(others, 'or')} can fill this table.")
    elif others:
        notes.append(f"Figures of {listed(others)}: {', '.join(f'results/published/{name}' for name in others)}.")
    notes.append(str(table.tolerance))
    if lines["reach"].notna().any():
        notes.append(EQUIVALENT)
    if lines["ours sd"].notna().any():
        notes.append(SEVERAL_SEEDS)
    if any(row.released for row in table.rows):
        notes.append("Released checkpoint: the authors' checkpoint under our evaluation.")
    ran = lines[lines[["ours", "released"]].notna().any(axis=1)]  # names the collection: a toy is not the paper's
    names = [name for name in spec["collections"] if name in set(ran["configuration"])]
    notes += [on_collection(name, spec, lines, stages) for name in names]
    timed = any(cell.kind in ("hours", "costs") for cell in table.cells.values())
    notes += table.notes + (spent_on(lines, stages) if timed else [])
    return notes + warnings_of(stages, lines["stages"].sum())


def on_collection(name, spec, lines, stages):
    """Return the text on the collection of a configuration's figures, with its name if there are several."""
    collection, of = spec["collections"][name], f" of {name}" if len(spec["collections"]) > 1 else ""
    here = lines[lines["configuration"] == name]
    counts = stages.query_counts(collection["splits"])
    splits = sorted(set(here["split"].fillna("train")) & set(counts))
    queries = (f"{counts[split]:,} {split} queries" for split in splits)
    return f"Ours{of} on collection {collection_text(stages.facts(collection['corpus']), *queries)}"


def count_verdicts(lines):
    """A sentence: how many of the lines that something here repeats were run, with which verdicts, and how many are
    only cited."""
    counts = Counter(lines.loc[lines["ours"].notna(), "verdict"])
    ran, cited = sum(counts.values()), sum(lines["verdict"] == "cited")
    if cited == len(lines):
        return "All figures are cited: nothing here repeats these systems."
    verdicts = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
    text = f"{ran} of {len(lines) - cited} figures were run{': ' + verdicts if verdicts else ''}. "
    text += "Figures without a run are not reproduced."
    return text + (f" {cited} more {'figures are' if cited > 1 else 'figure is'} only cited." if cited else "")


def spent_on(lines, stages):
    """Return the sentences (list) on the hardware of our times."""
    finished = list(map(stages.artefact, sorted(filter(stages.finished, set(lines["stages"].sum())))))
    notes = [f"Our times were measured on {machines(finished)}."] if finished else []
    again = [stage for stage in finished if stage.manifest["provenance"]["attempt"] > 1]
    if partly := sorted({stage.manifest["kind"] for stage in again if "earlier_seconds" not in stage.facts}):
        notes.append(f"The time of an interrupted stage is that of its last attempt ({', '.join(partly)}).")
    return notes
