"""What a run ends with: the verdicts above its tables, and where to look."""

from pathlib import Path


def outcome(tables, page):
    """Lines (list of str) on Markdown tables and a page (paths), those of them that are there."""
    lines, made = [], [Path(path) for path in tables if Path(path).exists()]
    for path in made:
        lines += verdicts_in(path.read_text(encoding="utf-8"))
    return lines + [f"to look at: {path}" for path in [*made, *filter(Path.exists, [Path(page)])]]


def verdicts_in(table):
    """The verdicts above a table in Markdown, and the sentence on how they were tested (list of str); [] without."""
    title, *lines = [line for line in table.partition("\n|")[0].splitlines() if line]
    return [f"{title}:", *(line.removeprefix("* ") for line in lines)] if lines else []
