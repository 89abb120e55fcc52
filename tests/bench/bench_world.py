"""Benchmarks at a tiny size, as modules of a path that has bench/."""

import importlib
import json
import sys

import pytest

from paths import REPOSITORY

SIZES = {
    "encode": ["--passages", "4"],
    "cross": ["--pairs", "6"],
    "train": ["--queries", "2", "--negatives", "1", "--steps", "2"],
    "live": ["--passages", "300", "--queries", "2", "--depth", "20"],
    "search": ["--passages", "300", "--queries", "5", "--dim", "16", "--depth", "20"],
    "bm25": ["--passages", "300", "--queries", "5", "--depth", "20"],
    "answers": ["--depth", "2", "--copies", "2"],
}


@pytest.fixture(autouse=True)
def bench_on_path(monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "bench")
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:  # names such as `search` are only meant inside bench/
        if str(REPOSITORY / "bench") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def run(name, folder, capsys, *arguments):
    """What a benchmark printed, and what it wrote."""
    path = folder / f"{name}.json"
    if name == "answers":
        arguments = write_questions(folder)
    importlib.import_module(name).main([*SIZES[name], "--rounds", "1", "--json", str(path), *arguments])
    return capsys.readouterr().out, json.loads(path.read_text())


def write_questions(folder):
    """Three passages and two questions for bench/answers.py: paths of their files."""
    corpus, questions = folder / "corpus.tsv", folder / "questions.jsonl"
    corpus.write_text("d0\t\tParis is in France\nd1\t\tRome is in Italy\nd2\t\tnothing here\n")
    records = {"question": "Where is Paris?", "answer": ["France"]}, {"question": "Where is Rome?", "answers": ["Oslo"]}
    questions.write_text("".join(json.dumps(record) + "\n" for record in records))
    return [str(corpus), str(questions)]
