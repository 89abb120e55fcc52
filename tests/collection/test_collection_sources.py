"""Every file form gives the same canonical collection, and the reader gives it back."""

import gzip
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from teleport.reader import read_positives
from teleport.running.files import sha256_file

# Quotes, a lone quote, a line separator and spaces at the ends are text and must survive.
PASSAGES = [
    ("d1", "Cats", 'A "cat" sleeps.'),
    ("d2", "", ' "Dogs bark\u2028at night '),
    ("d3", "Emus", "An emu runs; it can not fly. 😀"),
]
QUERIES = {
    "train": [("q1", "what sleeps"), ("q2", "what runs"), ("q3", "what is never judged")],
    "test": [("q4", "bark")],
}
QRELS = {
    "train": [("q2", "d3", 1), ("q1", "d3", 1), ("q1", "d1", 2), ("q2", "d1", 0)],
    "test": [("q4", "d2", 1), ("q4", "d1", 0)],
}


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wb") as file:
        file.write("".join(line + "\n" for line in lines).encode())


def folder(root):
    write(root / "corpus.tsv.gz", ["\t".join(p) for p in PASSAGES])
    for split in QUERIES:
        write(root / f"queries.{split}.tsv", ["\t".join(q) for q in QUERIES[split]])
        write(root / f"qrels.{split}.tsv", [f"{q} 0 {d} {g}" for q, d, g in QRELS[split]])
    return {"source": "folder", "path": str(root), "queries": None}


def folder_with_queries_apart(root):
    settings = folder(root)
    for path in [*root.glob("q*.tsv")]:
        write(root / "apart" / f"{path.name}.gz", path.read_text().splitlines())
        path.unlink()
    return settings | {"queries": str(root / "apart")}


def tsv(root):
    folder(root)
    write(root / "collection.tsv", ["\t".join(p) for p in PASSAGES])
    write(root / "three.tsv", [f"{q}\t{d}\t{g}" for q, d, g in QRELS["train"]])
    write(root / "trec.tsv", [f"{q}\t0\t{d}\t{g}" for q, d, g in QRELS["test"]])
    splits = {
        "train": {"queries": str(root / "queries.train.tsv"), "qrels": str(root / "three.tsv")},
        "test": {"queries": str(root / "queries.test.tsv"), "qrels": str(root / "trec.tsv")},
    }
    return {"source": "tsv", "corpus": str(root / "collection.tsv"), "splits": splits}


def beir(root):
    def record(i, title, text):
        return json.dumps({"_id": i, "title": title, "text": text} if title else {"_id": i, "text": text})

    write(root / "corpus.jsonl.gz", [record(*p) for p in PASSAGES])
    write(root / "queries.jsonl", [record(i, "", text) for split in QUERIES for i, text in QUERIES[split]])
    for split, rows in QRELS.items():
        write(root / f"qrels/{split}.tsv", ["query-id\tcorpus-id\tscore", *(f"{q}\t{d}\t{g}" for q, d, g in rows)])
    return {"source": "beir", "path": str(root)}


def tables(job):
    return {name: pq.read_table(path).to_pylist() for name, path in job.files.items() if path.suffix == ".parquet"}


@pytest.mark.parametrize("form", [folder, folder_with_queries_apart, tsv, beir])
def test_every_form_gives_this_collection(stages, tmp_path, form):
    job = stages.collection(form(tmp_path / "data"))
    assert tables(job) == {
        "same_text.test.parquet": [],
        "same_text.train.parquet": [],
        "corpus.parquet": [{"doc_id": d, "title": title, "text": text} for d, title, text in PASSAGES],
        "queries.test.parquet": [{"query_id": "q4", "text": "bark"}],
        "queries.train.parquet": [{"query_id": "q1", "text": "what sleeps"}, {"query_id": "q2", "text": "what runs"}],
        "qrels.test.parquet": [
            {"query_id": "q4", "doc_id": "d2", "grade": 1, "query": 0, "passage": 1},
            {"query_id": "q4", "doc_id": "d1", "grade": 0, "query": 0, "passage": 0},
        ],
        "qrels.train.parquet": [
            {"query_id": "q2", "doc_id": "d3", "grade": 1, "query": 1, "passage": 2},
            {"query_id": "q1", "doc_id": "d3", "grade": 1, "query": 0, "passage": 2},
            {"query_id": "q1", "doc_id": "d1", "grade": 2, "query": 0, "passage": 0},
            {"query_id": "q2", "doc_id": "d1", "grade": 0, "query": 1, "passage": 0},
        ],
    }
    # In BEIR's form a query belongs to a split through its judgments, so an unjudged one belongs to none.
    dropped = 0 if form is beir else 1
    assert job.facts["splits"] == {
        "train": {"queries": 2, "judgments": 4, "positives": 3, "dropped": dropped},
        "test": {"queries": 1, "judgments": 2, "positives": 1, "dropped": 0},
    }
    assert job.facts["num_passages"] == 3


