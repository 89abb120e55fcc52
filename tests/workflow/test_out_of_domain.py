"""Another collection in the workflow: what it adds to a finished one, and the table and page that show it."""

import csv

import pytest
import yaml
from toy import CONFIG, SPLITS

from collection_world import write_folder


@pytest.mark.slow
def test_a_collection_elsewhere_is_evaluated_by_what_is_trained_already(world):
    texts = [(f"o{i}", "", f"word{i} word{i + 100} word{i + 200}") for i in range(60)]
    queries = [(f"r{i}", f"word{i} word{i + 100}") for i in range(20)]
    write_folder(world.folder / "data/else", texts, {"test": queries}, {"test": [(i, i, 1) for i in range(20)]})
    other = {"collection": {"source": "folder", "path": "data/else"}, "bm25": {}}
    other["evaluation"] = {"splits": ["test"], "depth": 30, "measures": ["R@5", "RR@10"]}
    (world.folder / "else.yaml").write_text(yaml.safe_dump(other))
    before = world.manifests()
    world.config["evaluation"]["out_of_domain"] = ["else.yaml"]
    world.config["report"] = {}
    counts, _ = world.would_run()
    own = {"corpus": 1, "split": 1, "check": 1, "tokens": 2, "encode": 4, "index": 2, "retrieve": 2}
    own |= {"lexical_index": 1, "bm25": 1, "evaluate": 3}
    assert {kind: counts[kind] for kind in [*own, "train", "merge"]} == own | {"train": 0, "merge": 0}
    world.snakemake()
    assert before.items() <= world.manifests().items()
    with open(world.folder / "results/tables/main.csv", newline="") as file:
        rows = {(row["system"], row["episode"]): row for row in csv.DictReader(file)}
    last = str(len(CONFIG["episodes"]))
    shown = {row: figures["else R@5"] != "" for row, figures in rows.items()}
    assert shown == {row: row[1] in ("0", last) for row in rows} and len(rows) == 2 + len(CONFIG["episodes"])
    assert float(rows["BM25", "0"]["else R@5"]) == 1.0, "both words of a query are in one passage alone"
    assert {figures["RR@10"] != "" for figures in rows.values()} == {True}
    text = (world.folder / "results/tables/main.md").read_text()
    assert "evaluated as else.yaml says" in text and ": 60 passages, 20 test-of-else queries." in text
    assert f" passages, {len(SPLITS['test'])} test queries." in text
    assert "else R@5" in (world.folder / "results/report/_page/index.html").read_text()
    link = world.folder / f"results/experiments/tele/episode-{last}/evaluate-test-of-else"
    assert (link / "manifest.json").is_file()
    assert not world.would_run()[0]
