"""Negatives alone, of one's own collection: `teleport new`, then the command of config/variants/mined.yaml as it is."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from toy import World

from collection_world import random_passages, write_lines
from paths import REPOSITORY

TRAIN = 30
MINED = (REPOSITORY / "config/variants/mined.yaml").read_text()
COMMAND = re.search(r"^#   .venv/bin/snakemake (.*)", MINED, re.M)[1].replace("--cores all", "--cores 2").split()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A function that runs Python with some arguments where `teleport new mine` was run; it returns what that says."""
    folder = tmp_path_factory.mktemp("newcomer") / "repository"
    World.copy_repository(folder)
    given, texts = (
        folder / "given",
        [" ".join(words) for words in random_passages(np.random.default_rng(3), 150, 5, 12)],
    )
    given.mkdir()
    write_lines(given / "corpus.tsv", [(f"d{n}", text) for n, text in enumerate(texts)])
    for split, numbers in {"train": range(TRAIN), "dev": range(30, 40), "test": range(40, 60)}.items():
        write_lines(given / f"queries.{split}.tsv", [(f"q{n}", texts[n][:20]) for n in numbers])
        write_lines(given / f"qrels.{split}.tsv", [(f"q{n}", f"d{n}", 1) for n in numbers])

    def run(*command):
        command = [sys.executable, *command]
        done = subprocess.run(command, cwd=run.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.stdout

    run.folder = folder
    assert "config/mine.yaml is written" in run("workflow_scripts/manage.py", "new", "mine", "given")
    return run


@pytest.mark.ci(0)
def test_nothing_is_trained_or_evaluated(run):
    kinds = set(re.findall(r"^(\w+) +\d+$", run("-m", "snakemake", "-n", *COMMAND), re.M)) - {"total"}
    assert kinds == {"corpus", "split", "pretrained", "tokens", "encode", "index", "retrieve", "merge", "mined"}


@pytest.mark.ci(0)
def test_an_experiment_that_mines_nothing_names_the_file_that_does(run):
    target = "results/experiments/mine/tuned/episode-1/negatives.jsonl"
    said = run("-m", "snakemake", "-n", target, "--configfile", "config/mine.yaml")
    assert "config/variants/mined.yaml, after the files of any configuration, mines negatives alone." in said


@pytest.mark.slow
def test_every_training_query_gets_negatives(run):
    said = run("-m", "snakemake", *COMMAND)
    rows = [json.loads(line) for line in (run.folder / COMMAND[0]).read_text().splitlines()]
    assert [row["query_id"] for row in rows] == [f"q{n}" for n in range(TRAIN)], said
    for row in rows:
        (positive,), mined = ([each["docid"] for each in row[f"{what}_passages"]] for what in ("positive", "negative"))
        assert len(set(mined)) == 30 and positive not in mined and row["negative_passages"][0]["text"]
    home, run.folder = run.folder, run.folder.rename(run.folder.with_name("moved"))
    assert "Nothing to be done" in run("-m", "snakemake", "-n", *COMMAND), "where the repository lies decides nothing"
    run.folder = run.folder.rename(home)


@pytest.mark.slow
def test_one_command_mines_writes_and_says_what_it_has(run):
    said = run(
        "workflow_scripts/manage.py",
        "mine",
        "mine",
        "--cores",
        "2",
        "--output",
        "mined.jsonl",
        "--form",
        "n-tuple",
        "--order",
        "hardest",
    )
    rows = [json.loads(line) for line in (run.folder / "mined.jsonl").read_text().splitlines()]
    assert len(rows) == TRAIN and {"query", "positive", "negative_1", "negative_30", "score"} == {
        key for key in rows[0] if not key.startswith("negative_") or key in ("negative_1", "negative_30")
    }, said
    assert all(row["score"][1:] == sorted(row["score"][1:], reverse=True) for row in rows)
    assert "30 queries in mined.jsonl, n-tuple, hardest first; the origin of each row: mined.origin.jsonl." in said
    assert re.search(r"900 negatives \(900 from query\) of 30 training queries, 30\.0 a query\.", said)
    assert re.search(r"positives mean \d\.\d{3}, median \d\.\d{3}; negatives mean \d\.\d{3}", said)
    assert not list((run.folder / "results/stages").glob("train/*")), "nothing is trained"
    again = run(
        "workflow_scripts/manage.py",
        "mine",
        "mine",
        "--output",
        "again.jsonl",
        "--form",
        "n-tuple",
        "--order",
        "hardest",
    )
    assert (
        "jobs" not in again and (run.folder / "again.jsonl").read_bytes() == (run.folder / "mined.jsonl").read_bytes()
    )
