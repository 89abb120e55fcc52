"""The figures that `figures` asks for, drawn from the artefacts of a toy workflow, against plain loops over these.

All stages run in this process, one after another: what Snakemake does with them is tested elsewhere.
"""

import csv
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from toy import CONFIG, SPLITS, make_checkpoint, make_data

from collection_world import WORDS
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.report.page.contents import page_contents
from teleport.report.page.drawings import negatives_figures
from teleport.report.page.negatives import negatives_of
from teleport.report.paper.figures import chosen
from teleport.report.paper.plan import planned_figures
from teleport.report.paper.write import write_figures
from teleport.report.published import published_tables
from teleport.report.published_table import write_published
from teleport.report.stages import Reader
from teleport.running.job import Job, spec_of
from teleport.running.run import run

pytestmark = pytest.mark.ci(0)
TABLE = {
    "title": "Toy bars",
    "source": "nowhere",
    "decimals": 3,
    "tolerance": {"value": 0.5, "reason": "toy"},
    "columns": [{"name": "test RR@10", "configuration": "toy", "split": "test", "measure": "RR@10"}],
    "rows": [
        {"system": "before", "group": "Tele", "values": [0.25], "ours": {"experiment": "tele", "episode": 0}},
        {"system": "after", "group": "Tele", "values": [None], "ours": {"experiment": "tele"}},
        {"system": "elsewhere", "group": "Cited", "values": [0.5]},
    ],
}
QUERIES = {
    "title": "Toy queries",
    "source": "nowhere",
    "kind": "queries",
    "decimals": 2,
    "tolerance": {"value": 0, "reason": "toy"},
    "columns": [
        {"name": figure, "configuration": "toy", "split": "test", "figure": figure}
        for figure in ("value", "reference value", "rank", "grade", "reference grade")
    ],
    "rows": [{"system": "q105", "query": "q105", "values": [1, 1, 1, 1, 1], "ours": {"experiment": "tele"}}],
}
DEV = {"split": "dev", "queries": 10, "passages": 60, "random": 10, "neighbours": "start"}
FIGURES = {
    "test-map": {"kind": "map", "split": "test", "queries": ["q100", "q110"], "vectors": ["tele"], "start": True,
                 "systems": ["BM25", "tele"], "passages": 8},
    "pool-map": {"kind": "map", "split": "train", "queries": 1, "vectors": ["tele"], "systems": ["random", "tele"]},
    "sorted": {"kind": "scores", "split": "test", "queries": 4, "systems": ["random", "tele"], "depth": 30},
    "refreshes": {"kind": "curves", "systems": ["random", "tele"], "column": "loss", "split": "test",
                  "measure": "RR@10"},
    "second": {"kind": "curves", "systems": ["tele"], "column": "dev RR@10", "episode": 2},
    "bars": {"kind": "bars", "table": "table.yaml"},
    "errors": {"kind": "histogram", "systems": ["tele"]},
    "cases": {"kind": "cases", "systems": ["tele"], "won": 2, "lost": 2},
    "named": {"kind": "cases", "systems": ["tele"], "queries": ["q105"]},
}  # fmt: skip


def run_stages(stages):
    """Run stages, and before each what it reads."""
    for stage in stages:
        job = Path(f"results/stages/{stage.name}/manifest.json")
        if not job.is_file():
            run_stages(stage.inputs.values())
            run(Job(spec_of(stage) | {"code": "test"}))


def toy_config():
    config = json.loads(json.dumps(CONFIG)) | {"name": "toy", "figures": FIGURES, "published": ["queries.yaml"]}
    config["training"] |= {"evaluate_every": 2, "dev": DEV}
    config["experiments"]["random"] = {"label": "Random", "negatives": {"counts": {"random": 4}}, "episodes": [{}, {}]}
    config["evaluation"]["analyses"] = {"errors": "test", "against": {"run": "BM25"}, "lookahead": True}
    return config


