"""The forms of any table: Markdown and LaTeX from one frame of text cells, CSV from one of values."""

import re
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from teleport.runtime.files import write_text

NONE = "–"
WORDS = {
    "System",
    "Negatives",
    "Loss",
    "Index",
    "Group",
    "Figure",
    "Verdict",
    "Experiment",
}  # columns aligned to the left
LATEX_SIGNS = {sign: "\\" + sign for sign in "&%$#_{}"} | {"±": r"$\pm$", "†": r"$^{\dagger}$", "<": "$<$", ">": "$>$"}
LATEX_SIGNS |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


class Printed(NamedTuple):
    """A table ready to be printed.

    name: of its files and of its label in LaTeX; frame: text cells, **bold** between two pairs of stars; notes:
    sentences below the table; long: it may take several pages.
    """

    name: str
    title: str
    frame: pd.DataFrame
    notes: list
    long: bool = False


def write_forms(table, figures, folder):
    """Write NAME.md and NAME.tex of a `Printed` table, and NAME.csv of its `figures` (DataFrame), to a folder."""
    for suffix, text in {"csv": csv_text(figures), "md": markdown(table), "tex": latex(table)}.items():
        write_text(Path(folder) / f"{table.name}.{suffix}", text)


def markdown(table):
    """A `Printed` table in Markdown, with title and notes (text)."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in table.frame.to_numpy().tolist()]
    names = list(table.frame.columns)
    lines = [names, [":--" if name in WORDS else "--:" for name in names], *rows]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table.title}\n\n{body}\n\n" + "\n\n".join(table.notes) + "\n"


def latex(table):
    """A `Printed` table in LaTeX (text), for the packages booktabs and, when it is long, longtable."""
    layout = {"environment": "longtable"} if table.long else {"position_float": "centering"}
    sides = "".join("l" if name in WORDS else "r" for name in table.frame.columns)
    style = table.frame.map(latex_cell).rename(columns=escape).style.hide(axis="index")
    caption, label = escape(table.title), f"tab:{table.name}"
    body = style.to_latex(column_format=sides, hrules=True, caption=caption, label=label, **layout)
    if table.long:
        return body + "{\\footnotesize\n" + "".join(f"{escape(note)}\\par\n" for note in table.notes) + "}\n"
    notes = "\n".join(rf"\par\footnotesize {escape(note)}" for note in table.notes)
    return body.replace(r"\end{table}", notes + "\n" + r"\end{table}")


def latex_cell(text):
    """A cell for LaTeX: bold as a command, and a true minus before a number."""
    bold = re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", escape(text))
    return re.sub(r"^-(?=\d)", "$-$", bold)


def escape(text):
    """Plain text for LaTeX."""
    return text.translate(str.maketrans(LATEX_SIGNS))


def csv_text(frame):
    """CSV with six significant digits; empty cells for missing values."""
    return frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")
