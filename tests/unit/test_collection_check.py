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


def splits(answers=None, judgments=30, train_answers=None):
    """Facts whose test split has `answers` answers, and train `train_answers` (None: no file of answers)."""
    test, train = {"queries": 20, "judgments": judgments}, {"queries": 60, "judgments": 60}
    test |= {} if answers is None else {"answers": answers}
    train |= {} if train_answers is None else {"answers": train_answers}
    return FACTS | {"splits": {"train": train, "test": test}}


def test_coverage_needs_answers_and_judged_measures_judgments(stages):
    check(stages, {"measures": ["Cov@20", "RR@10"]}, splits(answers=20))
    check(stages, {"measures": ["Cov@20"]}, splits(answers=20, judgments=0))
    for answers in (None, 0):
        with pytest.raises(ValueError, match=r"has 'Cov@20', but the split 'test' has no answers. Add answers.test.js"):
            check(stages, {"measures": ["RR@10", "Cov@20"]}, splits(answers))
    with pytest.raises(ValueError, match=r"measures of judgments, but the split 'test' has none, only answers"):
        check(stages, {"measures": ["RR@10", "Cov@20"]}, splits(answers=20, judgments=0))


def test_coverage_needs_a_run_that_is_long_enough(stages):
    check(stages, {"measures": ["Cov@400"]}, splits(answers=20))
    with pytest.raises(ValueError, match=r"'Cov@401', but evaluation.depth is 400. Set evaluation.depth to at least"):
        check(stages, {"measures": ["Cov@5", "Cov@401"]}, splits(answers=20))


def test_removing_by_answers_needs_answers_of_all_training_queries(stages):
    check(stages, {"remove": "answers"}, splits(train_answers=60))
    for answers, missing in ((None, 60), (58, 2)):
        with pytest.raises(ValueError, match=f"'answers', but {missing} of 60 training queries have no answers"):
            check(stages, {"remove": "answers"}, splits(train_answers=answers))
