"""Pairs, triplets, lists and a hub's tables in every form that `teleport new` reads, damaged: refused by a sentence, or
all of their questions and positives are in the collection. What a person gave is as it was, byte for byte."""

import csv
import gzip
import io
import json
import shutil
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bad_inputs import ODD, WORDS, each_case, json_lines, put_shape, slow_but

from commands.new import new
from teleport.collection.equal import normal_form
from untouched import contents

pytestmark = pytest.mark.faults
PAIRS = 24
QUESTIONS = [f"what is the {n}th thing" for n in range(PAIRS)]
PASSAGES = [f"the {n}th thing is one of {PAIRS}" for n in range(PAIRS)]
OTHERS = [f"another thing than the {n}th" for n in range(PAIRS)]
TRIPLES = list(zip(QUESTIONS, PASSAGES, OTHERS, strict=True))


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def table(records, delimiter=","):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().encode()


def parquet(records):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(records), sink)
    return sink.getvalue().to_pybytes()


def stream(records):
    made = pa.Table.from_pylist(records)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_table(made)
    return sink.getvalue().to_pybytes()


PLAIN = [{"query": q, "positive": p} for q, p, _ in TRIPLES]
NEGATIVE = [{"anchor": q, "positive": p, "negative": n} for q, p, n in TRIPLES]
SAVED = {"data.arrow": stream(PLAIN), "dataset_info.json": b"{}"}
SAVED["state.json"] = b'{"_data_files": [{"filename": "data.arrow"}]}'
CORPUS = [{"_id": f"d{i}", "title": f"Title {i}" if i % 2 else "", "text": p} for i, p in enumerate(PASSAGES)]
QUERIES = [{"_id": f"q{i}", "text": q} for i, q in enumerate(QUESTIONS)]
JUDGED = [{"query-id": f"q{i}", "corpus-id": f"d{i}", "score": 1} for i in range(PAIRS)]
JUDGED += [{"query-id": f"q{i}", "corpus-id": f"d{i + 1}", "score": 0} for i in range(4)]
# {form: ({file: bytes}, key of the question, key of the passages)}
FORMS = {
    "pairs": ({"pairs.jsonl": lines(PLAIN)}, "query", "positive"),
    "list": ({"pairs.json": json.dumps(PLAIN).encode()}, "query", "positive"),
    "csv": ({"pairs.csv": table(PLAIN)}, "query", "positive"),
    "tsv": ({"pairs.tsv": table(PLAIN, "\t").replace(b"\r", b"")}, "query", "positive"),
    "parquet": ({"pairs.parquet": parquet(PLAIN)}, "query", "positive"),
    "dataset": (SAVED, "query", "positive"),
    "triplets": ({"train.jsonl": lines(NEGATIVE)}, "anchor", "positive"),
    "n-tuples": (
        {"a.jsonl": lines({"query": q, "positive": p, "negative_1": n, "score": [2.0, 1.0]} for q, p, n in TRIPLES)},
        "query",
        "positive",
    ),
    "labeled pairs": (
        {"a.csv": table([{"query": q, "passage": t, "label": g} for q, p, n in TRIPLES for t, g in ((p, 1), (n, 0))])},
        "query",
        "passage",
    ),
    "labeled lists": (
        {"a.jsonl": lines({"query": q, "passages": [p, n], "labels": [1, 0]} for q, p, n in TRIPLES)},
        "query",
        "passages",
    ),
    "Tevatron": (
        {
            "a.jsonl": lines(
                {
                    "query_id": str(i),
                    "query": q,
                    "positive_passages": [{"docid": f"p{i}", "title": "", "text": p}],
                    "negative_passages": [{"docid": f"n{i}", "title": "", "text": n}],
                }
                for i, (q, p, n) in enumerate(TRIPLES)
            )
        },
        "query",
        "positive_passages",
    ),
    "FlagEmbedding": ({"a.jsonl": lines({"query": q, "pos": [p], "neg": [n]} for q, p, n in TRIPLES)}, "query", "pos"),
    "NeMo": (
        {"a.jsonl": lines({"question": q, "pos_doc": [{"text": p}], "neg_doc": [{"text": n}]} for q, p, n in TRIPLES)},
        "question",
        "pos_doc",
    ),
    "DPR": (
        {
            "a.json": json.dumps(
                [
                    {
                        "question": q,
                        "answers": ["a"],
                        "positive_ctxs": [{"title": "", "text": p, "passage_id": str(i)}],
                        "negative_ctxs": [],
                        "hard_negative_ctxs": [{"title": "", "text": n, "passage_id": f"n{i}"}],
                    }
                    for i, (q, p, n) in enumerate(TRIPLES)
                ]
            ).encode()
        },
        "question",
        "positive_ctxs",
    ),
    "texts": (
        {f"{i}.txt": f"{p}\n\n{n}".encode() for i, (_, p, n) in enumerate(TRIPLES)}
        | {"questions.jsonl": lines({"question": q, "file": f"{i}.txt"} for i, q in enumerate(QUESTIONS))},
        "question",
        None,
    ),
    "a hub's JSON lines": (
        {"corpus.jsonl": lines(CORPUS), "queries.jsonl": lines(QUERIES), "qrels/train.jsonl": lines(JUDGED)},
        None,
        None,
    ),
    "a hub's Parquet": (
        {
            "corpus/corpus-0-of-1.parquet": parquet(CORPUS),
            "queries/queries-0-of-1.parquet": parquet(QUERIES),
            "data/train-0-of-1.parquet": parquet(JUDGED),
        },
        None,
        None,
    ),
}
COLUMNS = [*ODD, *(word.decode("utf-8", "replace") for word in WORDS), "  ", "\ud83d", QUESTIONS[0], PASSAGES[0]]


