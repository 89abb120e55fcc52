"""The report page of the finished toy workflow: its files, what they were made from, and a page of what is there."""

import json
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pyarrow.parquet as pq
import yaml

from teleport.running.artefact import MANIFEST, file_entry, signed
from teleport.running.files import write_json

MARKUP = {
    0: "</script><script>document.title = 'broken'</script><b>bold</b>",
    1: "\"double\" and 'single' quotes & <i>italics</i> \\ back {{ braces }} {% raw %}",
    2: "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd from right to left",
    3: "long " * 10_000,
}


class Html(HTMLParser):
    """The charts, links and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.charts, self.links, self.ids, self.text, self.inside = [], [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.inside = tag if tag in ("script", "style") else None
        self.chart = given.get("type") == "application/json"
        self.links += [given["href"]] if tag == "a" and "href" in given else []
        self.ids += [given["id"]] if "id" in given else []

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script" and self.chart:
            self.charts.append(json.loads(data))
        elif self.inside is None:
            self.text.append(data)


def read(world, name, page="results/report/_page"):
    """A page of the report."""
    return Html((world.folder / page / name).read_text(encoding="utf-8"))


def data(world, name, page="results/report/_page"):
    """The value that a data file of the page hands over."""
    text = (world.folder / page / f"{name}.js").read_text(encoding="utf-8")
    return json.loads(text.removeprefix(f"page.put({json.dumps(name)},").removesuffix(");\n"))


def episode(world, number, stage):
    return world.folder / f"results/experiments/tele/episode-{number}/{stage}"


def pools(world):
    """Per episode {query: [passages]} of the pools."""
    found = []
    for number in (1, 2, 3):
        offsets, passages = (np.load(episode(world, number, f"merge/{name}.npy")) for name in ("offsets", "passages"))
        found.append({q: passages[offsets[q] : offsets[q + 1]].tolist() for q in range(len(offsets) - 1)})
    return found


def positives(world):
    """{training query: its positives}"""
    split = world.folder / "results/experiments/tele/split-train"
    lines = pq.read_table(split / "qrels.train.parquet").to_pylist()
    found = {}
    for line in lines:
        found.setdefault(line["query"], []).append(line["passage"])
    return found


def record(folder, name):
    """Enter a file that a test has changed into the manifest of its stage."""
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][name] = file_entry(folder / name)
    write_json(folder / MANIFEST, signed(manifest))


def report(world, *arguments):
    """The page from what is finished, below `page`."""
    (world.folder / "toy.yaml").write_text(yaml.safe_dump(world.config))
    command = [sys.executable, "workflow_scripts/manage.py", "report", "toy.yaml", "--output", "page", *arguments]
    done = subprocess.run(command, cwd=world.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
