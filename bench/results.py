"""Writes README's table and docs/measured/forgetting.md, each from its data in docs/measured/*.json.

    python bench/results.py    measures what is finished below results/, then writes all sections again

A maker is a module of SECTIONS with two functions. `measured()` reads finished stages: {part of a section: {"rows":
[{"row": name, "seeds": how many, …}], "made": `made_by`, …}}, JSON. `section(data)` is the text between the marks, from
the data alone. Parts without results, or with fewer seeds than the data, keep the data.
"""

import argparse
import importlib
import json
import re
import textwrap

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rounds import REPOSITORY
from teleport.evaluation.significance import Scores
from teleport.report.figures import seconds
from teleport.report.stages import machines
from teleport.running.artefact import STAGES, Artefact, is_finished
from teleport.running.files import read_saved, write_json, write_text

DATA = REPOSITORY / "docs/measured"
SECTIONS = {"demo": "demo_table", "forgetting": "forgetting"}  # name: module
IN_README = "demo"  # the section whose page is README.md; the others have a page of their own in DATA
BEGIN, END = "<!-- made by python bench/results.py from docs/measured/{name}.json -->\n", "<!-- until here -->\n"


def made_by(names, **budget):
    """How finished stages (names) came about: commits, machine and time, with the entries of `budget` (dict)."""
    artefacts = [Artefact(STAGES / name) for name in sorted(names) if is_finished(name)]
    origins = [artefact.manifest["provenance"] for artefact in artefacts]
    cores = sorted({origin["hardware"]["cores"] for origin in origins})
    minutes = sum(map(seconds, artefacts)) / 60
    threads = sorted({origin["threads"] for origin in origins})
    each = " or ".join(map(str, threads)) + (" core" if threads == [1] else " cores")
    types = sorted({artefact.facts["dtype"] for artefact in artefacts if "dtype" in artefact.facts})  # of encodings
    return budget | {
        "commits": sorted({str(origin["git_commit"]) for origin in origins}),
        "machine": f"{' or '.join(map(str, cores))} cores of {', '.join([machines(artefacts), *types])}",
        "time": f"{len(origins):,} stages, {minutes:,.0f} minutes of {each}",
    }


def made_text(made):
    """The stamp below a part: "Commit …; 2 cores of …; 970 stages, 61 minutes of 1 of them; seeds …; budget"."""
    commits = ", ".join(re.sub(r"^(.{7})[0-9a-f]*", r"\1", commit) for commit in made["commits"])
    seeds = f"{'seed' if len(made['seeds']) == 1 else 'seeds'} {', '.join(map(str, made['seeds']))}"
    return wrapped(f"*Commit {commits}; {made['machine']}; {made['time']}; {seeds}; {made['budget']}.*")


def wrapped(text):
    """A paragraph in lines of at most 120 characters."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def page_of(name):
    """The page that has a section (Path)."""
    return REPOSITORY / "README.md" if name == IN_README else DATA / f"{name}.md"


def read_data(name):
    """The data of a section, {} if there are none."""
    return read_saved(DATA / f"{name}.json")


def joined(old, new):
    """Data `old`, replaced by those parts of `new` that have all of their rows and seeds (dict)."""
    return old | {name: part for name, part in new.items() if covers(part, old.get(name, {}))}


def covers(part, other):
    """Whether a part of a section has the rows of another one, with as many seeds."""
    seeds, others = ({row["row"]: row["seeds"] for row in each.get("rows", ())} for each in (part, other))
    return all(seeds.get(row, -1) >= number for row, number in others.items())


def write_scores(path, scores):
    """Write the scores of queries (DataFrame) as Parquet. Values are few, so a dictionary keeps them in a byte each.
    All scores of a query lie together: systems that differ little then compress to a fifth."""
    columns = ["measure", "query", "part", "row", "seed", "value"]
    scores = scores[columns].astype({"seed": "Int64"}).sort_values(columns[:-1], kind="stable")
    table = pa.Table.from_pandas(scores, preserve_index=False)
    pq.write_table(table, path, compression="zstd", compression_level=19, use_dictionary=True)


def lines_of(stages, evaluated, measure, **own):
    """The scores of an evaluate stage (name) by a measure as `write_scores` takes them, a line for each query
    (DataFrame); own: the values of the other columns."""
    values = stages.query_scores(evaluated)[measure]
    return pd.DataFrame({"query": values.index, "value": values.to_numpy()}).assign(measure=measure, **own)


def read_scores(path):
    """{part: {(row, measure): `Scores`}} of a file of `write_scores`, queries in one order; {} if it does not exist."""
    if not path.is_file():
        return {}
    frame, scores = pq.read_table(path).to_pandas(), {}
    for (part, *key), own in frame.groupby(["part", "row", "measure"], sort=False):
        seeds = tuple(int(seed) for seed in own["seed"].dropna().unique())
        lines = own.assign(seed=own["seed"].fillna(-1)).pivot(index="query", columns="seed", values="value")
        made = Scores(lines[list(seeds) or [-1]].sort_index().to_numpy(), seeds)
        scores.setdefault(part, {})[tuple(key)] = made
    return scores


def replace_section(page, begin, text):
    """Write `text` between the mark `begin` and END of a page (Path). Raises ValueError if the page does not have them
    once."""
    old = page.read_text(encoding="utf-8")
    pattern = re.escape(begin) + ".*?" + re.escape(END)
    new, count = re.subn(pattern, lambda _: begin + text + END, old, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{page} has the mark {begin.strip()} {count} times, not once")
    write_text(page, new)


def write_section(name):
    """Measure what is finished, keep the data of the rest, and write the section of the page; returns its text."""
    maker = importlib.import_module(SECTIONS[name])
    data = joined(read_data(name), json.loads(json.dumps(maker.measured())))
    write_json(DATA / f"{name}.json", data)
    text = maker.section(data)
    replace_section(page_of(name), BEGIN.format(name=name), text)
    if hasattr(maker, "figure") and (chart := maker.figure(data)):
        draw(chart, DATA / f"{name}.svg")
    return text


def draw(chart, path):
    """Write a chart (Vega-Lite, dict) as SVG."""
    import vl_convert

    write_text(path, vl_convert.vegalite_to_svg(chart | {"background": "white"}))


def number(value, form=".3f"):
    """A figure as text, – for None or NaN."""
    return "–" if pd.isna(value) else format(value, form)


def plus_minus(mean, deviation):
    """ "0.505 ± 0.003"; for a single seed without deviation."""
    return number(mean) + ("" if pd.isna(deviation) else f" ± {deviation:.3f}")


def markdown(heads, rows):
    """A table (text); only the first column is aligned to the left."""
    lines = [heads, [":--", *["--:"] * (len(heads) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    for section in SECTIONS:
        write_section(section)
        print(f"written: the section of {DATA / section}.json in {page_of(section)}")