def with_odd_values(case, records):
    """Records with one to three of their values, at any depth, replaced or removed; mostly in columns of texts."""
    if case.draw.random() < 0.4:
        return case.mutated(records)
    records = json.loads(json.dumps(records))
    for _ in case.damages():
        if record := case.draw.choice(records):
            record[case.draw.choice(sorted(record))] = case.draw.choice(COLUMNS)
    return records


def as_table(records):
    """Bytes of Parquet and of Arrow's stream of what records may be, as far as one table holds them."""
    with suppress(pa.ArrowException, TypeError, AttributeError, KeyError, OverflowError, UnicodeEncodeError):
        return parquet(records), stream(records)
    return parquet(PLAIN)[:-9], stream(PLAIN)[:-9]


def changed(case, files):
    """{file: bytes} of a sound form, one of them with odd values where its records can be written, or else damaged."""
    files, name = dict(files), case.draw.choice(sorted(files))
    if case.sound:
        return files
    content, kind = files[name], name.rpartition(".")[2]
    if case.draw.random() < 0.4 or kind in ("txt", "json") and name not in ("pairs.json", "a.json"):
        files[name] = case.damaged(content)
    elif kind == "jsonl":
        files[name] = json_lines(lambda records: with_odd_values(case, records), content)
    elif kind == "json":
        files[name] = json.dumps(with_odd_values(case, json.loads(content))).encode()
    elif kind in ("parquet", "arrow"):
        records = pq.read_table(io.BytesIO(content)).to_pylist() if kind == "parquet" else PLAIN
        files[name] = as_table(with_odd_values(case, records))[kind == "arrow"]
    else:
        delimiter = "," if kind == "csv" else "\t"
        rows = list(csv.DictReader(io.StringIO(content.decode()), delimiter=delimiter))
        with suppress(ValueError, AttributeError, IndexError, TypeError, UnicodeEncodeError):  # no table can hold it
            files[name] = table(with_odd_values(case, rows), delimiter).replace(b"\r", b"")
    return files


def held(folder, files, question, passage):
    """{normal form of a question: normal forms of its positives} of plain files that were taken."""
    if question is None:
        return held_by_ids(folder, files)
    records = [record for name in files for record in records_in(folder / name)]
    found = {}
    for record in records:
        texts = record[passage] if passage else []
        texts = texts if isinstance(texts, list) else [texts]
        grades = record.get("labels") or [int(float(record.get("label", 1)))] * len(texts)
        texts = [text if isinstance(text, str) else f"{text.get('title') or ''} {text['text']}" for text in texts]
        own = found.setdefault(normal_form(record[question]), set())
        own |= {normal_form(text) for text, grade in zip(texts, grades, strict=True) if int(float(grade)) > 0}
    return found


def held_by_ids(folder, files):
    """The same of a hub's tables of passages, queries and judgments."""
    parts = {}
    for name in files:
        parts["qrels" if "/train" in name else name[:6]] = records_in(folder / name)
    texts = {str(row["_id"]): normal_form(f"{row.get('title') or ''} {row['text']}") for row in parts["corpus"]}
    queries, found = {str(row["_id"]): normal_form(row["text"]) for row in parts["querie"]}, {}
    for row in parts["qrels"]:
        if float(row["score"]) > 0:
            found.setdefault(queries[str(row["query-id"])], set()).add(texts[str(row["corpus-id"])])
    return found


