"""The table of docs/methods.md: every file of config/methods, by its paper."""

import re
from pathlib import Path

from teleport.plan.plan import Plan
from teleport.settings.read import load_files

CONFIG = Path(__file__).parents[2] / "config"
MARKED = re.compile(r"(<!-- methods -->\n).*?(<!-- end of methods -->)", re.DOTALL)
HEADS = ("method", "published", "rule", "here")


def with_methods(text):
    """Return the text of a page with a new table between its markers."""
    lines = ["".join(f"| {' | '.join(cells)} |\n") for cells in (HEADS, ["---"] * len(HEADS), *rows())]
    return MARKED.sub(lambda found: found[1] + "".join(lines) + found[2], text)


def method_files():
    """Return the paths of all published methods, sorted by name."""
    return sorted((CONFIG / "methods").glob("*.yaml"), key=lambda path: path.stem)


def methods_plan():
    """The `Plan` of all methods in one, on the embedded collection."""
    return Plan(*load_files([CONFIG / "config.yaml", *method_files()]))


def rows():
    """Yield the cells of each method; those of one paper follow each other, and only the first names it."""
    experiments, papers = methods_plan().experiments, {}
    for path in method_files():
        about = experiments[path.stem].about
        papers.setdefault(about.paper, []).append((path, about))
    for paper, methods in papers.items():
        published, here = paper, None
        for path, about in methods:
            same = about.left_out and about.left_out == here
            name = f"[{path.stem}](../config/methods/{path.name})"
            yield [name, published, about.rule.replace("|", "\\|"), "″" if same else about.left_out or ""]
            published, here = "″", about.left_out
