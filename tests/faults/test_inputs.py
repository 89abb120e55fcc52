"""A seeded campaign of bad inputs: every reader takes a damaged file, or refuses it by one sentence of ours.

`FAULT_CASES` of each reader are drawn; a case that fails is named by its number, which is its seed. Files begin sound
and are damaged once to three times: bytes flipped, cut or repeated, lines dropped, doubled or swapped, fields replaced
by what breaks readers (other encodings, NUL, brackets without end, huge numbers, empty text), or, of JSON and YAML, any
part of what they hold replaced or removed. What is taken must be what a plain reader finds (plain_readers.py).
"""

import json
from functools import partial
from pathlib import Path

import plain_readers
import pytest
import yaml
from bad_inputs import each_case, json_lines

from collection_world import make_collection
from encoder_world import source_folder
from teleport.collection.forms.downloads import dpr_passages, dpr_questions, qa_questions, tevatron_questions
from teleport.evaluation import external
from teleport.negatives import file as negatives_file
from teleport.plan.plan import Plan
from teleport.report.rows import measured_tables
from teleport.running.files import sha256_file

pytestmark = pytest.mark.faults
MANY = 20_000  # lines of a large file

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
  pooling: mean
  scale: 20.0
  max_query_tokens: 12
negatives: {alpha: 0.5, beta: 0.5, pool: 12, ranks: {query: [[1, 20], [181, 200]]}}
training: {batch_queries: 4, learning_rate: 1e-3, steps: 6, stop_after_steps: 3}
episodes: [{training: {stop_after_steps: 4}}, {repeat: 2, lag: 1}]
seeds: [1, 2]
experiments: {tele: {label: ANCE-Tele}, other: {negatives: {counts: {bm25: 3}}}}
ablations: {t: {title: T, baseline: null, experiments: {a: {mining: {depth: 250}}}}}
evaluation: {splits: [train], depth: 50, measures: [RR@10, R@50], significance: {resamples: 99}}
bm25: {k1: 0.9, stopwords: english}
"""


def longer(content, line):
    """`content` (bytes) with MANY more lines, `line` (text) with the number of each."""
    return content + "".join(line.format(number) for number in range(MANY)).encode()


@pytest.mark.parametrize("way", ["damaged", "mutated"])
@pytest.mark.parametrize(("source", "files"), [("folder", TSV), ("beir", BEIR)])
def test_a_collection(stages, tmp_path, campaign, source, files, way):
    def one(case):
        made = dict(files)
        if case.large and source == "folder":
            made["corpus.tsv"] = longer(made["corpus.tsv"], "x{0}\tTitle\tText number {0}.\n")
        if way == "mutated":
            name = case.draw.choice([name for name in sorted(files) if name.endswith(".jsonl")])
            case.write(made | {name: json_lines(case.mutated, made[name])}, lambda content: content)
        else:
            case.write(made)
        settings = {"source": {"source": source, "path": str(case.folder)}}

        def misread(job):
            found, held = plain_readers.made_collection(job), plain_readers.collection(case.folder)
            return [one for one, other in zip(found, held, strict=True) if one != other]

        case.read(lambda: stages.collection(settings["source"]), misread)

    each_case(campaign, tmp_path, f"{source}, {way}", one)


OF_JSON = [(reader, "mutated") for reader in (dpr_questions, tevatron_questions)]


@pytest.mark.parametrize(("reader", "way"), [*((reader, "damaged") for reader in QUESTIONS), *OF_JSON])
def test_questions(tmp_path, campaign, reader, way):
    change = {
        dpr_questions: lambda case, content: json.dumps(case.mutated(json.loads(content))).encode(),
        tevatron_questions: lambda case, content: json_lines(case.mutated, content),
    }

    def one(case):
        path, content = case.folder / "file", QUESTIONS[reader]
        if case.large and reader is dpr_passages:
            content = longer(content, "x{0}\ttext {0}\ttitle\n")
        path.write_bytes(change[reader](case, content) if way == "mutated" else case.damaged(content))

        def misread(rows):
            found = [row[1] if reader is dpr_passages else row.text for row in rows]
            held = plain_readers.questions(reader.__name__, path)
            return found != held and f"{found[:3]}, not {held[:3]}"

        case.read(lambda: list(reader(path)), misread)

    each_case(campaign, tmp_path, f"{reader.__name__}, {way}", one)


@pytest.mark.parametrize(("form", "lines"), [("trec", RUN), ("tsv", CANDIDATES)])
def test_a_run_from_elsewhere(stages, tmp_path, campaign, form, lines):
    passages, queries = [f"d{n}" for n in range(MANY)], ["q0", "q1"]
    texts = [(name, "", "text") for name in passages]
    collection = make_collection(stages, texts, {"test": 2}, {"test": [(0, 1, 1), (1, 0, 1)]})
    added = "q1 Q0 d{0} 1 -{0} x\n" if form == "trec" else "q0\td{0}\twho\ttext\n"

    def one(case):
        path = case.folder / "theirs.run"
        path.write_bytes(case.damaged(longer(b"", added) if case.large else lines))
        settings = {"file": str(path), "sha256": None, "split": "test", "form": form}
        settings |= {"unknown_queries": "error", "unknown_passages": "error"}

        def misread(job):
            found, held = plain_readers.ids_of(job.folder, passages, queries), plain_readers.run(path, form)
            order = [query for query, ranked in found if ranked != sorted(ranked, key=lambda pair: -pair[1])]
            return order or ({query: set(ranked) for query, ranked in found} != held and f"{found}, not {held}"[:300])

        case.read(lambda: stages.run(external.run, "external", settings, {"collection": collection}), misread)

    each_case(campaign, tmp_path, f"run, {form}", one)


def test_judgments_alone(stages, tmp_path, campaign):
    def one(case):
        case.write({"qrels": b"q1 0 d1 1\nq1 0 d2 0\nq2 0 d2 1\n"})
        path = case.folder / "qrels"
        settings = {"source": {"source": "judgments", "splits": {"test": {"qrels": str(path)}}}}

        def misread(job):
            found = plain_readers.made_collection(job, "test")[2]
            return found != plain_readers.judgments(path) and found

        case.read(lambda: stages.collection(settings["source"]), misread)

    each_case(campaign, tmp_path, "judgments", one)


@pytest.mark.parametrize("way", ["damaged", "mutated"])
@pytest.mark.parametrize("form", NEGATIVES)
def test_negatives_made_elsewhere(stages, tmp_path, campaign, form, way):
    collection = make_collection(stages, [("d0", "", "zero"), ("d1", "t", "one")], {"train": [("q0", "who")]})
    texts = {("", "zero"): "d0", ("t", "one"): "d1"}
    change = {
        "tevatron": lambda case, content: json_lines(case.mutated, content),
        "dpr": lambda case, content: json.dumps(case.mutated(json.loads(content))).encode(),
    }

    def one(case):
        path = case.folder / "negatives.jsonl"
        path.write_bytes(change[form](case, NEGATIVES[form]) if way == "mutated" else case.damaged(NEGATIVES[form]))
        settings, inputs = {"path": str(path), "form": form, "sha256": sha256_file(path)}, {"collection": collection}

        def misread(job):
            found = plain_readers.ids_of(job.folder, ["d0", "d1"], ["who" if form == "dpr" else "q0"])
            found = [(query, [name for name, _ in ranked]) for query, ranked in found]
            held = [line for line in plain_readers.negatives(path, form, texts) if line[0] in ("who", "q0")]
            return found != held and f"{found}, not {held}"

        case.read(partial(stages.run, negatives_file.run, "negatives_file", settings, inputs), misread)

    each_case(campaign, tmp_path, f"negatives, {form}, {way}", one)


def test_a_configuration(tmp_path, monkeypatch, campaign):
    bert = source_folder(tmp_path / "bert")

    def one(case):
        monkeypatch.chdir(case.folder)
        Path("bert").symlink_to(bert)
        case.write({f"data/{name}": content for name, content in TSV.items()}, lambda content: content)
        config = Path("config.yaml")
        if case.draw.random() < 0.5:
            config.write_text(yaml.safe_dump(case.mutated(yaml.safe_load(YAML)), sort_keys=False))
        else:
            config.write_bytes(case.damaged(YAML))

        def planned():
            plan = Plan.of_files(["config.yaml"])
            return measured_tables(plan) and plan

        def misread(plan):
            said = yaml.safe_load(config.read_bytes())
            tables = (said.get("ablations") or {}).values()
            names = {*(said.get("experiments") or ()), *(name for table in tables for name in table["experiments"])}
            names = {str(name) for name in names}
            return names != set(plan.experiments) and f"{names}: {set(plan.experiments)}"

        case.read(planned, misread)
        monkeypatch.chdir(tmp_path)

    each_case(campaign, tmp_path, "configuration", one)