def test_corpus_digest_depends_on_the_corpus_alone(stages, tmp_path):
    digests = [stages.collection(form(tmp_path / form.__name__)).facts["corpus_digest"] for form in (folder, tsv, beir)]
    assert len(digests[0]) == 64 and len(set(digests)) == 1
    settings = folder(tmp_path / "edited")
    for old, new in (("emu runs", "emu ran"), ("Emus", "Emu"), ("d2", "d02"), ("Cats\tA", "CatsA\t")):
        write(tmp_path / "edited/corpus.tsv.gz", ["\t".join(p).replace(old, new) for p in PASSAGES])
        for split, rows in QRELS.items():
            write(tmp_path / f"edited/qrels.{split}.tsv", [f"{q} 0 {d} {g}".replace(old, new) for q, d, g in rows])
        assert stages.collection(settings).facts["corpus_digest"] not in digests


def test_two_builds_give_the_same_bytes(stages, tmp_path):
    settings = folder(tmp_path / "data")
    made = [stages.collection(settings).values() for _ in range(2)]
    files = [[json.loads((job.folder / "manifest.json").read_text())["files"] for job in jobs] for jobs in made]
    assert files[0] == files[1] and [len(each) for each in files[0]] == [3, 4, 4]


def test_corpus_of_two_columns_has_empty_titles(stages, tmp_path):
    settings = tsv(tmp_path / "data")
    write(tmp_path / "data/collection.tsv", [f"{d}\t{text}" for d, _, text in PASSAGES])
    rows = tables(stages.collection(settings))["corpus.parquet"]
    assert rows == [{"doc_id": d, "title": "", "text": text} for d, _, text in PASSAGES]


def test_a_passage_may_be_a_title_alone(stages, tmp_path):
    settings = beir(tmp_path / "data")
    passages = [*PASSAGES, ("d4", "Title alone", ""), ("d5", "Another", " ")]
    records = [json.dumps({"_id": i, "title": title, "text": text}) for i, title, text in passages]
    write(tmp_path / "data/corpus.jsonl.gz", records)
    rows = tables(stages.collection(settings))["corpus.parquet"]
    assert [tuple(row.values()) for row in rows] == passages


def test_byte_order_mark_and_windows_line_ends_are_no_text(stages, tmp_path):
    settings = folder(tmp_path / "data")
    lines = "".join("\t".join(q) + "\r\n" for q in QUERIES["train"])
    (tmp_path / "data/queries.train.tsv").write_bytes(b"\xef\xbb\xbf" + lines.encode())
    assert tables(stages.collection(settings))["queries.train.parquet"][0] == {"query_id": "q1", "text": "what sleeps"}


def test_positive_grade_decides_what_a_train_query_needs(stages, tmp_path):
    job = stages.collection(folder(tmp_path / "data") | {"positive_grade": 2})
    assert tables(job)["queries.train.parquet"] == [{"query_id": "q1", "text": "what sleeps"}]
    assert [(r["doc_id"], r["query"]) for r in tables(job)["qrels.train.parquet"]] == [("d3", 0), ("d1", 0)]
    assert job.facts["splits"] == {
        "train": {"queries": 1, "judgments": 2, "positives": 1, "dropped": 2},
        "test": {"queries": 1, "judgments": 2, "positives": 0, "dropped": 0},
    }


def test_some_training_queries_are_drawn_by_their_ids(stages, tmp_path):
    settings = folder(tmp_path / "data")
    write(tmp_path / "data/queries.train.tsv", [f"n{n}\ttext {n}" for n in range(40)])
    write(tmp_path / "data/qrels.train.tsv", [f"n{n} 0 d{1 + n % 3} 1" for n in range(40) if n != 7])

    def drawn(**given):
        job = stages.collection(settings | {"train_queries": given})
        ids = [row["query_id"] for row in tables(job)["queries.train.parquet"]]
        judged = [(row["query_id"], ids[row["query"]]) for row in tables(job)["qrels.train.parquet"]]
        assert judged == [(query_id, query_id) for query_id in ids] and len(tables(job)["queries.test.parquet"]) == 1
        assert job.facts["splits"]["train"]["dropped"] == 40 - len(ids)
        return ids

    ten, twenty, other = drawn(count=10), drawn(count=20), drawn(count=10, seed=1)
    assert (len(ten), len(twenty)) == (10, 20) and set(ten) < set(twenty) and set(ten) != set(other)
    assert ten == sorted(ten, key=lambda name: int(name[1:]))  # the order of the file
    assert len(drawn(count=1000)) == 39 and "n7" not in drawn(count=39)


