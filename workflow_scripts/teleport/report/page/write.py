"""The report page: a folder that a browser opens from the disk, made from what finished stages have left behind."""

import json
from pathlib import Path

import jinja2
import numpy as np
import vl_convert

from teleport.report.page.charts import charts
from teleport.report.page.diff import write_comparison
from teleport.report.page.explorer import write_explorer
from teleport.report.page.forgetting import Traces, forgetting_of
from teleport.report.page.negatives import GAP_BINS, MOST_QUERIES, RANK_BIN, negatives_of
from teleport.report.page.overview import overview, status_of, training_curves
from teleport.report.page.reader import Reader
from teleport.running.files import write_text

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("page", "charts", "overview", "training", "negatives", "forgetting", "explorer", "diff", "status", "start")
FILES = "_page"  # below the folder of the page; no configuration can have this name
BLOCK_CHARACTERS = 2**17  # of passages in one file
MOST_CHARACTERS = 5_000_000  # of all passages together: where there are more, the longest ones are cut
LEAST_CUT = 1000  # but none to less than this


def write_page(spec, root, output_folder):
    """Write the page of a specification (see page_specs.py) to a folder; returns its size in bytes.

    `index.html` and all that it loads, which lies in `_page/`; `_page/index.html` is a second door, for Snakemake's
    report. `root` (a Path) is the folder that holds results/. Raises Refusal for a torn or edited artefact and for a
    collection that is not there yet.
    """
    reader, files = Reader(root, spec["collection"]), Path(output_folder) / FILES
    data, texts = Data(files / "data"), Texts()
    index = {"overview": overview(reader, spec, root / "results/tables" / spec["name"])}
    index |= sections(reader, spec, data, texts)
    data.put("status", status_of(reader, spec))
    data.put("charts", {name: chart.to_dict() for name, chart in charts().items()})
    index["passages"] = texts.write(data, reader)
    index["shown"] = {"passages": len(texts.numbers), "bytes": data.bytes}
    data.put("index", index)
    for name in [f"{script}.js" for script in SCRIPTS] + ["page.css"]:
        write_text(files / name, (ASSETS / name).read_text(encoding="utf-8"))
    # Vega, Vega-Lite and Vega-Embed as one script (0.9 MB), which loads nothing.
    write_text(files / "vega.js", vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    loader = jinja2.FileSystemLoader(ASSETS)
    page = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined).get_template(
        "index.html"
    )
    for folder, prefix in ((Path(output_folder), f"{FILES}/"), (files, "")):
        html = page.render(place=prefix, scripts=SCRIPTS, title=spec["name"] or "Results")
        write_text(folder / "index.html", html)
    return sum(path.stat().st_size for path in files.rglob("*") if path.is_file())


def sections(reader, spec, data, texts):
    """Write the data of all sections but the overview; returns their indexes."""
    traces, training, negatives, forgetting = Traces(reader), {}, {}, {}
    for experiment in spec["experiments"]:
        name, label, seeds = (experiment[key] for key in ("name", "label", "seeds"))
        if curves := [curve | {"seed": seed["seed"]} for seed in seeds for curve in training_curves(reader, seed)]:
            data.put(f"training/{name}", curves)
            training[name] = label
        if pools := [content for seed in seeds if (content := negatives_of(reader, seed, spec["flags"]))]:
            negatives[name] = {"label": label, "seeds": pools}
        sets = [forgetting_of(traces, seed, spec["splits"], spec["measures"]) for seed in seeds]
        if any(sets):
            forgetting[name] = {"label": label, "seeds": [{"sets": of_seed} for of_seed in sets if of_seed]}
    data.put("negatives", negatives)
    data.put("forgetting", forgetting)
    return {
        "training": training,
        "bounds": {"counted": MOST_QUERIES, "rank_bin": RANK_BIN, "gap_bins": GAP_BINS.tolist()},
        "explorer": write_explorer(reader, spec, traces, data, texts),
        "diff": write_comparison(reader, spec, data, texts),
    }


class Data:
    """Writes data files, as scripts, since browsers refuse to fetch from file://; `bytes` is their size so far."""

    def __init__(self, folder):
        self.folder, self.bytes = folder, 0

    def put(self, name, value):
        """Write NAME.js, which hands `value` (plain JSON, finite numbers) to the page."""
        text = f"page.put({script_json(name)},{script_json(value)});\n"
        write_text(self.folder / f"{name}.js", text)
        self.bytes += len(text.encode())


def script_json(value):
    """JSON, of numpy numbers too, that is safe in a script: no text of it can end one, whatever a passage holds."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=np.generic.item)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


class Texts:
    """Passages that the page shows, numbered in the order in which they are first needed, and written once.

    A passage is its row in the collection, or the id of one that the collection lacks (str), which has no text.
    """

    def __init__(self):
        self.numbers = {}

    def number(self, passage):
        """The page's number of a passage (int)."""
        return self.numbers.setdefault(passage if isinstance(passage, str) else int(passage), len(self.numbers))

    def write(self, data, reader):
        """Write blocks p/0.js, p/1.js, … of [doc id, title, text, characters that were cut].

        Returns {"starts": the number of the first passage of each block, "cut": the characters after which passages are
        cut, or None}.
        """
        passages = reader.passages(each for each in self.numbers if isinstance(each, int))
        rows = [passages.get(passage) or [passage, "", ""] for passage in self.numbers]
        limit = longest_that_fit([len(text) for _, _, text in rows], MOST_CHARACTERS, LEAST_CUT)
        rows = [[doc, title, text[:limit], len(text[limit:]) if limit else 0] for doc, title, text in rows]
        ends = np.cumsum([len(text) for _, _, text, _ in rows]) // BLOCK_CHARACTERS
        starts = np.flatnonzero(np.diff(ends, prepend=-1) > 0).tolist()
        for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(rows)], strict=True)):
            data.put(f"p/{number}", rows[start:end])
        return {"starts": starts, "cut": limit}


def longest_that_fit(lengths, total, least):
    """The length (int) at which texts are cut to have `total` characters together, at least `least`; None: they fit."""
    if sum(lengths) <= total:
        return None
    left = total
    for number, length in enumerate(sorted(lengths)):
        level = left // (len(lengths) - number)  # what each of the rest may have
        if length >= level:
            return max(least, level)
        left -= length
