"""`manage.py new`: a configuration that runs as it is, from a folder in any of the forms."""

import json
import sys

import pytest
import yaml

from collection_world import random_passages
from paths import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "workflow_scripts"))

import numpy as np  # noqa: E402

from commands.new import new  # noqa: E402
from teleport.plan.plan import Plan  # noqa: E402
from teleport.settings.read import load_files  # noqa: E402

PASSAGES, QUERIES = 300, 60


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return [" ".join(words) for words in random_passages(np.random.default_rng(3), PASSAGES, 5, 12)]


def lines(*rows):
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def in_tables(folder, texts, queries="queries.tsv", qrels="qrels.tsv"):
    folder.mkdir()
    (folder / "corpus.tsv").write_text(lines(*((f"d{i}", text) for i, text in enumerate(texts))))
    (folder / queries).write_text(lines(*((f"q{i}", texts[i][:20]) for i in range(QUERIES))))
    (folder / qrels).write_text(lines(*((f"q{i}", f"d{i}", 1) for i in range(QUERIES))))


def in_beir(folder, texts):
    (folder / "qrels").mkdir(parents=True)
    rows = ({"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(texts))
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = ({"_id": f"q{i}", "text": texts[i][:20]} for i in range(QUERIES))
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = lines(("query-id", "corpus-id", "score"), *((f"q{i}", f"d{i}", 1) for i in range(QUERIES)))
    (folder / "qrels/test.tsv").write_text(judged)


@pytest.mark.parametrize("form", [in_tables, in_beir])
def test_undivided_judgments_become_train_and_test(tmp_path, texts, form):
    form(tmp_path / "given", texts)
    path, said = new("mine", tmp_path / "given", REPOSITORY)
    raw = yaml.safe_load(path.read_text())
    source = raw["collection"]
    if source["source"] == "tsv":
        files = [(tmp_path / source["splits"][split]["qrels"]).read_text() for split in ("train", "test")]
    else:
        files = [(tmp_path / source["path"] / f"qrels/{split}.tsv").read_text() for split in ("train", "test")]
    train, test = (
        {line.split()[0] for line in file.splitlines() if line[0] == "q" and line[1] != "u"} for file in files
    )
    assert train | test == {f"q{i}" for i in range(QUERIES)} and not train & test and 10 <= len(test) <= 30
    assert said[0] == f"300 passages, {len(train)} queries for train, {len(test)} queries for test."
    assert "warning: searches return 300 passages, not 1000: there are no more." in said
    assert raw["evaluation"] == {"splits": ["test"], "measures": ["nDCG@10", "RR@10", "R@100"]}
    assert raw["training"]["steps"] == -(-2 * len(train) // 16) and raw["name"] == "mine"
    made = Plan(*load_files([path]))
    (check,) = [stage.settings for stage in made.stages.values() if stage.kind == "check"]
    assert (check.evaluation_depth, check.mining_depth, check.batch_queries) == (0, 0, 16)


def test_splits_that_are_there_are_kept(tmp_path, texts):
    in_tables(tmp_path / "given", texts, "queries.train.tsv", "qrels.train.tsv")
    for role in ("queries", "qrels"):
        (tmp_path / f"given/{role}.dev.tsv").write_text((tmp_path / f"given/{role}.train.tsv").read_text())
    path, said = new("mine", tmp_path / "given", REPOSITORY)
    raw = yaml.safe_load(path.read_text())
    assert raw["evaluation"]["splits"] == ["dev"] and said[0].endswith("60 queries for train, 60 queries for dev.")
    assert not (tmp_path / "data").exists()


def test_what_cannot_be_is_refused(tmp_path, texts):
    in_tables(tmp_path / "given", texts)
    with pytest.raises(ValueError, match="NAME=a/b: the name becomes a folder and must match"):
        new("a/b", tmp_path / "given", REPOSITORY)
    new("mine", tmp_path / "given", REPOSITORY)
    with pytest.raises(ValueError, match="config/mine.yaml is there already. Take another NAME, or remove it."):
        new("mine", tmp_path / "given", REPOSITORY)
    with pytest.raises(ValueError, match="corpus.tsv: no such file"):
        new("other", tmp_path, REPOSITORY)
    (tmp_path / "given/qrels.tsv").write_text("q1\td1\t1\n")
    with pytest.raises(ValueError, match="qrels.tsv has 1 judged queries, too few to train on some and test with"):
        new("other", tmp_path / "given", REPOSITORY)