def test_dropped_queries_are_logged(stages, tmp_path, caplog):
    with caplog.at_level("INFO", "teleport"):
        stages.collection(folder(tmp_path / "data"))
    assert "train: 2 queries, 4 judgments, 3 positives, 1 dropped" in caplog.text


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_answers_follow_the_kept_queries(stages, tmp_path, suffix):
    settings = folder(tmp_path / "data")
    answers = [("q3", ["x"]), ("q2", ["emu", "an emu"]), ("q1", ["cat"])]
    write(tmp_path / f"data/answers.train.jsonl{suffix}", [json.dumps({"id": i, "answers": a}) for i, a in answers])
    rows = tables(stages.collection(settings))["answers.train.parquet"]
    assert rows == [{"query_id": "q1", "answers": ["cat"]}, {"query_id": "q2", "answers": ["emu", "an emu"]}]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_questions_with_answers_count_outside_of_train_without_judgments(stages, tmp_path, suffix):
    settings = folder(tmp_path / "data")
    write(tmp_path / "data/queries.nq.tsv", ["q7\tbark", "q8\tmoo", "q9\tno answer"])
    write(tmp_path / f"data/answers.nq.jsonl{suffix}", [json.dumps({"id": i, "answers": ["x"]}) for i in ("q8", "q7")])
    job = stages.collection(settings)
    assert job.facts["splits"]["nq"] == {"queries": 2, "answers": 2, "judgments": 0, "positives": 0, "dropped": 1}
    assert [row["query_id"] for row in tables(job)["queries.nq.parquet"]] == ["q7", "q8"]
    assert tables(job)["qrels.nq.parquet"] == []


def test_training_questions_with_answers_stay_where_positives_are_found_by_them(stages, tmp_path):
    settings = folder(tmp_path / "data")
    write(tmp_path / "data/answers.train.jsonl", [json.dumps({"id": i, "answers": ["x"]}) for i in ("q3", "q1")])
    given, found = stages.collection(settings), stages.collection(settings | {"positives": "answers"})
    assert [row["query_id"] for row in tables(given)["queries.train.parquet"]] == ["q1", "q2"]
    assert [row["query_id"] for row in tables(found)["queries.train.parquet"]] == ["q1", "q2", "q3"]
    assert found.facts["splits"]["train"] == {
        "queries": 3, "answers": 2, "judgments": 4, "positives": 3, "dropped": 0
    }  # fmt: skip
    (tmp_path / "data/answers.train.jsonl").unlink()
    with pytest.raises(ValueError, match=r"collection.positives is 'answers'.* answers"):
        stages.collection(settings | {"positives": "answers"})


def test_reader(stages, tmp_path):
    built = stages.collection(folder(tmp_path / "data"))
    positives = read_positives(built.split("train"), "train")
    assert (positives.offsets.dtype, positives.values.dtype) == (np.int64, np.int32)
    assert positives.offsets.tolist() == [0, 2, 3] and positives.values.tolist() == [
        2,
        0,
        2,
    ]  # q1: d3, d1 as judged; q2: d3


def test_positives_keep_the_order_of_the_judgments(stages, tmp_path):
    """Against lists filled one by one, with enough judgments that an unstable sort would mix them up."""
    rng = np.random.default_rng(7)
    pairs = rng.permutation([(query, passage) for query in range(9) for passage in range(60)]).tolist()
    grades = rng.integers(0, 2, len(pairs)).tolist()
    settings = folder(tmp_path / "data")
    write(tmp_path / "data/corpus.tsv.gz", [f"d{n}\t\ttext {n}" for n in range(60)])
    write(tmp_path / "data/queries.train.tsv", [f"q{n}\tquery {n}" for n in range(9)])
    lines = [f"q{query} 0 d{passage} {grade}" for (query, passage), grade in zip(pairs, grades, strict=True)]
    write(tmp_path / "data/qrels.train.tsv", lines)
    expected = [[] for _ in range(9)]
    for (query, passage), grade in zip(pairs, grades, strict=True):
        if grade:
            expected[query].append(passage)
    built = stages.collection(settings)
    assert [one.tolist() for one in read_positives(built.split("train"), "train")] == expected


