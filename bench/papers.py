"""Which tables and figures of the papers this repository makes: python bench/papers.py writes docs/papers.md.

It reads docs/papers.yaml, and counts in config/published/*.yaml how many printed figures have one of ours beside them.
"""

import argparse
from collections import Counter
from pathlib import Path

import yaml

from rounds import REPOSITORY
from teleport.report.published import read_published

PAGE, DATA = REPOSITORY / "docs/papers.md", REPOSITORY / "docs/papers.yaml"
STATES = ("generated", "partial", "cited")
HEAD = """\
# The papers' tables and figures
`python bench/papers.py` writes this page from `docs/papers.yaml`. *Generated*: a run of the configuration makes it.
*Partial*: the line says what is missing. *Cited*: only the paper has it. "12 of 20" means that 12 of the 20 printed
figures have one of ours beside them; the other systems are not trained here. "Page" is a page of the report. Maps show
principal components instead of t-SNE. Nothing has been run at the papers' scale yet; tests draw toy figures.

Of {total} tables and figures, {generated} are generated, {partial} partial and {cited} cited.
"""


def state(entry):
    """One of `STATES`."""
    return "cited" if "cited" in entry else "partial" if "lacks" in entry else "generated"


def filled(name):
    """'12 of 20': the printed figures of a published table that have one of ours beside them."""
    table = read_published(REPOSITORY / f"config/published/{name}.yaml")
    ours = [cell.ours is not None for cell in table.cells.values() if cell.value is not None]
    return f"{sum(ours)} of {len(ours)}"


def row_of(name, entry):
    """The line of a table or figure."""
    table, page = entry.get("table"), entry.get("page")
    places = [
        table and f"`{table}`, {filled(table)}",
        page and f"page {page}",
        entry.get("figures") and f"`teleport figures`: {', '.join(f'`{each}`' for each in entry['figures'])}",
        entry.get("settings") and "below",
    ]
    files = [f"`{Path(file).relative_to('config').with_suffix('')}`" for file in entry.get("with", [])]
    said = [state(entry), entry.get("lacks") or entry.get("cited") or entry.get("unlike")]
    return [name, entry["what"], "; ".join(filter(None, places)), ", ".join(files), ": ".join(filter(None, said))]


def at(values, path):
    """What a dotted path of keys and places leads to, None for nothing."""
    for key in filter(None, path.split(".")):
        values = values[int(key)] if isinstance(values, list) else (values or {}).get(key)
    return values


def settings_rows(table):
    """The lines of a table of settings: in each column the paper's value, then ours."""
    files = [yaml.safe_load((REPOSITORY / file).read_text()) for file in table["columns"].values()]
    for what, path, values in table["rows"]:
        ours = [at(at(file, table.get("at", "")), path) for file in files]
        yield [what, *("–" if cell is None else f"{cell}" for pair in zip(values, ours, strict=True) for cell in pair)]


def markdown(title, heads, rows):
    """A section with a table (text)."""
    lines = [heads, ["---"] * len(heads), *rows]
    return f"\n## {title}\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def write_page(data):
    """The page (text)."""
    counts = Counter(state(entry) for paper in data["papers"] for entry in paper["entries"].values())
    text = HEAD.format(total=counts.total(), **{name: counts[name] for name in STATES})
    for paper in data["papers"]:
        heads = ["", "what", "where", "configuration", "state"]
        text += markdown(paper["name"], heads, [row_of(*item) for item in paper["entries"].items()])
    others = [[f"`{name}`", what, filled(name)] for name, what in data["others"].items()]
    text += markdown("Other published figures", ["table", "of", "with ours"], others)
    for name, table in data["settings"].items():
        heads = [head for column in table["columns"] for head in (column, "ours")]
        text += markdown(f"ANCE-Tele, {name}", ["", *heads], settings_rows(table))
    return text


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    PAGE.write_text(write_page(yaml.safe_load(DATA.read_text())), encoding="utf-8")
