"""The training beside sentence-transformers: without dropout both are the same, and so are the evaluators."""

import gzip
import json
import re

import numpy as np
import pytest

import beside
import collection_world
import pairs
from encoder_world import make_pretrained, source_folder
from paths import REPOSITORY
from teleport.arrays import Ragged
from teleport.evaluation.measures import Judgments
from teleport.settings.training import Training

TRAINING = {"batch_queries": 4, "negatives_per_query": 0, "learning_rate": 1e-3, "precision": "fp32"}


@pytest.fixture
def world(stages):
    """40 passages of random words; a query is the beginning of its passage, 16 to train and 10 to test."""
    words = collection_world.random_passages(np.random.default_rng(3), 40, 4, 20)
    queries = [" ".join(each[:4]) for each in words]
    options = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    start = make_pretrained(stages, source_folder(stages.root / "source", **options), pooling="mean", normalize=True)
    judged = Judgments(np.arange(10), 20 + np.arange(10), np.ones(10, np.int64))
    positives = Ragged(np.arange(17), np.arange(16, dtype=np.int32))
    checkpoint, passages = start.folder / "checkpoint", [" ".join(each) for each in words]
    return beside.World(checkpoint, None, passages, queries[:16], queries[20:30], (6, 12), positives, judged, 20.0)


@pytest.mark.ci(0)
def test_without_dropout_both_trainings_are_one(world):
    training = Training(**TRAINING, steps=6, loss={"kind": "softmax"})
    scores, losses, seconds, apart, tied = beside.side_by_side(world, training, (1, 2))
    np.testing.assert_allclose(losses[:, :, 0], losses[:, :, 1], rtol=0, atol=2e-5)
    assert np.abs(losses[:, 0] - losses[:, -1]).max() > 5e-3, "nothing was learnt: this test would show nothing"
    assert np.abs(scores[:, 0] - scores[:, 1]).max() < 0.05 and 0 < scores.mean() < 1
    assert apart < 1e-4 and tied < 0.5 and seconds.shape == (2, 6, 2) and seconds.min() > 0


def test_evaluators_are_compared_where_no_scores_are_equal(world):
    """Code with the same beginning is equal once cut; sentence-transformers then orders by other rules."""
    generator = np.random.default_rng(5)
    queries, passages = (generator.standard_normal((number, 8)).astype(np.float32) for number in (10, 40))
    assert beside.without_ties((queries, passages)).tolist() == list(range(10))
    best = (queries[4] @ passages.T).argmax()
    passages[[20, 30]] = passages[best]
    clear = beside.without_ties((queries, passages))
    assert 4 not in clear and 0 < len(clear) < 10
    ours = beside.scores_of(world, (queries, passages))[clear].mean()
    assert ours == pytest.approx(beside.its_score(world, (queries, passages), clear), abs=1e-6)


@pytest.mark.ci(0)
def test_the_command_writes_what_it_has_measured(world, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(beside.Plan, "of_files", lambda files: None)
    monkeypatch.setattr(beside, "world_of", lambda plan, test: world)
    monkeypatch.setattr(beside, "KEPT", tmp_path / "beside.parquet")
    options = ["--steps", "2", "--seeds", "3", "--queries", "4", "--json", str(tmp_path / "beside.json")]
    for part in ("toy", "other", "toy"):
        beside.main(["x.yaml", *options, "--keep", part])
    figures = json.loads((tmp_path / "beside.json").read_text())["figures"]
    assert figures["method"] == "crossed" and figures["evaluators_apart"] < 1e-4 and figures["first_loss_apart"] < 1e-4
    assert len(figures["cpu_seconds_per_step"]) == 2 and 0 <= figures["p"] <= 1
    capsys.readouterr()
    beside.main([])
    line = f"here - there {figures['difference']:+.4f}, p {figures['p']:.2g}, crossed"
    assert capsys.readouterr().out.splitlines() == [f"other: {line}", f"toy: {line}"], "from the scores that were kept"


MODULE = '''
def add(first, second):
    """Add two numbers, and tell
    the sum.

    More of it."""
    sum = first + second  # in the usual way, of which there is only one in this module
    return sum


def lacks(docstring):
    return docstring
'''


def test_a_function_is_a_pair_of_what_it_is_for_and_its_code(tmp_path):
    (tmp_path / "test").mkdir()
    for name in ("module.py", "test/module.py"):
        (tmp_path / name).write_text(MODULE)
    ((question, code),) = pairs.chosen(pairs.functions(tmp_path), 5)
    assert question == "Add two numbers, and tell the sum."
    assert code.startswith("def add(first, second): sum = first") and code.endswith("return sum")


def test_a_dictionary_is_pairs_of_terms_and_definitions(tmp_path):
    long = "\n   ".join(["a definition of many words"] * 3)
    text = f"00-database-info\n   {long} of itself\n\nfirst term\n   {long}\n\n   its end\n\nshort\n   too short\n"
    with gzip.open(tmp_path / "words.dict.dz", "wt") as file:
        file.write(text)
    output = tmp_path / "words.jsonl"
    pairs.main(["foldoc", str(output), "--from", str(tmp_path / "words.dict.dz")])
    passage = " ".join(["a definition of many words"] * 3 + ["its end"])
    assert [json.loads(line) for line in output.read_text().splitlines()] == [
        {"query": "first term", "passage": passage}
    ]


def test_the_page_says_what_the_kept_scores_are():
    page = (REPOSITORY / "docs/speed.md").read_text().split("## Beside sentence-transformers")[1].split("\n## ")[0]
    rows = re.findall(r"^\| [a-z]+, .*? \| (\.\d+) \| (\.\d+) \| (\S+) \((\S+)\) \|", page, re.M)
    scores, found = beside.read_scores(beside.KEPT), beside.compared()
    assert len(rows) == len(found) == 3
    for part, (here, there, difference, p) in zip(("functions", "terms", "functions-cut"), rows, strict=True):
        means = [f"{scores[part][name, beside.MEASURE].values_QR.mean():.4f}"[1:] for name in beside.SYSTEMS]
        assert [here, there] == means and difference == f"{found[part].difference:+.4f}".replace("0.", ".")
        assert float(p) == float(f"{found[part].p:.2g}"), part
