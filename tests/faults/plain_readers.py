"""What files hold, read as plainly as it can be said: for files that a reader has taken, so nothing is checked."""

import csv
import io
import json

import numpy as np
import pyarrow.parquet as pq


def lines(path):
    """The lines of a file (list); only a line feed ends one."""
    text = path.read_bytes().decode("utf-8-sig").split("\n")
    return [line.rstrip("\r\n") for line in (text if text[-1] else text[:-1])]


def passages(path):
    """[(id, title, text)] of a corpus, tab-separated or JSON lines."""
    if path.suffix == ".tsv":
        fields = [line.split("\t") for line in lines(path)]
        return [(line[0], line[1] if len(line) == 3 else "", line[-1]) for line in fields]
    return [(str(row["_id"]), row.get("title") or "", row["text"]) for row in map(json.loads, lines(path))]


def judgments(path, header=0):
    """{(query, passage): grade}, of which a repetition is the same."""
    fields = [line.split() for line in lines(path)[header:]]
    return {(line[0], line[-2]): int(line[-1].removesuffix(".0")) for line in fields}


def collection(folder):
    """The passages, {query: text}, judgments and answers of the split train of a folder, as a collection keeps them."""
    if (folder / "corpus.tsv").exists():
        queries = dict(line.split("\t") for line in lines(folder / "queries.train.tsv"))
        judged, path = judgments(folder / "qrels.train.tsv"), folder / "corpus.tsv"
        answers = {str(row["id"]): row["answers"] for row in map(json.loads, lines(folder / "answers.train.jsonl"))}
    else:
        rows = map(json.loads, lines(folder / "queries.jsonl"))
        judged, path = judgments(folder / "qrels/train.tsv", header=1), folder / "corpus.jsonl"
        queries, answers = {str(row["_id"]): row["text"] for row in rows}, None
    counted = {query for (query, _), grade in judged.items() if grade >= 1}
    kept = {query: text for query, text in queries.items() if query in counted}
    judged = {pair: grade for pair, grade in judged.items() if pair[0] in counted}
    return passages(path), kept, judged, answers and {name: answers[name] for name in kept if name in answers}


def made_collection(made, split="train"):
    """The same of the finished stages of a corpus and its splits (`stages.Collection`)."""

    def rows(name):
        return pq.read_table(made.files[f"{name}.parquet"]).to_pylist()

    judged = {(row["query_id"], row["doc_id"]): row["grade"] for row in rows(f"qrels.{split}")}
    queries, answers = {row["query_id"]: row["text"] for row in rows(f"queries.{split}")}, None
    if f"answers.{split}.parquet" in made.files:
        answers = {row["query_id"]: row["answers"] for row in rows(f"answers.{split}")}
    return [(row["doc_id"], row["title"], row["text"]) for row in rows("corpus")], queries, judged, answers


def ids_of(folder, doc_ids, query_ids):
    """[(query, [(passage, score), ...])] of a finished retrieval."""
    ids, scores, rows = (np.load(folder / f"{name}.npy") for name in ("ids", "scores", "rows"))
    lists = zip(rows.tolist(), ids.tolist(), scores.tolist(), strict=True)
    return [
        (query_ids[row], [(doc_ids[n], score) for n, score in zip(found, values, strict=True) if n >= 0])
        for row, found, values in lists
    ]


def run(path, form):
    """{query: {(passage, score as float32)}} of a TREC run, or of candidates whose scores are all 0."""
    found = {}
    three = form == "trec" and len(next(iter(lines(path)), "").split()) == 3
    for line in lines(path):
        columns = line.split("\t") if form == "tsv" else line.split()
        at, score = (2, float(np.float32(0 if form == "tsv" else -int(columns[2]) if three else columns[4])))
        passage = columns[1 if three or form == "tsv" else at]
        found.setdefault(columns[0], set()).add((passage, score))
    return found


def negatives(path, form, texts):
    """[(query id, or its text in DPR's form; [passage ids])]; texts: {title and text: id}, of which others are left
    out."""
    if form == "dpr":
        records = json.loads(path.read_bytes())
        return [(r["question"], [str(c.get("passage_id", c.get("psg_id"))) for c in r["hard_negative_ctxs"]])
                for r in records]  # fmt: skip
    found = []
    for row in map(json.loads, lines(path)):
        named = [
            str(p["docid"]) if "docid" in p else texts.get((p.get("title") or "", p["text"]))
            for p in row["negative_passages"]
        ]
        found.append((str(row["query_id"]), [name for name in named if name]))
    return found


def questions(reader, path):
    """[texts of the ids or words that tell a record] of a file of questions or passages; reader: its name."""
    text = path.read_bytes().decode("utf-8-sig")
    if reader == "dpr_questions":
        return [record["question"] for record in json.loads(text)]
    if reader == "tevatron_questions":
        return [json.loads(line)["query"] for line in lines(path)]
    rows = [row for row in csv.reader(io.StringIO(text), delimiter="\t") if row]
    if reader == "dpr_passages":
        return [row[0] for row in rows[rows[:1] == [["id", "text", "title"]] :]]
    return [row[0] for row in rows]
