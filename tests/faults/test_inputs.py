"""A seeded campaign of bad inputs: every reader takes a damaged file, or refuses it by one sentence of ours.

`FAULT_DRAWN` of each reader are drawn; a case that fails is named by its number, which is its seed. Files begin sound
and are damaged once to three times: bytes flipped, cut or repeated, lines dropped, doubled or swapped, fields replaced
by what breaks readers (other encodings, NUL, brackets without end, huge numbers, empty text).
"""

import csv
import io
import json
import random
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from bad_inputs import DRAWN, damaged, taken_or_refused

from collection_world import make_collection
from teleport.collection import build
from teleport.collection.official import dpr_passages, dpr_questions, qa_questions, tevatron_questions
from teleport.evaluation import external
from teleport.negatives import file as negatives_file
from teleport.plan.plan import Plan
from teleport.report.specs import table_specs
from teleport.running.files import sha256_file
from teleport.settings.read import load_files

pytestmark = pytest.mark.faults

TSV = {
    "corpus.tsv": b"d1\tCats\tA cat sleeps.\nd2\tDogs\tA dog barks.\n",
    "queries.train.tsv": b"q1\twhat sleeps\nq2\twhat barks\n",
    "qrels.train.tsv": b"q1 0 d1 1\nq2 0 d2 1\n",
    "answers.train.jsonl": b'{"id": "q1", "answers": ["cat"]}\n{"id": "q2", "answers": ["dog"]}\n',
}
BEIR = {
    "corpus.jsonl": b'{"_id": "d1", "title": "Cats", "text": "A cat sleeps."}\n{"_id": "d2", "text": "A dog barks."}\n',
    "queries.jsonl": b'{"_id": "q1", "text": "what sleeps"}\n{"_id": "q2", "text": "what barks"}\n',
    "qrels/train.tsv": b"query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t1\n",
}
DPR = [
    {"question": q, "answers": ["a"], "positive_ctxs": [{"passage_id": "1", "title": "t", "text": "x"}]} for q in "qr"
]
TEVATRON = [{"query_id": q, "query": "x", "positive_passages": [{"docid": "1"}], "answers": ["a"]} for q in "qr"]
QUESTIONS = {
    dpr_questions: json.dumps(DPR).encode(),
    tevatron_questions: "".join(json.dumps(line) + "\n" for line in TEVATRON).encode(),
    qa_questions: b"who\t['a', \"b\"]\nwhat\t['c']\n",
    dpr_passages: b'id\ttext\ttitle\n1\t"A ""cat"" sleeps."\tCats\n2\tdogs\tDogs\n',
}
RUN = b"q0 Q0 d1 1 2.5 x\nq0 Q0 d2 2 1.5 x\nq1 Q0 d0 1 3 x\n"
CANDIDATES = b"q0\td1\twho\ttext\nq1\td2\twhat\ttext\n"
NEGATIVES = {
    "tevatron": b'{"query_id": "q0", "query": "who", "negative_passages": [{"docid": "d1"}, {"text": "zero"}]}\n',
    "dpr": b'[{"question": "who", "hard_negative_ctxs": [{"passage_id": "d1"}, {"psg_id": "d0", "title": "x"}]}]',
}
YAML = b"""\
collection: {source: folder, path: data}
encoder:
  checkpoint: {folder: bert}
  scale: 20.0
  max_query_tokens: 12
negatives: {alpha: 0.5, beta: 0.5, pool: 12, ranks: {query: [[1, 20], [181, 200]]}}
training: {batch_queries: 4, learning_rate: 1e-3, steps: 6, stop_after_steps: 3}
episodes: [{training: {stop_after_steps: 4}}, {repeat: 2, lag: 1}]
seeds: [1, 2]
experiments: {tele: {label: ANCE-Tele}, other: {negatives: {counts: {bm25: 3}}}}
ablations: {t: {title: T, baseline: null, experiments: {a: {mining: {depth: 9}}}}}
evaluation: {splits: [train], depth: 50, measures: [RR@10, R@50], significance: {resamples: 99}}
bm25: {k1: 0.9, stopwords: english}
"""


def write_damaged(draw, folder, files):
    """Write sound files, one of them damaged."""
    broken = draw.choice(sorted(files))
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(damaged(draw, content) if name == broken else content)


@pytest.mark.parametrize("case", DRAWN)
@pytest.mark.parametrize(("source", "files"), [("folder", TSV), ("beir", BEIR)])
def test_a_collection(stages, tmp_path, campaign, source, files, case):
    write_damaged(random.Random(f"{source} {case}"), tmp_path / "data", files)
    settings = {"source": {"source": source, "path": str(tmp_path / "data")}}

    def misread(job):
        found = pq.read_table(job.folder / "corpus.parquet").to_pylist()
        return None if [(row["doc_id"], row["text"]) for row in found] == passages_of(tmp_path / "data") else found

    taken_or_refused(lambda: stages.run(build.run, "collection", settings), campaign, source, case, misread)


