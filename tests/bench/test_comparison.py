"""Methods at equal budgets: what config/comparison.yaml plans, how a rate is chosen, and what the table says."""

import importlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench_world import bench_on_path  # noqa: F401

from collection_world import WORDS
from paths import REPOSITORY, SHARED
from teleport.evaluation.significance import Scores, compare
from teleport.plan.plan import Plan
from teleport.running.artefact import STAGES, file_entry, is_finished
from teleport.running.files import write_json
from teleport.running.job import Job
from teleport.running.run import run
from teleport.settings.read import load_files

NAME = "comparison-apidocs-layers-2"
BUDGET, STEP = 5120, 32  # texts that a training reads, in all and in a step
HALF_ON_QUERIES = {"adore"}


@pytest.fixture
def bench():
    return importlib.import_module("comparison")


@pytest.fixture
def table():
    return importlib.import_module("comparison_table")


@pytest.fixture
def plan(bench):
    return bench.plan_of(bench.files("apidocs", "layers-2"))


@pytest.mark.parametrize("start", ["layers-2", "whole"])
@pytest.mark.parametrize("collection", ["apidocs", "docstrings", "squad", "nfcorpus"])
def test_every_trained_system_reads_as_many_passages(bench, collection, start, monkeypatch, tmp_path):
    if collection in ("squad", "nfcorpus"):
        if not SHARED.is_dir():
            pytest.skip("no folder `shared` beside the repository: real collections are not here")
        monkeypatch.chdir(tmp_path)
        (tmp_path / "data").symlink_to(SHARED / "collections")
    plan = bench.plan_of(bench.files(collection, start))
    systems = bench.trained(plan)
    assert len(systems) == 13
    for name in systems:
        for trajectory in plan.trajectories[name]:
            expected = (BUDGET // 2, BUDGET // 2) if name in HALF_ON_QUERIES else (BUDGET, 0)
            assert bench.read_in_training(trajectory) == expected, name
            for train in trajectory.trains:
                training = train.settings.training
                texts = 1 if training.trains == ["query"] else 1 + training.negatives_per_query
                assert training.batch_queries * texts == STEP, name


def test_all_draw_from_as_many_ranks(bench, plan):
    """Ranks 1 to 20 of the same search, but for the arm that is about other ranks."""
    for name in bench.trained(plan):
        for pool in plan.trajectories[name][0].pools:
            for source, draw in pool.settings.sources.items():
                widths = [last - first + 1 for first, last in draw.ranks or ()]
                assert source == "momentum" or widths == [20], name
                assert source == "momentum" or name == "ranks-81-100" or draw.ranks == [(1, 20)], name
        live = [train.settings.live for train in plan.trajectories[name][0].trains if train.settings.live]
        assert all(found.depth == 20 for found in live)


def test_the_best_rate_is_chosen_the_lowest_of_equals(bench):
    scores = {2e-5: {"a": 0.3, "b": 0.5, "c": 0.1}, 6e-5: {"a": 0.4, "b": 0.5}, 2e-4: {"a": 0.35, "b": 0.2, "c": 0.9}}
    assert bench.choose(scores) == {"a": (6e-5, 0.4), "b": (2e-5, 0.5)}


def test_the_parts_of_a_collection(bench, monkeypatch, tmp_path):
    """The grid has every rate, the dev queries and a seed that the finals lack; these have the rate of each system."""
    monkeypatch.chdir(tmp_path)
    made, best = [], {"in-batch": 2e-4, "star": 2e-5}

    def run_part(files, cores):
        made.append(bench.plan_of(files))

    def dev_scores(plan):
        rate = plan.config.training.learning_rate
        return {name: 0.5 + (best.get(name, 6e-5) == rate) for name in bench.trained(plan)}

    monkeypatch.setattr(bench, "dev_scores", dev_scores)
    bench.run(NAME, bench.files("apidocs", "layers-2"), bench.RATES, 2, run_part)
    *grid, finals = made
    for plan, rate in zip(grid, bench.RATES, strict=True):
        assert plan.config.evaluation.splits == ["dev"]
        assert {experiment.seeds[0] for experiment in plan.experiments.values()} == {bench.GRID_SEED}
        rates = {train.settings.training.learning_rate for of in plan.trajectories.values() for train in of[0].trains}
        assert rates == {rate}
    assert finals.config.evaluation.splits == ["test"] and len({plan.config.name for plan in made}) == 4
    for name in bench.trained(finals):
        assert finals.experiments[name].seeds == [1, 2, 3]
        rates = {train.settings.training.learning_rate for train in finals.trajectories[name][0].trains}
        assert rates == {best.get(name, 6e-5)}, name
    part = json.loads((tmp_path / f"results/comparison/{NAME}.json").read_text())
    assert set(part["dev"].values()) == {1.5} and part["rates"] == list(bench.RATES)
    made.clear()
    bench.run(NAME, bench.files("apidocs", "layers-2"), [6e-5], 2, run_part)
    assert [plan.config.name for plan in made] == [f"{NAME}-seeds"]  # nothing to choose


def test_what_cannot_be_trained_on_a_collection_is_left_out_of_its_parts(bench, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    systems = {}
    for collection in ("docstrings", "nfcorpus"):
        (file,) = bench.part("all", bench.files(collection, "whole"), {})
        systems[collection] = set(json.loads((tmp_path / file).read_text())["ablations"]["comparison"]["experiments"])
    assert systems["docstrings"] - systems["nfcorpus"] == {"filter-relative", "filter-above"}


def test_a_part_is_one_call_of_snakemake(bench, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    called = []
    monkeypatch.setattr(bench.subprocess, "run", lambda command: called.append(command) or FakeEnd(3))
    with pytest.raises(SystemExit) as ended:
        bench.snakemake(bench.grid_part(NAME, bench.files("apidocs", "layers-2"), 2e-5), 2)
    ((*_, separator, target),) = called
    assert ended.value.code == 3
    assert (separator, target) == ("--", f"results/tables/{NAME}-rate-2e-05/comparison.csv")


class FakeEnd:
    def __init__(self, returncode):
        self.returncode = returncode


PROVENANCE = {"git_commit": 40 * "a", "threads": 1, "wall_seconds": 2.0, "hardware": {"cores": 2, "processor": "X"}}


def finish(stage, values=None):
    """A finished stage as the runner leaves it, and what it reads; values: RR@10 of each query, of an evaluation."""
    folder, files = STAGES / stage.name, {}
    for read in stage.inputs.values():
        if not is_finished(read.name):
            finish(read)
    folder.mkdir(parents=True, exist_ok=True)
    if stage.kind == "evaluate":
        lines = [(f"q{i}", measure, value) for measure in ("RR@10", "R@100") for i, value in enumerate(values)]
        columns = dict(zip(("query_id", "measure", "value"), map(list, zip(*lines, strict=True)), strict=True))
        pq.write_table(pa.table(columns), folder / "per_query.parquet")
        files = {"per_query.parquet": file_entry(folder / "per_query.parquet")}
    manifest = {"kind": stage.kind, "key": stage.key, "files": files, "provenance": PROVENANCE}
    write_json(folder / "manifest.json", manifest | {"facts": {"num_passages": 5067}})


@pytest.fixture
def finished(bench, monkeypatch, tmp_path):
    """{system: float [queries, seeds]} of systems that are finished, as are two seeds of three of `star`."""
    monkeypatch.chdir(tmp_path)
    bench.run(NAME, bench.files("apidocs", "layers-2"), [6e-5], 2, lambda files, cores: None)
    plan = bench.plan_of(json.loads((tmp_path / f"results/comparison/{NAME}.json").read_text())["files"])
    rng = np.random.default_rng(0)
    base, values = rng.random((60, 1)), {}
    for name, gain in {"in-batch": 0.0, "bm25": 0.02, "q-neg": 0.2, "ance-tele": 0.3, "star": 0.0}.items():
        values[name] = base + gain + rng.normal(0, 0.02, (60, 3))
        for trajectory, of_seed in zip(plan.trajectories[name], values[name].T, strict=True):
            for stage in (row.stage for row in trajectory.rows if name != "star" or trajectory.seed < 3):
                finish(stage, of_seed)
    finish(plan.bm25_runs["test"], base[:, 0])
    return values


def test_the_table_by_hand(bench, table, finished):
    ((name, part),) = table.measured().items()
    rows = {row["row"]: row for row in part["rows"]}
    assert (name, list(rows)) == (NAME, ["BM25", "in-batch", "zero-shot", "bm25", "q-neg", "ance-tele"])
    assert "star" in part["missing"] and "in-batch" not in part["missing"]
    ours, theirs = (Scores(finished[name], (1, 2, 3)) for name in ("q-neg", "in-batch"))
    found = compare(ours, theirs)
    assert (rows["q-neg"]["difference"], rows["q-neg"]["p"]) == (
        pytest.approx(found.difference),
        pytest.approx(found.p),
    )
    means = finished["q-neg"].mean(axis=0)
    assert (rows["q-neg"]["RR@10"], rows["q-neg"]["RR@10 sd"]) == (
        pytest.approx(means.mean()),
        pytest.approx(means.std(ddof=1)),
    )
    assert {name: row["encoded"] / 5067 for name, row in rows.items() if row["seeds"]} == {
        "in-batch": 0, "bm25": 0, "q-neg": 3, "ance-tele": 3
    }  # fmt: skip
    assert [name for name, row in rows.items() if row.get("mined")] == ["q-neg", "ance-tele"]
    mined = Scores((finished["q-neg"] + finished["ance-tele"]) / 2, (1, 2, 3))
    assert part["mined"]["systems"] == 2 and part["mined"]["p"] == pytest.approx(compare(mined, theirs).p)
    assert "p" not in rows["in-batch"] and "p" not in rows["BM25"] and rows["bm25"]["training"] == 2.0
    text = table.section({name: part})
    assert "* apidocs, start layers-2: **mined negatives are better than in-batch ones here** (RR@10 +0.25" in text
    assert "| ANCE-Tele above Q-Neg | ANCE-Tele, Table 3, BERT: 36.0, 28.7 | apidocs | +0.1" in text
    assert "5,120 passages read in training; rates 6e-05" in text.replace("\n", " ")
    assert "Not run: apidocs: DPR, " in text
    drawn = table.figure({name: part})
    assert {row["system"]: row["encoded"] for row in drawn["data"]["values"]}["Q-Neg"] == 3 * 5067


@pytest.mark.parametrize(
    ("difference", "p", "said"),
    [
        (0.1, 0.01, "are better than in-batch ones here"),
        (-0.1, 0.01, "are worse than in-batch ones here"),
        (0.1, 0.03, "cannot be told from in-batch ones here"),  # of two collections, by Holm .06
    ],
)
def test_the_sentence_follows_from_its_p(table, difference, p, said):
    other = {"systems": 9, "difference": 0.1, "p": 0.4 if p < 0.02 else 0.03}
    parts = {"apidocs": {"mined": {"systems": 9, "difference": difference, "p": p}}, "squad": {"mined": other}}
    first, second = table.sentences("whole", parts).split("\n* ")
    assert f"apidocs, start whole: **mined negatives {said}** (RR@10 {difference:+.3f}" in first
    assert "cannot be told" in second


TOY = {
    "collection": {"source": "folder", "path": "toy"},
    "encoder": {
        "checkpoint": {"folder": "bert"}, "pooling": "mean", "normalize": True, "scale": 20.0,
        "max_query_tokens": 12, "max_passage_tokens": 24,
    },
    "mining": {"depth": 30},
    "negatives": {"counts": {"query": 4}},
    "training": {
        "loss": "nll", "negatives_per_query": 3, "batch_queries": 2, "learning_rate": 1e-3,
        "steps": 4, "precision": "fp32",
    },
    "evaluation": {"splits": ["test"], "depth": 100, "measures": ["RR@10", "R@100"]},
    "seeds": [1, 2, 3],
    "report": None,
    "experiments": {
        "in-batch": {
            "label": "In-batch", "episodes": [{}], "negatives": {"counts": {}},
            "training": {"loss": "softmax", "negatives_per_query": 0, "batch_queries": 8},
        },
    },
    "ablations": {
        "comparison": {
            "title": "Toy", "baseline": "In-batch", "bm25": True, "also": ["in-batch"],
            "experiments": {"q-neg": {"label": "Q-Neg", "episodes": [{}]}},
        },
    },
}  # fmt: skip


def make_here(files, cores):
    """The stages of a part, one after another in this process, in the place of Snakemake."""

    def make(stage):
        for read in stage.inputs.values():
            make(read)
        if not is_finished(stage.name):
            run(Job(stage.spec() | {"code": "test"}))

    for stage in Plan(*load_files(files)).stages.values():
        make(stage)


@pytest.mark.parametrize("run_part", [make_here, pytest.param(None, marks=pytest.mark.slow)])
def test_from_the_grid_to_the_table(bench, table, monkeypatch, tmp_path, run_part):
    """All stages at toy size: two rates, then three seeds of two systems; the slow one by Snakemake."""
    monkeypatch.syspath_prepend(REPOSITORY / "tests/workflow")
    from toy import make_checkpoint, make_data

    monkeypatch.chdir(tmp_path)
    make_data(tmp_path / "toy")
    make_checkpoint(tmp_path / "bert", WORDS)
    write_json(tmp_path / "toy.yaml", TOY)
    bench.run(NAME, ["toy.yaml"], (1e-3, 3e-3), 2, run_part or bench.snakemake)
    part = table.measured()[NAME]
    assert [(row["row"], row["seeds"]) for row in part["rows"]] == [("BM25", 0), ("in-batch", 3), ("q-neg", 3)]
    assert {row["rate"] for row in part["rows"][1:]} <= {1e-3, 3e-3} and part["missing"] == []
    assert 0 <= part["mined"]["p"] <= 1 and part["rows"][2]["encoded"] == 240
    assert part["rows"][1]["dev"] > 0
    assert "apidocs, start layers-2: **mined negatives" in table.section({NAME: part})
