"""The papers' tables and figures that this repository makes: python bench/papers.py writes docs/papers.md.

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
Every table and figure of four papers, below the files whose runs make it: {generated} of {total} are generated.
{partial} are partial; the line says what is missing. {cited} are cited: only the paper has them. A name with numbers is
a table of `results/published`: 12/20 means that the paper prints 20 numbers, and a run gives 12 of them. A name alone
is drawn by `teleport figures`; a page is one of the report. Maps show principal components instead of t-SNE. Tables of
settings have the paper's values, and ours if they differ. None has been run at the papers' scale yet.

**Each line of files is a run of its own**, in this order after `--configfile`, such as `config/nq.yaml
config/variants/nq-ance.yaml`. `.venv/bin/teleport joint TABLE FILES` prints a table that several runs fill. Ask
`.venv/bin/teleport forecast FILES --hardware h200` first: MS MARCO's ANCE needs 8 TB and its rank segments 30 TB,
unless `config/variants/fewer-vectors.yaml` comes last.
"""


def state(entry):
    """One of `STATES`. Generated is what lacks nothing: its table has all figures that the paper prints."""
    ours, printed = filled(entry["table"]).split("/") if "table" in entry else (0, 0)
    return "cited" if "cited" in entry else "generated" if ours == printed and "lacks" not in entry else "partial"


def filled(name):
    """Return '12/20': how many printed figures of a published table have one of ours beside them."""
    table = read_published(REPOSITORY / f"config/published/{name}.yaml")
    ours = [cell.ours is not None for cell in table.cells.values() if cell.value is not None]
    return f"{sum(ours)}/{len(ours)}"


def line_of(name, entry):
    """The line of a table or figure."""
    places = [
        *(f"`{each}`" for each in entry.get("figures", [])),
        "table" in entry and f"`{entry['table']}` {filled(entry['table'])}",
        "page" in entry and f"page {entry['page']}",
        "settings" in entry and "below",
    ]
    where = ", ".join(filter(None, places))
    remark = f"partial: {entry['lacks']}" if "lacks" in entry else entry.get("cited") or entry.get("unlike")
    return f"* **{name}**, {'; '.join(filter(None, [entry['what'], where, remark]))}\n"


def runs_of(files):
    """The files of each run: a file of config/ itself begins one, and its variants follow."""
    runs = []
    for file in (Path(file).relative_to("config") for file in files):
        runs += [[]] if file.parent == Path() else []
        runs[-1].append(f"`{file.with_suffix('')}`")
    return runs


def by_configuration(entries):
    """The lines of a paper's tables and figures (text), grouped by the files that make them."""
    groups = {}
    for name, entry in sorted(entries.items(), key=lambda item: state(item[1]) == "cited"):
        runs = "  \n".join(map(", ".join, runs_of(entry.get("with", []))))
        groups.setdefault(runs or "Cited", []).append(line_of(name, entry))
    return "\n".join(f"{runs}:\n\n{''.join(lines)}" for runs, lines in groups.items())


def at(values, path):
    """Return the value at a dotted path of keys and list positions, None if there is none."""
    for key in filter(None, path.split(".")):
        values = values[int(key)] if isinstance(values, list) else (values or {}).get(key)
    return values


def settings_rows(table):
    """Yield the lines of a table of settings. A cell has the paper's value, and ours if it is another one."""
    files = [yaml.safe_load((REPOSITORY / file).read_text()) for file in table["columns"].values()]
    for what, path, values in table["rows"]:
        ours = [at(at(file, table.get("at", "")), path) for file in files]
        yield [what, *map(beside, values, ours)]


def beside(paper, ours):
    """'6837; ours –': the paper's value, and ours if it is another one. A checkpoint's owner is no difference."""
    paper, ours = ("–" if value is None else f"{value}" for value in (paper, ours))
    return paper if ours.rpartition("/")[2] == paper else f"{paper}; ours {ours}"


def markdown(title, heads, rows):
    """A section with a table (text)."""
    lines = [heads, ["---"] * len(heads), *rows]
    return f"\n## {title}\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def write_page(data):
    """The page (text)."""
    counts = Counter(state(entry) for paper in data["papers"] for entry in paper["entries"].values())
    text = HEAD.format(total=counts.total(), **{name: counts[name] for name in STATES})
    for paper in data["papers"]:
        text += f"\n## {paper['name']}\n{by_configuration(paper['entries'])}"
    others = [[f"`{name}`", what, filled(name)] for name, what in data["others"].items()]
    text += markdown("Other published figures", ["table", "of", "with ours"], others)
    for name, table in data["settings"].items():
        text += markdown(f"ANCE-Tele, {name}", ["", *table["columns"]], settings_rows(table))
    return text


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    PAGE.write_text(write_page(yaml.safe_load(DATA.read_text())), encoding="utf-8")
