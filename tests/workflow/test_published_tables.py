"""Published tables and systems from elsewhere in the real DAG."""

import pytest
import yaml
from toy import SPLITS, World

TABLE = {
    "title": "Toy",
    "source": "nowhere",
    "scale": 100,
    "decimals": 1,
    "tolerance": {"value": 0.5, "reason": "toy"},
    "columns": [{"name": "test P@1", "configuration": "toy", "split": "test", "measure": "P@1"}],
    "rows": [
        {"system": "BM25", "values": [100.0], "ours": {"experiment": "BM25"}, "released": "perfect"},
        {"system": "ANCE-Tele", "values": [39.1], "ours": {"experiment": "tele"}},
        {"system": "Cited", "values": [12.0]},
    ],
}

REPORT = {"tables": 1, "all": 1}


@pytest.fixture
def world(tmp_path):
    """A world without experiments: BM25 and a run from elsewhere that has every positive first, but of one query."""
    world = World.create(tmp_path / "world")
    (world.folder / "table.yaml").write_text(yaml.safe_dump(TABLE))
    lines = [f"q{n} Q0 d{n} 1 1.0 t" for n in SPLITS["test"]]
    lines[0] = lines[0].replace(f"d{SPLITS['test'][0]} ", "d0 ")
    (world.folder / "data/perfect.run").write_text("\n".join(lines) + "\n")
    world.config |= {"name": "toy", "experiments": {}, "published": ["table.yaml"]}
    world.config["external"] = {"perfect": {"label": "Perfect but one", "runs": {"test": "data/perfect.run"}}}
    world.config["evaluation"] |= {"measures": ["P@1"], "significance": {"baseline": "BM25", "resamples": 99}}
    return world


def rows(world):
    """{system: cells} of the published table."""
    text = (world.folder / "results/published/toy/table.md").read_text()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return {line[0]: line[1:] for line in lines[2:]}, text


@pytest.mark.slow
def test_from_nothing_run_to_one_row_run(world):
    world.snakemake("published")
    assert not (world.folder / "results/stages").exists()
    table, text = rows(world)
    assert {system: cells[5] for system, cells in table.items()} == dict.fromkeys(table, "not run") | {"Cited": "cited"}
    assert "0 of 2 figures were run." in text
    world.snakemake("tables")
    kinds = {name.split("/")[0] for name in world.manifests()}
    assert kinds == {"corpus", "split", "lexical_index", "bm25", "external", "evaluate"}  # no checkpoint, no training
    table, text = rows(world)
    assert table["BM25"][1:6] == ["100.0", "95.0", "100.0", "+0.0", "exact"]
    assert table["ANCE-Tele"][1:] == ["39.1", "–", "–", "–", "not run", "tele, last episode"]
    assert table["Cited"][1:] == ["12.0", "–", "–", "–", "cited", "cited"]
    assert "1 of 2 figures were run: 1 exact." in text
    main = (world.folder / "results/tables/toy/main.md").read_text()
    assert "| Perfect but one | 0 | 0.950" in main
    assert world.would_run()[0] == {}

    # A changed run file is another run; `published` shows what there is, which is the old one no longer.
    (world.folder / "data/perfect.run").write_text("q100 Q0 d100 1 1 t\n")
    assert world.would_run()[0] == {"external": 1, "evaluate": 1} | REPORT
    world.snakemake("published")
    assert rows(world)[0]["BM25"][1:6] == ["100.0", "–", "100.0", "+0.0", "exact"]
    assert world.would_run()[0] == {"external": 1, "evaluate": 1} | REPORT
