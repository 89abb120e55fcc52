"""The report page: a folder that a browser opens from the disk, made from what finished stages have left behind."""

import functools
from pathlib import Path

import jinja2
import vl_convert

from teleport.report.page.charts import charts
from teleport.report.page.curves import training_curves
from teleport.report.page.diff import write_comparison
from teleport.report.page.explorer import write_explorer
from teleport.report.page.forgetting import Traces, forgetting_of
from teleport.report.page.negatives import GAP_BINS, MOST_QUERIES, RANK_BIN, SCORED_QUERIES, negatives_of
from teleport.report.page.overview import dag_of, overview_tables, stages_as_run
from teleport.report.page.reader import Reader
from teleport.report.page.scripts import Data, Texts
from teleport.report.page.status import status_of
from teleport.runtime.files import write_text

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("page", "charts", "overview", "training", "negatives", "forgetting", "explorer", "diff", "status", "start")
FILES = "_page"  # below the folder of the page; no configuration can have this name


def write_page(spec, root, output_folder):
    """Write the page of a specification (see page_specs.py) to a folder; returns its size in bytes.

    `index.html` and all that it loads, which lies in `_page/`; `_page/index.html` is a second door, for Snakemake's
    report. `root` (a Path) is the folder that holds results/. Raises ValueError for a torn or edited artefact and for a
    collection that is not there yet.
    """
    reader, files = Reader(root, spec["collection"]), Path(output_folder) / FILES
    tables = root / "results/tables" / spec["name"]
    data, texts = Data(files / "data"), Texts()
    index = {"overview": overview(reader, spec, tables)} | sections(reader, spec, data, texts)
    data.put("status", status_of(reader, spec))
    data.put("charts", {name: chart.to_dict() for name, chart in charts().items()})
    index["passages"] = texts.write(data, reader)
    index["shown"] = {"passages": len(texts.numbers), "bytes": data.bytes}
    data.put("index", index)
    write_scripts(files)
    for folder, place in ((Path(output_folder), f"{FILES}/"), (files, "")):
        write_text(folder / "index.html", page_html(spec, place))
    return sum(path.stat().st_size for path in files.rglob("*") if path.is_file())


def overview(reader, spec, tables):
    """What every section needs: the collection, tables, experiments and stages."""
    stages = stages_as_run(reader, spec)
    return {
        "name": spec["name"],
        "configuration": spec["configuration"],
        "collection": reader.facts(spec["collection"]),
        "tables": overview_tables(reader, spec, tables),
        "stages": stages,
        "planned": len(spec["stages"]),
        "experiments": [
            {"name": e["name"], "label": e["label"], "seeds": [[s["seed"], dag_of(reader, s)] for s in e["seeds"]]}
            for e in spec["experiments"]
        ],
    }


def sections(reader, spec, data, texts):
    """Write the data of the other sections; returns their indexes."""
    traces = Traces(reader)
    curves, negatives, forgetting = {}, {}, {}
    for experiment in spec["experiments"]:
        name, seeds = experiment["name"], experiment["seeds"]
        found = [curve | {"seed": seed["seed"]} for seed in seeds for curve in training_curves(reader, seed)]
        if found:
            data.put(f"training/{name}", found)
            curves[name] = experiment["label"]
        if said := [each for seed in seeds if (each := negatives_of(reader, seed, spec["flags"]))]:
            negatives[name] = {"label": experiment["label"], "seeds": said}
        said = [
            {"seed": seed["seed"], "sets": sets}
            for seed in seeds
            if (sets := forgetting_of(traces, seed, spec["splits"], spec["measures"]))
        ]
        if said:
            forgetting[name] = {"label": experiment["label"], "seeds": said}
    bounds = {"counted": MOST_QUERIES, "scored": SCORED_QUERIES, "rank_bin": RANK_BIN, "gap_bins": GAP_BINS.tolist()}
    data.put("negatives", negatives)
    data.put("forgetting", forgetting)
    explorer = write_explorer(reader, spec, traces, data, texts)
    diff = write_comparison(reader, spec, data, texts)
    return {"training": curves, "bounds": bounds, "explorer": explorer, "diff": diff}


def write_scripts(folder):
    """Copy scripts and style, and write the charts' library."""
    for name in [f"{script}.js" for script in SCRIPTS] + ["page.css"]:
        write_text(folder / name, (ASSETS / name).read_text(encoding="utf-8"))
    write_text(folder / "vega.js", vega_bundle())


@functools.cache
def vega_bundle():
    """Vega, Vega-Lite and Vega-Embed as one script (0.9 MB), which loads nothing."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def page_html(spec, place):
    """The HTML of the page; `place`: the path from it to its files, with a slash."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS), autoescape=True, undefined=jinja2.StrictUndefined
    )
    template = environment.get_template("index.html")
    return template.render(place=place, scripts=SCRIPTS, title=spec["name"] or "Results")
