"""Every table compiles as LaTeX, where TeX is installed, in a document of two columns as papers have them."""

import shutil
import subprocess

import pandas as pd
import pytest
from test_published import plan

from paths import REPOSITORY
from teleport.report.published import published_tables
from teleport.report.published_table import write_published
from teleport.report.render import Printed, latex

DOCUMENT = r"""\documentclass[twocolumn]{article}
\usepackage{booktabs,graphicx}
\begin{document}
%s
\end{document}
"""
STRANGE = [r"50%_of {#1} ~ $x^2 \ & †", "α = 0.5, β > 0 – Télé ×2", "**bold** ± 0.1", "-0.3", "[2] Ours", "*"]

needs_tex = pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="no TeX here: `apt-get install texlive-latex-recommended` brings it"
)


def compiled(texts, folder):
    """The log of a document of some tables. Raises AssertionError with its end when it does not compile."""
    (folder / "tables.tex").write_text(DOCUMENT % "\n\\clearpage\n".join(texts))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "tables.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0 and (folder / "tables.pdf").stat().st_size > 0, done.stdout[-1500:]
    return done.stdout


@needs_tex
def test_the_papers_tables_compile(tmp_path):
    texts = []
    for path in sorted((REPOSITORY / "config/published").glob("*.yaml")):
        ((_, spec),) = published_tables(plan(path)).items()
        write_published(spec, tmp_path, tmp_path)
        texts.append((tmp_path / f"{path.stem}.tex").read_text())
    assert "Float too large" not in compiled(texts, tmp_path)


@needs_tex
@pytest.mark.parametrize("wide", [False, True])
def test_strange_texts_compile(tmp_path, wide):
    frame = pd.DataFrame({"System": STRANGE, "RR@10 of A_1": STRANGE})
    text = latex(Printed("strange", "A & B_1", frame, ["† differs, p < 0.05", *STRANGE], wide))
    assert r"p $<$ 0.05" in text
    compiled([text], tmp_path)


def test_no_row_begins_with_what_the_line_above_takes_for_its_option():
    """After the end of a line TeX skips white space and looks for `[0.5em]` or a star."""
    text = latex(Printed("labels", "Labels", pd.DataFrame({"System": ["A", "[2] Ours", "* Theirs", "**B**"]}), []))
    rows = text.partition("\\midrule")[2].partition("\\bottomrule")[0].split("\\\\")
    assert [row.strip() for row in rows[:4]] == ["A", "{}[2] Ours", "{}* Theirs", r"\textbf{B}"]
