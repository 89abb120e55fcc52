"""Re-ranked candidates, tables of analyses, and runs scored by judgments alone, in the real DAG."""

import csv

import pytest
from toy import NUM_PASSAGES, SPLITS, World

from teleport.plan.plan import Plan
from teleport.report.page.contents import page_contents
from teleport.report.page.overview import page_table
from teleport.report.stages import Reader


def read_table(path):
    """The lines of a CSV as {column: text}."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_candidates_are_reranked_and_errors_counted_in_the_whole_corpus(world, monkeypatch):
    """The runs are as deep as the corpus is large, so that errors can be read from them too."""
    candidates = [f"q{n}\td{(n + k) % NUM_PASSAGES}\tquery\tpassage\n" for n in SPLITS["test"] for k in range(5)]
    candidates += ["q100\tnowhere\tquery\tpassage\n", "q1\td1\tof another split\tpassage\n"]
    (world.folder / "data/candidates.tsv").write_text("".join(candidates))
    del world.config["episodes"][1:]
    world.config["evaluation"] |= {
        "depth": NUM_PASSAGES,
        "measures": ["RR@10", f"Errors@{NUM_PASSAGES}"],
        "rerank": {"test": {"file": "data/candidates.tsv", "form": "tsv", "measures": ["RR@10", "R@5"]}},
        "analyses": {"errors": "test", "against": {"run": "BM25"}, "negatives": True, "forgetting": True},
    }
    said = ["negatives", "gap", "index", "seconds"]
    world.config["ablations"] = {"a": {"title": "A", "columns": said, "experiments": {"the-same": {}}}}
    world.snakemake()
    bm25, zero_shot, tele = read_table(world.folder / "results/tables/main.csv")
    assert bm25["RR@10 (re-ranked)"] == "" and list(tele)[4:6] == ["RR@10 (re-ranked)", "R@5 (re-ranked)"]
    assert float(tele["R@5 (re-ranked)"]) == 1 >= float(tele["RR@10 (re-ranked)"]) > float(tele["RR@10"])
    first, *others = read_table(world.folder / "results/tables/analyses.csv")
    assert (first["system"], first["Overlap with BM25"], first["Errors"]) == ("BM25", first["Overlap with BM25"], "")
    for run, analysed in zip((zero_shot, tele), others, strict=True):
        assert float(analysed["Errors"]) == pytest.approx(float(run[f"Errors@{NUM_PASSAGES}"]), rel=1e-4)
        assert sum(float(analysed[name]) for name in ("Wins over BM25", "Losses", "Ties")) == len(SPLITS["test"])
    assert 0 < float(others[1]["Negatives in the top 100"]) <= 1 and others[0]["Negatives in the top 100"] == ""
    lost, gained = (float(others[1][name]) for name in ("Forgotten", "Gained"))
    assert 0 < lost + gained <= 1 and others[0]["Forgotten"] == ""
    external = next(m for name, m in world.manifests().items() if name.startswith("external"))
    assert (external["facts"]["unknown_passages"], external["facts"]["unknown_queries"]) == (1, 1)
    assert "(re-ranked)" in (world.folder / "results/tables/main.sources.csv").read_text()
    (row,) = read_table(world.folder / "results/tables/a.csv")
    assert row["gap"] == "0-3" and row["index"].endswith(" MB") and float(row["seconds"]) > 0
    monkeypatch.chdir(world.folder)
    spec = page_contents(Plan.of_files(["toy.yaml"]), ["toy.yaml"])
    (table,) = (table for table in spec["tables"] if table["name"] == "a")
    shown = page_table(Reader(world.folder, spec["collection"]), spec, table)
    texts = shown["printed"].frame[[name.capitalize() for name in said]].to_numpy().tolist()
    assert texts == [[*(row[name] for name in said[:3]), f"{float(row['seconds']):,.0f}"]]
    assert world.would_run()[0] == {}


@pytest.mark.slow
def test_a_run_and_judgments_alone_give_a_table(tmp_path):
    """Without the collection's folder, in which texts and queries are."""
    world = World.create(tmp_path / "world")
    (world.folder / "data/toy/qrels.test.tsv").rename(world.folder / "qrels.txt")
    for name in ("toy", "bert"):
        (world.folder / "data" / name).rename(world.folder / f"no-{name}")
    lines = [f"q{n} Q0 {passage} 1 {score} t\n" for n in SPLITS["test"] for passage, score in (("x", 2), (f"d{n}", 1))]
    (world.folder / "a.run").write_text("".join(lines[2:]))
    world.config = {
        "collection": {"source": "judgments", "splits": {"test": {"qrels": "qrels.txt"}}},
        "external": {"a": {"label": "A", "runs": {"test": "a.run"}}},
        "evaluation": {"splits": ["test"], "measures": ["RR@10", "Hole@10"], "significance": {"baseline": "A"}},
    }
    world.snakemake()
    (row,) = read_table(world.folder / "results/tables/main.csv")
    assert (row["system"], row["RR@10"], row["Hole@10"]) == ("A", "0.475", "0.5")
    assert ": 20 judged passages, 20 test queries." in (world.folder / "results/tables/main.md").read_text()
    assert {name.split("/")[0] for name in world.manifests()} == {"corpus", "split", "external", "evaluate"}
    pages = list((world.folder / "results/report/_page").glob("query-test-*.html"))
    assert len(pages) == 20 and not list(pages[0].parent.glob("experiment*"))
    without_text = ['<span class="id">x</span>\n<p dir="auto"></p>' in page.read_text() for page in pages]
    assert sum(without_text) == 19, "a passage without a text is its id; one query has no results"