def test_reader_of_queries_without_positives(stages, tmp_path):
    built = stages.collection(folder(tmp_path / "data") | {"positive_grade": 2})
    positives = read_positives(built.split("test"), "test")
    assert positives.offsets.tolist() == [0, 0] and positives.values.tolist() == []
    assert read_positives(built.split("test"), "test", grade=1)[0].tolist() == [1], "a lower grade than positives"


# (queries, judgments) of train, dev, test as the README of each collection states them, and its number of passages.
REAL = {
    "nfcorpus": ({"path": "nfcorpus"}, 3395, {"train": (2563, 110075), "dev": (324, 11385), "test": (323, 12334)}),
    "squad": (
        {"path": "openqa-wiki", "queries": "openqa-wiki/squad"},
        13306,
        {"train": (7468, 7468), "dev": (1643, 1643), "test": (1459, 1459)},
    ),
    "nq": (
        {"path": "openqa-wiki", "queries": "openqa-wiki/nq"},
        13306,
        {"train": (1655, 3262), "dev": (500, 988), "test": (500, 983)},
    ),
    "tiny": ({"path": "tiny"}, 400, {"train": (60, 117), "dev": (20, 40), "test": (20, 40)}),
}


@pytest.mark.parametrize("name", REAL)
def test_real_collections(stages, shared, name):
    places, num_passages, counts = REAL[name]
    places = {key: str(shared / "collections" / place) for key, place in places.items()}
    job = stages.collection({"source": "folder", "queries": None} | places)
    assert job.facts["num_passages"] == num_passages
    found = {
        split: (c["queries"], c["judgments"], c["positives"], c["dropped"]) for split, c in job.facts["splits"].items()
    }
    assert found == {split: (queries, judgments, judgments, 0) for split, (queries, judgments) in counts.items()}
    for split, (queries, judgments) in counts.items():
        positives = read_positives(job.split(split), split)
        assert len(positives) == queries and positives.lengths.min() > 0
        assert positives.offsets[-1] == len(positives.values) == judgments
        if name != "nfcorpus":
            assert pq.read_metadata(job.files[f"answers.{split}.parquet"]).num_rows == queries


def test_a_file_that_has_changed_since_it_was_planned_is_refused(stages, tmp_path):
    """Else its content would be kept under the digest of another one."""
    source = folder(tmp_path)
    files = {str(path): sha256_file(path) for path in tmp_path.glob("q*.tsv")}
    stages.collection(source, files=files)
    write(tmp_path / "queries.test.tsv", ["q4\tanother text"])
    with pytest.raises(ValueError, match="queries.test.tsv has changed"):
        stages.collection(source, files=files)
    (tmp_path / "queries.test.tsv").unlink()
    with gzip.open(tmp_path / "queries.test.tsv.gz", "wt") as file:  # a reader takes it
        file.write("q4\tanother text\n")
    with pytest.raises(ValueError, match=r"queries.test.tsv has changed .*no such file"):
        stages.collection(source, files=files)


@pytest.mark.parametrize("name", ["answers.train.jsonl", "qrels.nq.tsv", "queries.test.tsv"])
def test_a_file_that_was_added_since_the_collection_was_planned_is_refused(stages, tmp_path, name):
    """Else a result that read it would be kept under a key without it."""
    source = folder(tmp_path)
    write(tmp_path / "queries.nq.tsv", ["q8\tmoo"])
    write(tmp_path / "answers.nq.jsonl", [json.dumps({"id": "q8", "answers": ["x"]})])
    compressed = tmp_path / "queries.test.tsv.gz"
    write(compressed, (tmp_path / "queries.test.tsv").read_text().splitlines())
    (tmp_path / "queries.test.tsv").unlink()
    files = {str(path): sha256_file(path) for path in tmp_path.iterdir()}
    stages.collection(source, files=files)
    lines = {"answers.train.jsonl": json.dumps({"id": "q3", "answers": ["x"]}), "qrels.nq.tsv": "q8 0 d1 1"}
    write(tmp_path / name, [lines.get(name, "q4\tanother text")])
    with pytest.raises(ValueError, match=f"{name} was added since"):
        stages.collection(source, files=files)
