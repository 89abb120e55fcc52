"""docs/tasks.md: every section has one command, and each does at toy size what the section says."""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from paths import REPOSITORY

SECTIONS = re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", (REPOSITORY / "docs/tasks.md").read_text(), re.M | re.S)
TASKS = {title: (re.findall(r"```bash\n(.*)\n```", text), re.findall(r"```yaml\n# (\S+)\n(.*?)```", text, re.S))
         for title, text in SECTIONS}  # fmt: skip


@pytest.fixture
def tasks(world):
    """The finished toy world as the page has it: its configuration is the default one, its experiment `ance-tele`."""
    default = world.config | {"experiments": {"ance-tele": {"label": "ANCE-Tele"}}}
    (world.folder / "config/config.yaml").write_text(yaml.safe_dump(default))
    (world.folder / "results/experiments/tele").rename(world.folder / "results/experiments/ance-tele")
    evaluate = yaml.safe_load((world.folder / "config/evaluate.yaml").read_text())
    evaluate |= {"collection": world.config["collection"]}
    evaluate["encoder"] = {"title": "sep", "checkpoint": {"folder": "data/bert"}, "pooling": "mean"}
    evaluate["external"]["mine"]["encoder"] |= {"pooling": None}
    evaluate["external"]["minilm"]["encoder"] = {"max_passage_tokens": 64}  # the toy checkpoint says nothing of it
    (world.folder / "config/evaluate.yaml").write_text(yaml.safe_dump(evaluate, sort_keys=False))

    def run(title):
        (command,), files = TASKS[title]
        for name, text in files:
            raw = yaml.safe_load(text)
            if "collection" in raw:
                raw["collection"] = world.config["collection"]
            (world.folder / name).write_text(yaml.safe_dump(raw))
        command = command.replace(".venv/bin/python", sys.executable)
        command = command.replace(".venv/bin/teleport", f"{sys.executable} workflow_scripts/manage.py")
        command = command.replace(".venv/bin/snakemake --cores all", f"{sys.executable} -m snakemake --cores 2")
        command = command.replace(".venv/bin/snakemake", f"{sys.executable} -m snakemake").replace(
            "cores all", "cores 2"
        )
        environment = os.environ | {"HF_HUB_OFFLINE": "1"}
        done = subprocess.run(shlex.split(command), cwd=world.folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    run.folder = world.folder
    return run


def rows(folder, table):
    with open(folder / "results/tables" / table / "main.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_every_section_has_one_command():
    assert len(TASKS) == 12 and all(len(commands) == 1 for commands, _ in TASKS.values())


@pytest.mark.ci(0)
def test_what_is_asked_of_finished_results(tasks):
    losses = tasks("See the loss of a training").splitlines()
    assert losses[0].split("\t") == ["step", "loss"] and len(losses) == 1 + 4
    text = tasks("Compare two systems on all queries, or on one")
    found = re.search(r"RR@10 of 20 queries: A (\S+), B (\S+), .*\nB wins (\d+), loses (\d+), ties (\d+)\n", text)
    table = {row["episode"]: row["RR@10"] for row in rows(tasks.folder, "") if row["system"] != "BM25"}
    assert (float(found[1]), float(found[2])) == pytest.approx((float(table["0"]), float(table["2"])), abs=1e-3)
    assert sum(map(int, found.group(3, 4, 5))) == 20
    assert "my-run/test.run.gz and 20 judgments" in tasks("Give a run to other tools")
    judgments = [line.split() for line in (tasks.folder / "my-run/test.qrels.txt").read_text().splitlines()]
    assert len(judgments) == 20 and judgments[0] == ["q100", "0", "d100", "1"]
    assert "teleport fetch ance-tele.tar" in tasks("Hand finished work to a colleague")


@pytest.mark.slow
def test_an_exported_checkpoint_loads_without_a_warning(tasks):
    tasks("Use the model")
    model = tasks.folder / "my-retriever"
    card = (model / "README.md").read_text()
    assert re.findall(r"^\| (?:Episode )?(BM25|\d) \| test \|", card, re.M) == ["BM25", "0", "1", "2", "3"]
    assert "## An example" not in card, "the collection's texts are quoted where somebody asks for it"
    mask = os.umask(0)
    os.umask(mask)
    assert {path.stat().st_mode & 0o777 for path in model.rglob("*") if path.is_file()} == {0o666 & ~mask}
    code = f"from transformers import AutoModel; AutoModel.from_pretrained({str(model)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "MISSING" not in done.stderr and "newly initialized" not in done.stderr
    text = tasks("Publish the model")
    assert "model.safetensors" in text and "would go to huggingface.co/OWNER/NAME with --send" in text


@pytest.mark.slow
def test_what_runs_the_workflow(tasks):
    tasks("Mine negatives, and train elsewhere")
    negatives = Path("results/experiments/ance-tele/episode-1/negatives.jsonl")
    lines = (tasks.folder / negatives).read_text().splitlines()
    assert len(lines) == 80 and json.loads(lines[0])["negative_passages"]
    tasks("Train on negatives of my own")
    assert [row["system"] for row in rows(tasks.folder, "")][-1] == "Own negatives"
    tasks("Only BM25")
    assert [row["system"] for row in rows(tasks.folder, "bm25")] == ["BM25"]
    tasks("More episodes")
    assert [row["episode"] for row in rows(tasks.folder, "")] == ["0", "0", "1", "2", "3", "4"]
    tasks("One more evaluation split")
    assert {"test RR@10", "dev RR@10"} <= rows(tasks.folder, "")[0].keys()
    tasks("Evaluate a checkpoint of mine")
    assert [row["system"] for row in rows(tasks.folder, "evaluate")] == ["BM25", "all-MiniLM-L6-v2", "Mine"]