def passages_of(folder):
    """[(id, text)] of a corpus, by another reader of its lines."""
    (path,) = folder.glob("corpus.*")
    text = path.read_bytes().decode("utf-8-sig").split("\n")
    lines = [line.rstrip("\r") for line in (text if text[-1] else text[:-1])]
    if path.suffix == ".tsv":
        return [(line.split("\t")[0], line.split("\t")[-1]) for line in lines]
    return [(row["_id"], row["text"]) for row in map(json.loads, lines)]


def number_of_questions(reader, content):
    """How many records a file of questions or passages has, by another reader."""
    text = content.decode("utf-8-sig")
    if reader is dpr_questions:
        return len(json.loads(text))
    if reader is dpr_passages:
        rows = [row for row in csv.reader(io.StringIO(text), delimiter="\t") if row]
        return len(rows) - (rows[:1] == [["id", "text", "title"]])
    lines = text.split("\n")
    return len(lines if lines[-1] else lines[:-1])


@pytest.mark.parametrize("case", DRAWN)
@pytest.mark.parametrize("reader", QUESTIONS)
def test_questions(tmp_path, campaign, reader, case):
    path = tmp_path / "file"
    path.write_bytes(damaged(random.Random(f"{reader.__name__} {case}"), QUESTIONS[reader]))

    def misread(rows):
        number = number_of_questions(reader, path.read_bytes())
        return None if len(rows) == number else f"{len(rows)} of {number} records"

    taken_or_refused(lambda: list(reader(path)), campaign, reader.__name__, case, misread)


@pytest.mark.parametrize("case", DRAWN)
@pytest.mark.parametrize(("form", "lines"), [("trec", RUN), ("tsv", CANDIDATES)])
def test_a_run_from_elsewhere(stages, tmp_path, campaign, form, lines, case):
    collection = make_collection(stages, 4, {"test": 2}, {"test": [(0, 1, 1), (1, 0, 1)]})
    path = tmp_path / "theirs.run"
    path.write_bytes(damaged(random.Random(f"run {form} {case}"), lines))
    settings = {"file": str(path), "sha256": None, "split": "test", "form": form}
    settings |= {"unknown_queries": "error", "unknown_passages": "error"}
    inputs = {"collection": collection}
    taken_or_refused(lambda: stages.run(external.run, "external", settings, inputs), campaign, f"run, {form}", case)


@pytest.mark.parametrize("case", DRAWN)
def test_judgments_alone(stages, tmp_path, campaign, case):
    files = {"qrels": b"q1 0 d1 1\nq1 0 d2 0\nq2 0 d2 1\n"}
    write_damaged(random.Random(f"judgments {case}"), tmp_path, files)
    settings = {"source": {"source": "judgments", "splits": {"test": {"qrels": str(tmp_path / "qrels")}}}}
    taken_or_refused(lambda: stages.run(build.run, "collection", settings), campaign, "judgments", case)


@pytest.mark.parametrize("case", DRAWN)
@pytest.mark.parametrize("form", NEGATIVES)
def test_negatives_made_elsewhere(stages, tmp_path, campaign, form, case):
    collection = make_collection(stages, [("d0", "", "zero"), ("d1", "t", "one")], {"train": [("q0", "who")]})
    path = tmp_path / "negatives.jsonl"
    path.write_bytes(damaged(random.Random(f"{form} {case}"), NEGATIVES[form]))
    settings, inputs = {"path": str(path), "form": form, "sha256": sha256_file(path)}, {"collection": collection}
    run = partial(stages.run, negatives_file.run, "negatives_file", settings, inputs)
    taken_or_refused(run, campaign, f"negatives, {form}", case)


@pytest.mark.parametrize("case", DRAWN)
def test_a_configuration(tmp_path, monkeypatch, campaign, case):
    monkeypatch.chdir(tmp_path)
    Path("bert").mkdir()
    Path("bert/model.safetensors").touch()
    write_damaged(random.Random(0), tmp_path / "data", TSV)
    Path("config.yaml").write_bytes(damaged(random.Random(f"yaml {case}"), YAML))

    def planned():
        plan = Plan(*load_files(["config.yaml"]))
        return table_specs(plan) and plan

    def misread(plan):
        said = yaml.safe_load(Path("config.yaml").read_bytes())
        tables = (said.get("ablations") or {}).values()
        names = {*(said.get("experiments") or ()), *(name for table in tables for name in table["experiments"])}
        return None if {str(name) for name in names} == set(plan.experiments) else f"{names}: {set(plan.experiments)}"

    taken_or_refused(planned, campaign, "configuration", case, misread)