class World(NamedTuple):
    """The folder of a finished toy workflow, its configuration, the specification of its page, names of figures."""

    folder: Path
    config: dict
    spec: dict
    names: list


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder, config = tmp_path_factory.mktemp("figures"), toy_config()
    make_data(folder / "data/toy")
    make_checkpoint(folder / "data/bert", WORDS)
    for name, content in (("toy", config), ("table", TABLE), ("queries", QUERIES)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        plan = Plan.of_files(["toy.yaml"])
        run_stages(plan.stages.values())
        spec = page_contents(plan, ["toy.yaml"])
        names = write_figures(plan, folder, folder / "figures")
        for name, published in published_tables(plan).items():
            write_published(published, folder, folder / "published" / name)
    return World(folder, config, spec, names)


def rows(drawn, name):
    with open(drawn.folder / f"figures/{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def stage(drawn, name):
    return drawn.folder / "results/stages" / name


def experiment(drawn, name):
    return next(each for each in drawn.spec["experiments"] if each["name"] == name)["seeds"][0]


def pairs_in(merge):
    """{(query, passage)} of a pool."""
    offsets, passages = (np.load(merge / f"{name}.npy") for name in ("offsets", "passages"))
    queries = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return set(zip(queries.tolist(), passages.tolist(), strict=True))


def mean_of(drawn, evaluate):
    manifest = json.loads((stage(drawn, evaluate) / "manifest.json").read_text())
    return manifest["facts"]["means"]["RR@10"]


def test_every_figure_is_drawn_and_has_its_data_beside_it(drawn):
    folder, names = drawn.folder / "figures", drawn.names
    planes = ("ance-tele-start", "ance-tele")
    of_queries = [f"test-map-{query}-{plane}" for query in ("q100", "q110") for plane in planes]
    charts = [*of_queries, "pool-map", "sorted-random", "sorted-ance-tele", "refreshes-loss", "refreshes-rr-10"]
    charts += ["second", "bars", "errors"]
    tables = ["cases", "named"]
    assert {*charts, *tables} <= set(names) and len(names) == len(set(names))
    for name in charts:
        assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert (folder / f"{name}.png").stat().st_size > 3000 and rows(drawn, name)
    assert all((folder / f"{name}.{suffix}").is_file() for name in tables for suffix in ("md", "tex", "csv"))


def test_a_map_has_what_each_system_found_and_the_relevant_passages(drawn):
    tele = experiment(drawn, "tele")
    searches = {"ANCE-Tele": stage(drawn, tele["runs"][-1]["test"]), "BM25": None}
    main = drawn.spec["tables"][0]["rows"][0]
    searches["BM25"] = stage(drawn, main["runs"]["test"][0])
    found = {}
    for label, evaluate in searches.items():
        run = stage(drawn, json.loads((evaluate / "manifest.json").read_text())["inputs"]["run"])
        found[label] = [f"d{row}" for row in np.load(run / "ids.npy")[0, :8]]  # the first test query
    points = rows(drawn, "test-map-q100-ance-tele")
    assert {row["passage"] for row in points if row["what"] == "relevant"} == {"d100"}
    for row in points:
        if row["shape"] == "passage":
            in_lists = [label for label in ("BM25", "ANCE-Tele") if row["passage"] in found[label]]
            assert row["what"] == " and ".join(in_lists)
    shown = {row["passage"] for row in points} - {"the query"}
    assert shown == {*found["BM25"], *found["ANCE-Tele"], "d100"}
    before = rows(drawn, "test-map-q100-ance-tele-start")
    assert [row["passage"] for row in before] == [row["passage"] for row in points] and before != points
    assert max(abs(float(row[axis])) for row in before + points for axis in "xy") == 1


def test_a_map_of_a_training_query_has_the_negatives_of_several_experiments(drawn):
    points = rows(drawn, "pool-map")
    sources = {part for row in points if row["shape"] == "passage" for part in row["what"].split(" and ")}
    assert sources == {"Random", "ANCE-Tele"}
    assert sum("Random" in row["what"] for row in points) == 4  # its pool


def made_by(encoded):
    """The checkpoint's stage of an encode stage, by its folder."""
    return json.loads((encoded / "manifest.json").read_text())["inputs"]["checkpoint"]


def test_scores_are_less_the_mean_of_all_passages(drawn):
    of_passages = stage(drawn, experiment(drawn, "tele")["vectors"]["3"][1])
    (of_queries,) = (
        path.parent
        for path in of_passages.parent.glob("*/queries.test.npy")
        if made_by(path.parent) == made_by(of_passages)
    )
    queries, passages = np.load(of_queries / "queries.test.npy"), np.load(of_passages / "passages.npy")
    queries, passages = queries.astype(np.float64), passages.astype(np.float64)
    by_query = {}
    for row in rows(drawn, "sorted-ance-tele"):
        by_query.setdefault(row["query"], []).append(float(row["score"]))
    assert len(by_query) == 4
    for query, scores in by_query.items():
        all_scores = passages @ queries[int(query[1:]) - 100]
        expected = np.sort(all_scores)[::-1][:30] - all_scores.mean()
        np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_curves_have_every_refresh_and_every_step(drawn):
    tele = experiment(drawn, "tele")
    points = [row for row in rows(drawn, "refreshes-rr-10") if row["label"] == "ANCE-Tele"]
    assert [int(row["step"]) for row in points] == [0, 4, 8, 14]
    means = [mean_of(drawn, run["test"]) for run in tele["runs"]]
    assert [float(row["value"]) for row in points] == pytest.approx(means, rel=1e-4)
    losses = [float(row["value"]) for row in rows(drawn, "refreshes-loss") if row["label"] == "ANCE-Tele"]
    written = [pd.read_csv(stage(drawn, e["train"]) / "losses.tsv", sep="\t")["loss"] for e in tele["episodes"]]
    assert losses == pytest.approx(pd.concat(written).tolist(), rel=1e-4)
    assert [int(row["step"]) for row in rows(drawn, "second")] == [4, 6, 8]  # of Episode 2, after the four of Episode 1


def test_bars_are_the_figures_of_the_published_table(drawn):
    tele = experiment(drawn, "tele")
    before, after = (round(mean_of(drawn, tele["runs"][number]["test"]), 5) for number in (0, 3))
    drawn_bars = [(row["system"], row["paper"], round(float(row["value"]), 5)) for row in rows(drawn, "bars")]
    assert drawn_bars == [("before", "False", before), ("before", "True", 0.25), ("after", "False", after)]


def test_the_histogram_has_all_queries_and_all_errors(drawn):
    for of in ("queries", "errors"):
        assert sum(float(row["share"]) for row in rows(drawn, "errors") if row["of"] == of) == pytest.approx(1)


def test_cases_are_the_largest_wins_and_losses(drawn):
    tele = experiment(drawn, "tele")
    scores = []
    for evaluate in (tele["runs"][-1]["test"], drawn.spec["tables"][0]["rows"][0]["runs"]["test"][0]):
        frame = pq.read_table(stage(drawn, evaluate) / "per_query.parquet").to_pandas()
        scores.append(frame[frame["measure"] == "RR@10"].set_index("query_id")["value"])
    differences = (scores[0] - scores[1]).sort_values()
    cases = rows(drawn, "cases")
    won = [float(row["difference"]) for row in cases if float(row["difference"]) > 0]
    lost = [float(row["difference"]) for row in cases if float(row["difference"]) < 0]
    assert won == pytest.approx([each for each in differences[::-1][:2] if each > 0], rel=1e-5)
    assert lost == pytest.approx([each for each in differences[:2] if each < 0], rel=1e-5) and lost
    (named,) = rows(drawn, "named")
    assert float(named["difference"]) == pytest.approx(differences["q105"], abs=1e-6)
    assert named["doc_id"] != named["reference_doc_id"] or named["rank"] == "0"
    text = (drawn.folder / "figures/named.md").read_text()
    number = named["doc_id"].removeprefix("d")
    assert f"| q105: {named['query']} |" in text and f"| d{number}: title{number} (" in text
    assert f"{len(SPLITS['test'])} test queries: ANCE-Tele wins" in text


def test_of_errors_the_fewer_are_won():
    frame = pd.DataFrame({"query_id": ["a", "b", "c", "d"], "difference": [3.0, -2.0, 0.0, -5.0]})
    figure = {"queries": None, "won": 1, "lost": 2}
    assert [chosen(frame, "cases", figure, way)["query_id"].tolist() for way in (1, -1)] == [
        ["a", "d", "b"],
        ["d", "a"],
    ]


@pytest.mark.parametrize(
    "figure, said",
    [
        ({"kind": "histogram", "systems": ["nobody"]}, "'nobody'"),
        ({"kind": "map", "split": "dev", "vectors": ["tele"], "systems": ["tele"]}, "'dev' is not evaluated"),
        ({"kind": "scores", "split": "test", "queries": ["q1"], "systems": ["tele"]}, "has no query 'q1'"),
        ({"kind": "cases", "systems": ["tele"], "queries": ["q1"]}, "'q1' is not a judged query"),
        ({"kind": "bars", "table": "no.yaml"}, "no.yaml"),
        ({"kind": "curves", "systems": ["tele"], "split": "test", "measure": "MRR@10"}, "'MRR@10' is not evaluated"),
        ({"kind": "curves", "systems": ["tele"]}, "give a column, a measure or both"),
        ({"kind": "curves", "systems": ["tele"], "column": "lost"}, "wrong.column: .*'lost'"),
    ],
)
def test_what_is_not_there_is_refused(drawn, tmp_path, monkeypatch, figure, said):
    monkeypatch.chdir(drawn.folder)
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(drawn.config | {"figures": {"wrong": figure}}))
    with pytest.raises(Refusal, match=said):
        write_figures(Plan.of_files([tmp_path / "toy.yaml"]), drawn.folder, tmp_path)


def test_no_figure_takes_the_files_of_another(drawn, tmp_path, monkeypatch):
    """`episodes` is a chart of the page."""
    monkeypatch.chdir(drawn.folder)
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(drawn.config | {"figures": {"episodes": FIGURES["errors"]}}))
    plan = Plan.of_files([tmp_path / "toy.yaml"])
    with pytest.raises(Refusal, match="figures.episodes: .*figure"):
        write_figures(plan, drawn.folder, tmp_path)


