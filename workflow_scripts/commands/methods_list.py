"""The list of docs/methods.md: every file of config/methods, by its paper."""

import re
import textwrap
from pathlib import Path

from teleport.plan.plan import Plan
from teleport.settings.read import load_files

CONFIG = Path(__file__).parents[2] / "config"
MARKED = re.compile(r"(<!-- methods -->\n).*?(<!-- end of methods -->)", re.DOTALL)
WIDTH = 120


def with_methods(text):
    """Return the text of a page with a new list between its markers."""
    return MARKED.sub(lambda match: match[1] + "".join(lines()) + match[2], text)


def method_files():
    """Return the paths of all published methods, sorted by name."""
    return sorted((CONFIG / "methods").glob("*.yaml"), key=lambda path: path.stem)


def methods_plan():
    """Return the `Plan` of all methods in one, on the embedded collection."""
    return Plan(*load_files([CONFIG / "config.yaml", *method_files()]))


def lines():
    """Yield the items of the list: a method with its paper, or a paper and below it its methods.

    The parts of a method that its settings leave out are in italics, for a paper if they are the same in all of its
    methods.
    """
    experiments, papers = methods_plan().experiments, {}
    for path in method_files():
        about = experiments[path.stem].about
        papers.setdefault(about.paper, []).append((f"[{path.stem}](../config/methods/{path.name})", about))
    for paper, methods in papers.items():
        if len(methods) == 1:
            ((name, about),) = methods
            yield item(f"{name}, {paper}: {about.rule}", about.left_out)
            continue
        shared = {about.left_out for _, about in methods}
        yield item(paper, *shared if len(shared) == 1 else [None])
        for name, about in methods:
            yield item(f"{name}: {about.rule}", None if len(shared) == 1 else about.left_out, "  ")


def item(text, left_out, indent=""):
    """Return an item of the list, in lines of at most `WIDTH` characters."""
    text += f"; *{left_out}*" if left_out else ""
    bullet, rest = f"{indent}* ", f"{indent}  "
    wrapped = textwrap.wrap(
        text, WIDTH, initial_indent=bullet, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(wrapped) + "\n"
