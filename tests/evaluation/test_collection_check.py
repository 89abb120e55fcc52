"""Stage `check`: what a configuration asks of a collection and does not get is said before anything expensive."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from teleport.arrays import save_array
from teleport.collection.equal import digests_of
from teleport.evaluation.check import run
from teleport.refusal import Refusal
from teleport.running.log import warn_once
from training_world import make_pretrained

FACTS = {"num_passages": 400, "splits": {"train": {"queries": 60}, "dev": {"queries": 0}, "test": {"queries": 20}}}
SETTINGS = {"mining_depth": 200, "evaluation_depth": 400, "splits": ["test"], "trains": True}
SETTINGS |= {"measures": {"test": ["RR@10"]}}
SETTINGS |= {"live_depth": 0, "batch_queries": 1, "remove": "judged", "dev_splits": []}
SETTINGS |= {"batch_queries": 8}
QUERIES = {"train": ["what is it", "and this"], "test": ["What  is it", "another"]}


def check(stages, settings, facts=FACTS, others=None):
    grade = {"positive_grade": facts["positive_grade"]} if "positive_grade" in facts else {}
    inputs = {"corpus": stages.finish(stages.make("corpus"), {"num_passages": facts["num_passages"]})}
    for name, counts in facts["splits"].items():
        job = stages.make("split")
        save_array(job.output("digests.npy"), digests_of(QUERIES.get(name, [])))
        inputs[f"split.{name}"] = stages.finish(job, counts | grade)
    return stages.run(run, "check", SETTINGS | settings, inputs | (others or {}))


def test_queries_that_are_trained_on_too_are_told(stages, caplog):
    """Once in a process, which may run the checks of several experiments."""
    warn_once.cache_clear()
    check(stages, {})
    check(stages, {"batch_queries": 9})
    assert caplog.messages.count("Training reads 1 of the test queries, too.") == 1
    assert "dev queries" not in caplog.text


def test_reports_what_it_compared(stages):
    manifest = json.loads((check(stages, {}).folder / "manifest.json").read_text())
    assert manifest["facts"] == {
        "num_passages": 400,
        "depths": {"evaluation.depth": 400, "mining.depth": 200},
        "queries": {"test": 20, "train": 60},
    }


def test_depths(stages):
    with pytest.raises(ValueError, match=r"400 passages.*evaluation.depth: 1000"):
        check(stages, {"evaluation_depth": 1000})
    with pytest.raises(ValueError, match=r"400 passages.*mining.depth: 401"):
        check(stages, {"mining_depth": 401})


def test_a_depth_that_is_left_out_is_no_fault(stages):
    check(stages, {"mining_depth": 0, "evaluation_depth": 0})


def test_a_batch_of_training_queries_must_be_there(stages):
    check(stages, {"batch_queries": 60})
    with pytest.raises(ValueError, match=r"training.batch_queries, .* needs 61 .* has 60. Lower one"):
        check(stages, {"batch_queries": 61})


def test_a_split_that_trainings_are_watched_by_has_positives(stages):
    with pytest.raises(ValueError, match=r"training.dev.split .*'dev'.*judged queries"):
        check(stages, {"dev_splits": ["dev"]})
    splits = FACTS["splits"] | {"dev": {"queries": 9, "answers": 9, "judgments": 0}}
    with pytest.raises(ValueError, match="training.dev.split .*'dev'.*judged positive"):
        check(stages, {"dev_splits": ["dev"]}, FACTS | {"splits": splits})
    splits["dev"] |= {"judgments": 12, "positives": 10}
    check(stages, {"dev_splits": ["dev"]}, FACTS | {"splits": splits})


def test_without_training_nothing_is_mined(stages):
    facts = FACTS | {"splits": {"test": {"queries": 20}}}
    check(stages, {"mining_depth": 1000, "trains": False}, facts)


def test_evaluated_split_is_empty(stages):
    have = r"it has: dev \(0 queries\), test \(20 queries\), train \(60 queries\)\. Add "
    with pytest.raises(ValueError, match=f"evaluation.splits .*'dev'.*judged queries.*{have}"):
        check(stages, {"splits": ["dev"], "measures": {"dev": ["RR@10"]}})


def test_judgments_without_a_positive_would_be_a_table_of_zeros(stages):
    facts = FACTS | {"positive_grade": 1, "splits": {"test": {"queries": 20, "judgments": 30, "positives": 0}}}
    with pytest.raises(ValueError, match="30 judgments.*'test'"):
        check(stages, {"trains": False}, facts)
    check(stages, {"trains": False}, facts | {"positive_grade": 2})  # passages of grade 1 may count in a measure


def splits(answers=None, judgments=30, train_answers=None):
    """Facts whose test split has `answers` answers, and train `train_answers` (None: no file of answers)."""
    test, train = {"queries": 20, "judgments": judgments}, {"queries": 60, "judgments": 60}
    test |= {} if answers is None else {"answers": answers}
    train |= {} if train_answers is None else {"answers": train_answers}
    return FACTS | {"splits": {"train": train, "test": test}}


def test_coverage_needs_answers_and_judged_measures_judgments(stages):
    check(stages, {"measures": {"test": ["Cov@20", "RR@10"]}}, splits(answers=20))
    check(stages, {"measures": {"test": ["Cov@20"]}}, splits(answers=20, judgments=0))
    for answers in (None, 0):
        with pytest.raises(ValueError, match=r"'Cov@20' .*'test', .*answers.test.jsonl"):
            check(stages, {"measures": {"test": ["RR@10", "Cov@20"]}}, splits(answers))
    with pytest.raises(ValueError, match=r"'RR@10' .*'test', .*only answers"):
        check(stages, {"measures": {"test": ["RR@10", "Cov@20"]}}, splits(answers=20, judgments=0))


def test_splits_may_have_measures_of_their_own(stages):
    facts = splits(answers=0)
    facts["splits"]["quiz"] = {"queries": 20, "answers": 20, "judgments": 0}
    check(stages, {"splits": ["test", "quiz"], "measures": {"test": ["RR@10"], "quiz": ["Cov@20"]}}, facts)
    with pytest.raises(ValueError, match="'Cov@20' .*'test', which has no answers"):
        check(stages, {"measures": {"test": ["Cov@20"]}}, facts)


def test_removing_by_answers_needs_answers_of_all_training_queries(stages):
    check(stages, {"remove": "answers"}, splits(train_answers=60))
    for answers, missing in ((None, 60), (58, 2)):
        with pytest.raises(ValueError, match=f"'answers'.*{missing} of 60"):
            check(stages, {"remove": "answers"}, splits(train_answers=answers))


def watched(stages, positives, **pool):
    """Check a dev set of 8 of the queries with these positives (a passage each), and of one without; 400 passages."""
    dev, number = stages.make("split"), len(positives)
    save_array(dev.output("digests.npy"), digests_of([]))
    pq.write_table(pa.table({"query_id": map(str, range(number + 1))}), dev.output("queries.dev.parquet"))
    judged = {"query": range(number), "passage": positives, "grade": [1] * number}
    pq.write_table(pa.table({name: list(column) for name, column in judged.items()}), dev.output("qrels.dev.parquet"))
    stages.finish(dev, {"queries": number + 1, "judgments": number, "positives": number, "positive_grade": 1})
    pools = [{"split": "dev", "queries": 8, "passages": 10, "random": 4} | pool]
    facts = {"num_passages": 400, "splits": {name: FACTS["splits"][name] for name in ("train", "test")}}
    return check(stages, {"dev_splits": ["dev"], "dev_pools": pools}, facts, {"split.dev": dev})


def test_positives_of_the_dev_queries_fit_into_their_pool(stages, caplog):
    """Before anything is mined; a train stage refuses them, too."""
    warn_once.cache_clear()

    def warned():
        return [message.split(" are ")[0] for message in caplog.messages if "training.dev" in message]

    watched(stages, range(12), queries=6)
    watched(stages, range(3), passages=5, random=2)
    watched(stages, range(12), passages=400, random=398)
    with pytest.raises(Refusal, match="training.dev: 8 queries of dev .* 7 passages, .* 4 .*dev.passages to 8 more"):
        watched(stages, range(12), passages=7)
    assert warned() == [], "all fit; as many queries have a positive; all passages are ranked; refused"
    watched(stages, range(12))  # 6 of 8 positives have a place, and a random passage may be another
    watched(stages, [1, 1, *range(10)], passages=7)  # three queries share one
    assert warned() == ["training.dev: 8 queries of dev"] * 2


def test_layers_that_adapters_are_for_are_there(stages):
    pretrained = {"pretrained": make_pretrained(stages)}
    check(stages, {"lora_targets": ["query", "dense"]}, others=pretrained)
    for name in ("q_proj", "word_embeddings"):
        with pytest.raises(Refusal, match=f"encoder.lora.targets .*'{name}', .* dense, key, query, value. "):
            check(stages, {"lora_targets": ["query", name]}, others=pretrained)
    untied = {"pretrained": make_pretrained(stages, tied=False)}
    with pytest.raises(Refusal, match="'q_proj'"):
        check(stages, {"lora_targets": ["q_proj"]}, others=untied)