def records_in(path):
    """The records of a file, plainly read; none of one that has another meaning."""
    if path.name.endswith(".jsonl"):
        return [json.loads(line) for line in path.read_bytes().decode("utf-8-sig").split("\n") if line.strip()]
    if path.name in ("a.json", "pairs.json"):
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    if path.name.endswith(".parquet"):
        return pq.read_table(path).to_pylist()
    if path.name.endswith(".arrow"):
        return pa.ipc.open_stream(path.read_bytes()).read_all().to_pylist()
    if path.name.endswith((".csv", ".tsv")):
        text, tabs = path.read_bytes().decode("utf-8-sig"), path.name.endswith(".tsv")
        options = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if tabs else {}
        return list(csv.DictReader(io.StringIO(text, newline=""), **options))
    return []


def made_pairs(folder):
    """The same of the collection that was written, and the texts of all passages."""
    corpus, queries = (
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().split("\n") if line]
        for name in ("corpus", "queries")
    )
    texts = {row["_id"]: normal_form(f"{row['title']} {row['text']}") for row in corpus}
    queries, found = {row["_id"]: normal_form(row["text"]) for row in queries}, {}
    for path in (folder / "qrels").glob("*.tsv"):
        for line in path.read_text().splitlines()[1:]:
            query, docid, grade = line.split("\t")
            found.setdefault(queries[query], set()).update({texts[docid]} if int(grade) > 0 else ())
    return {query: positives for query, positives in found.items() if positives}, set(texts.values())


@pytest.mark.parametrize("form", slow_but(["csv", "dataset", "labeled lists", "texts", "a hub's Parquet"], FORMS))
def test_pairs_in_every_form(tmp_path, monkeypatch, campaign, form):
    files, question, passage = FORMS[form]

    def one(case):
        monkeypatch.chdir(case.folder)
        given = case.folder / "given"
        written = changed(case, files)
        for name, content in written.items():
            (given / name).parent.mkdir(parents=True, exist_ok=True)
            (given / name).write_bytes(content)
        before = contents(given)

        def misread(_):
            found, texts = made_pairs(case.folder / "data/mine-divided")
            try:
                plain = held(given, sorted(written), question, passage)
            except (KeyError, ValueError, TypeError, AttributeError, csv.Error):  # other keys, another encoding
                return len(texts) == 0 and "no passage"
            plain = {one: positives for one, positives in plain.items() if positives or form == "texts"}
            if form == "texts":
                plain = {one: found.get(one) for one in plain}
            return (
                plain != found
                and [
                    (one, plain.get(one), found.get(one))
                    for one in plain.keys() | found
                    if plain.get(one) != found.get(one)
                ][:3]
            )

        case.read(lambda: new("mine", given), misread)
        wrong = contents(given) != before and "a file of the person's has changed"
        if not case.taken:
            wrong = wrong or {path.name for path in case.folder.iterdir()} - {"given"}
        campaign.note("nothing is left of what was refused, and nothing changed", f"pairs, {form}", wrong, case.number)
        monkeypatch.chdir(tmp_path)

    each_case(campaign, tmp_path, f"pairs, {form}", one, few=1)


STOOD_FOR = ["pairs", "csv", "parquet", "dataset", "texts", "a hub's JSON lines", "a hub's Parquet"]
SHAPES = ["a folder", "a pipe", "a dangling link", "a device", "nothing", "compressed", "a link to it"]


@pytest.mark.parametrize("form", slow_but(["dataset"], STOOD_FOR))
def test_what_stands_in_the_place_of_pairs(tmp_path, monkeypatch, campaign, form):
    """FROM, or a file in it, is something else than a regular file."""
    files, *_ = FORMS[form]

    def one(case):
        monkeypatch.chdir(case.folder)
        given = case.folder / "given"
        for name, content in files.items():
            (given / name).parent.mkdir(parents=True, exist_ok=True)
            (given / name).write_bytes(content)
        if not case.sound:
            shape, path = case.draw.choice(SHAPES), given / case.draw.choice(sorted(files))
            content = path.read_bytes()
            if case.draw.random() < 0.3:
                path = given
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            put_shape(path, shape, content)
            if shape == "compressed":
                path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content))
        case.read(lambda: new("mine", given), lambda _: not made_pairs(case.folder / "data/mine-divided")[0])
        monkeypatch.chdir(tmp_path)

    each_case(campaign, tmp_path, f"what stands for pairs, {form}", one, few=2)
