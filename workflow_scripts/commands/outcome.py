"""What a run ends with: the verdicts above its tables, and where to look."""

from pathlib import Path


def outcome(tables, pages):
    """Lines (list of str) on Markdown tables and pages (paths)."""
    lines = [line for path in tables for line in verdicts_in(Path(path).read_text(encoding="utf-8"))]
    return lines + [f"to look at: {path}" for path in [*tables, *pages]]


def verdicts_in(table):
    """The verdicts above a table in Markdown, and the sentence on how they were tested (list of str); [] without."""
    title, *lines = [line for line in table.partition("\n|")[0].splitlines() if line]
    return [f"{title}:", *(line.removeprefix("* ") for line in lines)] if lines else []
