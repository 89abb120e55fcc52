"""A published table as people read it: CSV, Markdown, LaTeX."""

from collections import Counter

import pandas as pd

from teleport.report.render import escape
from teleport.runtime.artefact import MANIFEST, STAGES, Artefact

NONE = "–"


def cells(table, lines):
    """The table as text (DataFrame): a line per published figure; the column Group is there when a row has one."""
    columns = {
        "Group": [line.row.group or "" for line in lines],
        "System": [line.row.system for line in lines],
        "Figure": [line.column.name for line in lines],
        "Published": [number(line.published, line, "not reported") for line in lines],
        "Released checkpoint": [number(line.released, line, NONE) for line in lines],
        "Ours": [ours(line) for line in lines],
        "Difference": [NONE if line.difference is None else f"{line.difference:+.{line.decimals}f}" for line in lines],
        "Verdict": [line.verdict for line in lines],
        "Experiment": [experiment(line) for line in lines],
    }
    if not any(columns["Group"]):
        del columns["Group"]
    if table.kind != "measures":  # a checkpoint has neither hours nor episodes
        del columns["Released checkpoint"]
    return pd.DataFrame(columns)


def number(value, line, absent):
    return absent if value is None else f"{value:.{line.decimals}f}"


def ours(line):
    """Our figure, with its deviation over seeds, and how many of the planned seeds it has when that is not all."""
    if line.ours is None:
        return NONE
    deviation = "" if line.deviation is None else f" ± {line.deviation:.{line.decimals}f}"
    partial = f" ({line.seeds} of {line.planned_seeds} seeds)" if line.seeds < line.planned_seeds else ""
    return number(line.ours, line, NONE) + deviation + partial


def experiment(line):
    """The experiment that fills the line, and after which episode; "cited" for a system that nothing here repeats."""
    if line.row.ours is None:
        return "cited"
    name, episode = line.row.ours.experiment, line.row.ours.episode
    if name == "BM25" or line.row.figure:
        return name
    return f"{name}, {'last episode' if episode == 'last' else f'episode {episode}'}"


def footer(table, spec, lines, root):
    """What a reader must know beside the figures: a list of sentences."""
    others = sorted({c.configuration for c in table.columns} - {spec["configuration"]})
    notes = [f"Published: {table.source}.", count(lines)]
    if len(others) == len({column.configuration for column in table.columns}):
        notes.append(f"Only the configuration {' or '.join(others)} can fill this table.")
    elif others:
        notes.append(f"Figures of {' and '.join(others)}: {', '.join(f'results/published/{name}' for name in others)}.")
    notes.append(f"Tolerance ±{table.tolerance.value:g}, above and below: {table.tolerance.reason}.")
    if any(line.deviation is not None for line in lines):
        notes.append("Mean ± standard deviation over seeds.")
    if table.kind == "measures":
        notes.append("Released checkpoint: the system as its makers gave it, under our evaluation.")
    if any(line.ours is not None or line.released is not None for line in lines):
        notes.append(data(Artefact(root / STAGES / spec["collection"]).facts, lines))
    return notes + table.notes + hardware(table, lines, root)


def data(facts, lines):
    """On what our figures were measured, in numbers: a toy collection must not be mistaken for the paper's."""
    splits = sorted({line.column.split or "train" for line in lines} & set(facts["splits"]))
    queries = ", ".join(f"{facts['splits'][split]['queries']:,} {split} queries" for split in splits)
    return f"Ours on collection {facts['corpus_digest'][:16]}: {facts['num_passages']:,} passages, {queries}."


def count(lines):
    """How many lines were run, and with which verdict."""
    counts = Counter(line.verdict for line in lines if line.ours is not None)
    ran = sum(counts.values())
    parts = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
    return f"{ran} of {len(lines)} figures were run{': ' + parts if parts else ''}. What was not run is not reproduced."


def hardware(table, lines, root):
    """Where our hours were spent; nothing for other tables."""
    if table.kind != "hours":
        return []
    names = sorted({name for line in lines for name in line.stages if (root / STAGES / name / MANIFEST).is_file()})
    found = [Artefact(root / STAGES / name).manifest["provenance"] for name in names]
    machines = {p["hardware"].get("gpu") or p["hardware"]["processor"] for p in found}
    notes = [f"Hours of ours on {' and '.join(sorted(machines))}."] if machines else []
    if any(provenance["attempt"] > 1 for provenance in found):
        notes.append("Of a search that was interrupted only the time of its last attempt counts.")
    return notes


def csv_text(lines):
    """One line per figure, unrounded, with the stages behind it."""
    frame = pd.DataFrame(
        {
            "system": [line.row.system for line in lines],
            "group": [line.row.group for line in lines],
            "figure": [line.column.name for line in lines],
            "configuration": [line.column.configuration for line in lines],
            "split": [line.column.split for line in lines],
            "measure": [line.column.measure for line in lines],
            "published": [line.published for line in lines],
            "released": [line.released for line in lines],
            "ours": [line.ours for line in lines],
            "ours sd": [line.deviation for line in lines],
            "seeds": [line.seeds for line in lines],
            "difference": [line.difference for line in lines],
            "verdict": [line.verdict for line in lines],
            "experiment": [experiment(line) for line in lines],
            "stages": [" ".join(line.stages) for line in lines],
        }
    )
    return frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def markdown(table, lines, notes):
    """The table in Markdown, with title and footer (text)."""
    texts = cells(table, lines)
    right = ("Published", "Released checkpoint", "Ours", "Difference")
    body = [list(texts.columns), ["--:" if name in right else ":--" for name in texts.columns]]
    body += [[text.replace("|", r"\|") for text in row] for row in texts.to_numpy().tolist()]
    printed = "\n".join(f"| {' | '.join(row)} |" for row in body)
    return f"{table.title}\n\n{printed}\n\n" + "\n\n".join(notes) + "\n"


def latex(table, name, lines, notes):
    """The table in LaTeX, for the packages booktabs and longtable, with caption and footer (text)."""
    texts = cells(table, lines).map(escape)
    texts["Difference"] = texts["Difference"].str.replace("-", "$-$")
    right = ("Published", "Released checkpoint", "Ours", "Difference")
    body = texts.style.hide(axis="index").to_latex(
        column_format="".join("r" if name in right else "l" for name in texts.columns),
        hrules=True,
        caption=escape(table.title),
        label=f"tab:{name}",
        environment="longtable",
    )
    return body + "{\\footnotesize\n" + "".join(f"{escape(note)}\\par\n" for note in notes) + "}\n"
