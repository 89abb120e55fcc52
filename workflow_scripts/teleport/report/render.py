"""The forms of any table: Markdown and LaTeX from one frame of text cells, CSV from one of values."""

import re
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from teleport.running.files import write_text

NONE = "–"
SEVERAL_SEEDS = "Mean ± standard deviation over seeds."
# Columns aligned to the left.
WORDS = {"System", "Negatives", "Loss", "Index", "Group", "Figure", "Verdict", "Experiment", "Here", "Split"}
LATEX_SIGNS = {sign: "\\" + sign for sign in "&%$#_{}"} | {"±": r"$\pm$", "†": r"$^{\dagger}$", "<": "$<$", ">": "$>$"}
LATEX_SIGNS |= {"‡": r"$^{\ddagger}$", "§": r"$^{\S}$", "¶": r"$^{\P}$", "∗": "$^{*}$"}
LATEX_SIGNS |= {"|": "$|$"}  # else a dash in TeX's usual encoding, as < and > are other signs there
LATEX_SIGNS |= {"α": r"$\alpha$", "β": r"$\beta$"}
LATEX_SIGNS |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}

TAG = r"<(?=[A-Za-z/!?])"  # would vanish from the page that shows a table
TAKES_EFFECT = re.compile(r"[\\`*\[\]]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)|" + TAG)  # in Markdown

SHRINK = "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%\n"  # where it is too wide


class Printed(NamedTuple):
    """A table ready to be printed. name: of its files and of its label in LaTeX; frame: text cells, **bold** between
    two pairs of stars; notes: sentences below the table; wide: in LaTeX it spans both columns of a page, and shrinks if
    it is wider; verdicts: lines above the table, left out in LaTeX."""

    name: str
    title: str
    frame: pd.DataFrame
    notes: list
    wide: bool = False
    verdicts: list = []


def write_forms(table, figures, folder, paper=None, **frames):
    """Write NAME.md and NAME.tex of a `Printed` table, and NAME.csv of its `figures` (DataFrame), to a folder. paper:
    another `Printed` table for NAME.tex; frames: {KEY: the content of NAME.KEY.csv (DataFrame)}."""
    forms = {"csv": csv_text(figures), "md": markdown(table), "tex": latex(paper or table)}
    forms |= {f"{key}.csv": csv_text(frame) for key, frame in frames.items()}
    for suffix, text in forms.items():
        write_text(Path(folder) / f"{table.name}.{suffix}", text)


def cell(mean, deviation, form, bold=False, mark=""):
    """A figure as text: "**0.505** ± 0.003†"; NONE where `mean` is NaN or None, no ± where `deviation` is."""
    if pd.isna(mean):
        return NONE
    text = f"**{mean:{form}}**" if bold else f"{mean:{form}}"
    return text + ("" if pd.isna(deviation) else f" ± {deviation:{form}}") + mark


def shortened(text, most):
    """The beginning of a text, on one line: at most `most` characters, cut between words if it has several."""
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    whole, space, _ = text[:most].rpartition(" ")
    return f"{whole if space else text[: most - 1]}…"


def markdown(table):
    """A `Printed` table in Markdown, with title and notes (text)."""
    names = list(table.frame.columns)
    forms = [literal if name in WORDS else without_tags for name in names]
    rows = [[form(text) for form, text in zip(forms, line, strict=True)] for line in table.frame.to_numpy().tolist()]
    lines = [map(without_tags, names), [":--" if name in WORDS else "--:" for name in names], *rows]
    escaped = [" | ".join(text.replace("|", "\\|") for text in line) for line in lines]
    body = "\n".join(f"| {line} |" for line in escaped)
    above = "\n".join(table.verdicts) + "\n\n" if table.verdicts else ""
    return f"{without_tags(table.title)}\n\n{above}{body}\n\n" + "\n\n".join(map(without_tags, table.notes)) + "\n"


def without_tags(text):
    """A text in Markdown, in which no HTML takes effect; an escaped < stays."""
    return re.sub(r"(?<!\\)" + TAG, "&lt;", text)


def literal(text):
    """A text, such as a label, as Markdown that shows it as it is."""
    return TAKES_EFFECT.sub(r"\\\g<0>", text)


def latex(table):
    """A `Printed` table in LaTeX (text), for the package booktabs and, when it is wide, graphicx."""
    sides = "".join("l" if name in WORDS else "r" for name in table.frame.columns)
    style = table.frame.map(latex_cell).rename(columns=heading if table.wide else escape).style.hide(axis="index")
    caption, label, environment = escape(table.title), f"tab:{table.name}", "table*" if table.wide else "table"
    layout = {"environment": environment, "position_float": "centering", "column_format": sides, "hrules": True}
    body = style.to_latex(caption=caption, label=label, **layout)
    if table.wide:
        body = body.replace(r"\begin{tabular}", SHRINK + r"\begin{tabular}")
        body = body.replace(r"\end{tabular}", r"\end{tabular}}")
    notes = "\n".join(rf"\par\footnotesize {escape(note)}" for note in table.notes)
    return body.replace(rf"\end{{{environment}}}", notes + "\n" + rf"\end{{{environment}}}")


def heading(name):
    """A column's name for LaTeX, its last word on a second line."""
    first, space, last = name.rpartition(" ")
    return rf"\shortstack{{{escape(first)}\\{escape(last)}}}" if space else escape(name)


def latex_cell(text):
    """A cell for LaTeX: bold as a command, a true minus before a number, and braces before what the end of the line
    above would take for its own option."""
    bold = re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", escape(text))
    return re.sub(r"^(?=[\[*])", "{}", re.sub(r"^-(?=\d)", "$-$", bold))


def escape(text):
    """Plain text for LaTeX."""
    return text.translate(str.maketrans(LATEX_SIGNS))


def csv_text(frame):
    """CSV with six significant digits; empty cells for missing values."""
    return frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")
