"""README's table: what bench/demo_table.py reads from finished stages."""

import importlib
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
from bench_world import bench_on_path  # noqa: F401

from paths import REPOSITORY
from teleport.evaluation.significance import compare
from teleport.plan.plan import Plan
from teleport.running.artefact import STAGES, file_entry
from teleport.running.files import write_json

MEASURES = ("RR@10", "nDCG@10", "R@100", "R@1000")
PROVENANCE = {"git_commit": 40 * "a", "threads": 2, "wall_seconds": 60.0, "hardware": {"cores": 2, "processor": "X"}}


def finish(stage, scores=None):
    """A finished stage as the runner leaves it; scores: of each query, the same for every measure, of an evaluation."""
    folder, files, facts = STAGES / stage.name, {}, {}
    folder.mkdir(parents=True)
    if scores:
        lines = [(f"q{i}", measure, score) for measure in MEASURES for i, score in enumerate(scores)]
        columns = dict(zip(("query_id", "measure", "value"), map(list, zip(*lines, strict=True)), strict=True))
        pq.write_table(pa.table(columns), folder / "per_query.parquet")
        facts = {"means": dict.fromkeys(MEASURES, sum(scores) / len(scores))}
        files = {"per_query.parquet": file_entry(folder / "per_query.parquet")}
    manifest = {"kind": stage.kind, "key": stage.key, "files": files, "provenance": PROVENANCE, "facts": facts}
    write_json(folder / "manifest.json", manifest)


def test_the_table_is_that_of_the_finished_demo(monkeypatch, tmp_path):
    bench = importlib.import_module("demo_table")
    plan = Plan.of_files([str(bench.CONFIG)])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "SCORES", tmp_path / "demo.parquet")
    ((in_batch,), (trajectory,)) = plan.trajectories.values()
    zero_shot, *episodes = (episode.runs["test"] for episode in trajectory.episodes)
    systems = [plan.bm25_runs["test"], zero_shot, in_batch.episodes[-1].runs["test"], *episodes]
    means = {stage.name: 0.3 + 0.1 * at for at, stage in enumerate(systems)}
    *stages, last = plan.stages.values()
    for stage in stages:
        finish(stage, [means[stage.name] - 0.01, means[stage.name] + 0.01] * 40 if stage.name in means else None)
    assert bench.measured() == {} and not bench.SCORES.exists(), "a stage is not finished"
    finish(last, [means[last.name] - 0.01, means[last.name] + 0.01] * 40 if last.name in means else None)
    data = bench.measured()["demo"]
    assert [row["row"] for row in data["rows"]] == ["BM25 0", "Zero-shot 0", "In-batch 1", "ANCE-Tele 1", "ANCE-Tele 2"]
    assert data["made"]["seeds"] == [42] and f"{len(plan.stages)} stages" in data["made"]["time"]
    shutil.rmtree(STAGES)
    lines = bench.section({"demo": data}).splitlines()
    assert lines[2:7] == [
        "| BM25 | 0 | 0.300† | 0.300† | 0.300† | 0.300† |",
        "| Zero-shot | 0 | 0.400 | 0.400 | 0.400 | 0.400 |",
        "| In-batch | 1 | 0.500† | 0.500† | 0.500† | 0.500† |",
        "| ANCE-Tele | 1 | 0.600† | 0.600† | 0.600† | 0.600† |",
        "| ANCE-Tele | 2 | **0.700**† | **0.700**† | **0.700**† | **0.700**† |",
    ]


def test_readme_says_by_how_much_in_batch_and_ance_tele_differ():
    results = importlib.import_module("results")
    scores = results.read_scores(results.DATA / "demo.parquet")["demo"]
    found = compare(*(scores[row, "RR@10"] for row in ("In-batch 1", "ANCE-Tele 2")))
    text = " ".join((REPOSITORY / "README.md").read_text().split())
    difference, p = re.search(r"In-batch and ANCE-Tele differ by (\S+) RR@10 \(p (\S+)\)", text).groups()
    assert (difference, p) == (f"{found.difference:.3f}"[1:], f"{found.p:.2f}"[1:])


def test_both_last_trainings_of_the_demo_read_as_many_passages():
    """What README compares; ANCE-Tele has a first training of six steps and mines besides."""
    plan = Plan.of_files([str(importlib.import_module("demo_table").CONFIG)])
    last = {name: of[0].trains[-1].settings.training for name, of in plan.trajectories.items()}
    passages = {name: t.steps * t.batch_queries * (1 + t.negatives_per_query) for name, t in last.items()}
    assert len(passages) == 2 and len(set(passages.values())) == 1, passages
