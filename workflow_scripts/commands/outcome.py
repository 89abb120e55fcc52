"""What a run ends with: the verdicts above its tables, and where to look."""

from pathlib import Path


def outcome(paths):
    """Lines (list of str) on tables in Markdown and on pages."""
    tables = [path for path in map(Path, paths) if path.suffix == ".md"]
    lines = [line for table in tables for line in verdicts_in(table.read_text(encoding="utf-8"))]
    return lines + [f"to look at: {path}" for path in paths]


def verdicts_in(table):
    """The verdicts above a table in Markdown, and the sentence on how they were tested (list of str); [] without."""
    title, *lines = [line for line in table.partition("\n|")[0].splitlines() if line]
    return [f"{title}:", *(line.removeprefix("* ") for line in lines)] if lines else []