def test_an_analysis_that_is_not_planned_is_asked_for(drawn, tmp_path, monkeypatch):
    monkeypatch.chdir(drawn.folder)
    evaluation = {key: value for key, value in drawn.config["evaluation"].items() if key != "analyses"}
    changes = {"evaluation": evaluation, "figures": {"wrong": {"kind": "histogram", "systems": ["tele"]}}}
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(drawn.config | changes))
    with pytest.raises(Refusal, match=r"figures.wrong: add evaluation.analyses.errors"):
        planned_figures(Plan.of_files([tmp_path / "toy.yaml"]))


def test_the_published_table_of_single_queries(drawn):
    (named,) = rows(drawn, "named")
    with open(drawn.folder / "published/queries/queries.csv", newline="") as file:
        ours = {line["figure"]: float(line["ours"]) for line in csv.DictReader(file)}
    assert ours["value"] == pytest.approx(float(named["value"]), rel=1e-4)
    assert ours["reference value"] == pytest.approx(float(named["reference_value"]), rel=1e-4)
    assert (ours["rank"], ours["grade"]) == (float(named["rank"]), float(named["grade"] or 0))


def test_new_negatives_are_told_near_or_not_where_the_positives_are_searched_with(drawn):
    """Also where no source mines, with the query or with the positives: of the pools then."""
    seed = experiment(drawn, "random")
    said = negatives_of(Reader(drawn.folder, drawn.spec["collection"]), seed)
    (figure,) = [each for each in negatives_figures(said) if each.title == "New negatives."]
    pools = [pairs_in(stage(drawn, each["pool"])) for each in seed["episodes"]]
    search = stage(drawn, seed["episodes"][0]["lookahead"])
    near = {
        (int(row), int(passage))
        for row, line in zip(np.load(search / "rows.npy"), np.load(search / "ids.npy"), strict=True)
        for passage in line
    }
    new = pools[1] - pools[0]
    assert [(row["episode"], row["near"], row["count"]) for row in figure.rows] == [
        (2, "near the positive before", len(new & near)),
        (2, "elsewhere", len(new - near)),
    ]
    assert new & near and new - near


def test_all_episodes_watch_one_pool(drawn):
    """The dev score that one training ends with is that of the same pool as the next one's: the searches are one."""
    trains = [stage(drawn, each["train"]) for each in experiment(drawn, "tele")["episodes"]]
    searches = {json.loads((train / "manifest.json").read_text())["inputs"]["dev"] for train in trains}
    assert len(searches) == 1
