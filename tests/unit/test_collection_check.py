"""Stage `check`: what a configuration asks of a collection and does not get is said before anything expensive."""

import json

import pytest

from teleport.collection.check import run

FACTS = {"num_passages": 400, "splits": {"train": {"queries": 60}, "dev": {"queries": 0}, "test": {"queries": 20}}}
SETTINGS = {"mining_depth": 200, "evaluation_depth": 400, "splits": ["test"], "measures": ["RR@10"], "trains": True}


def check(stages, settings, facts=FACTS):
    collection = stages.finish(stages.make("collection"), facts)
    return stages.run(run, "check", SETTINGS | settings, {"collection": collection})


def test_reports_what_it_compared(stages):
    manifest = json.loads((check(stages, {}).folder / "manifest.json").read_text())
    assert manifest["facts"] == {
        "num_passages": 400,
        "depths": {"evaluation.depth": 400, "mining.depth": 200},
        "queries": {"test": 20, "train": 60},
    }


def test_depths(stages):
    with pytest.raises(
        ValueError, match=r"has 400 passages, fewer than evaluation.depth: 1000. Set evaluation.depth to at most 400"
    ):
        check(stages, {"evaluation_depth": 1000})
    with pytest.raises(
        ValueError, match=r"has 400 passages, fewer than mining.depth: 401. Set mining.depth to at most 400"
    ):
        check(stages, {"mining_depth": 401})


def test_without_training_nothing_is_mined(stages):
    facts = FACTS | {"splits": {"test": {"queries": 20}}}
    check(stages, {"mining_depth": 1000, "trains": False}, facts)
    with pytest.raises(
        ValueError, match=r"training needs the split 'train', but .* no such split; it has: test \(20 queries\)"
    ):
        check(stages, {}, facts)


def test_evaluated_split_is_missing(stages):
    expected = (
        r"evaluation.splits names 'dev2', but the collection has no such split; "
        r"it has: dev \(0 queries\), test \(20 queries\), train \(60 queries\)\. Add "
    )
    with pytest.raises(ValueError, match=expected):
        check(stages, {"splits": ["test", "dev2"]})


def test_evaluated_split_is_empty(stages):
    with pytest.raises(ValueError, match="names 'dev', but the collection has no judged queries in it"):
        check(stages, {"splits": ["dev"]})


def test_unknown_measure(stages):
    with pytest.raises(ValueError, match=r"evaluation.measures has 'RRR@10', which ir-measures cannot compute here"):
        check(stages, {"measures": ["RR@10", "RRR@10"]})
