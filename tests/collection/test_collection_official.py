"""Official files in their published forms: literal miniatures, and what is said when a file is not in its form."""

import csv
import gzip
import io
import json
import tarfile
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from teleport import dpr as dpr_json
from teleport.collection import corpus as corpus_stage
from teleport.collection.forms import downloads as official
from teleport.collection.forms.downloads import OfficialSplit
from teleport.locate import located
from teleport.refusal import Refusal
from teleport.running.artefact import file_entry


def put(folder, name, text):
    path = folder / name
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") and not name.endswith(".tar.gz") else data)
    return path


def tar_bytes(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def build(stages, folder, corpus, splits, **settings):
    """Run the stages of a collection over the files in `folder`; returns ({name: rows of each Parquet file}, facts).

    Without `splits` there is one without queries.
    """
    if not splits:
        splits = {"test": {"queries": put(folder, "no-queries", "").name, "qrels": put(folder, "no-qrels", "").name}}
    files = {p.name: {"path": str(p)} | file_entry(p) for p in folder.iterdir()}
    fetched = stages.finish(stages.make("download"), {"files": files})
    source = {"source": "downloads", "files": dict.fromkeys(files, {}), "corpus": corpus, "splits": splits}
    source |= settings
    made = stages.collection(source, {"download": fetched})
    tables = {name.removesuffix(".parquet"): path for name, path in made.files.items() if path.suffix == ".parquet"}
    return {name: pq.read_table(path).to_pylist() for name, path in tables.items()}, made.facts


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "official"
    folder.mkdir()
    return folder


def test_ms_marco_with_titles_and_trec_dl(stages, files):
    members = {
        "collection.tsv": '0\tThe "Manhattan" Project.\n1\tIt was cold.\n2\tNo title here.\n',
        "queries.dev.small.tsv": "2\t Androgen receptor define\n",
        "qrels.dev.small.tsv": "2\t0\t1\t1\n",
    }
    put(files, "collectionandqueries.tar.gz", tar_bytes(members))
    put(files, "marco.tar.gz", tar_bytes({"marco/para.txt": "0\tx\n", "marco/para.title.txt": "1\tCold\n0\tA, B\n"}))
    put(files, "queries.train.tsv", "10\twhat was it\n11\tnever judged\n")
    put(files, "qrels.train.tsv", "10\t0\t0\t1\n10\t0\t2\t1\n10\t0\t0\t1\n")
    put(files, "msmarco-test2019-queries.tsv.gz", "156493\tdo goldfish grow\n1110199\twhat is wifi vs bluetooth\n")
    put(files, "2019qrels-pass.txt", "156493 Q0 2 0\n156493 Q0 0 3\n")
    tables, facts = build(
        stages,
        files,
        {"file": "collectionandqueries.tar.gz!collection.tsv", "titles": "marco.tar.gz!marco/para.title.txt"},
        {
            "train": {"form": "tsv", "queries": "queries.train.tsv", "qrels": "qrels.train.tsv"},
            "dev": {
                "form": "tsv",
                "queries": "collectionandqueries.tar.gz!queries.dev.small.tsv",
                "qrels": "collectionandqueries.tar.gz!qrels.dev.small.tsv",
            },
            "dl19": {"form": "tsv", "queries": "msmarco-test2019-queries.tsv.gz", "qrels": "2019qrels-pass.txt"},
        },
    )
    assert tables["corpus"] == [
        {"doc_id": "0", "title": "A, B", "text": 'The "Manhattan" Project.'},
        {"doc_id": "1", "title": "Cold", "text": "It was cold."},
        {"doc_id": "2", "title": "", "text": "No title here."},
    ]
    assert tables["queries.dev"] == [{"query_id": "2", "text": " Androgen receptor define"}]
    assert [(row["doc_id"], row["grade"]) for row in tables["qrels.train"]] == [("0", 1), ("2", 1)]
    assert [(row["doc_id"], row["grade"]) for row in tables["qrels.dl19"]] == [("2", 0), ("0", 3)]
    counts = {name: (split["queries"], split["dropped"]) for name, split in facts["splits"].items()}
    assert counts == {"train": (1, 1), "dev": (1, 0), "dl19": (1, 1)}


def test_titles_in_the_order_of_the_passages_are_read_as_these_are(monkeypatch):
    read = []
    titles = ((row, read.append(row) or f"{row}\tTitle {row}") for row in range(4))
    monkeypatch.setattr(official, "lines", lambda path: titles)
    rows = official.with_titles([(row + 1, str(row), "", "text") for row in range(3)], "titles")
    assert [(next(rows)[2], list(read)) for _ in range(2)] == [("Title 0", [0]), ("Title 1", [0, 1])]
    assert [row[2] for row in rows] == ["Title 2"] and read == [0, 1, 2, 3]


def test_judgments_alone_may_be_fetched(stages, files):
    """One split's file is fetched, the other's is a path of one's own."""
    official_file, own = put(files, "qrels.txt", "1 0 a 1\n1 0 b 0\n"), put(files, "own.txt", "2 0 b 1\n")
    fetched = {"qrels.txt": {"path": str(official_file)} | file_entry(official_file)}
    download = stages.finish(stages.make("download"), {"files": fetched})
    splits = {"dl19": {"qrels": "qrels.txt"}, "own": {"qrels": str(own)}}
    source = {"source": "judgments", "files": {"qrels.txt": {}}, "splits": splits}
    job = stages.collection(source, {"download": download})
    corpus = pq.read_table(job.files["corpus.parquet"])["doc_id"].to_pylist()
    qrels = pq.read_table(job.files["qrels.dl19.parquet"]).to_pylist()
    assert corpus == ["a", "b"] and [(row["doc_id"], row["grade"]) for row in qrels] == [("a", 1), ("b", 0)]


def test_ms_marco_documents(stages, files):
    put(files, "msmarco-docs.tsv.gz", 'D2\thttps://a.b/c\tOf C\tIt is "c".\nD10\thttp://d\t\tNo title.\n')
    put(files, "docdev-qrels.tsv.gz", "7 0 D10 1\n")
    put(files, "docdev-queries.tsv.gz", "7\twhich\n")
    corpus = {"file": "msmarco-docs.tsv.gz", "form": "msmarco-docs"}
    splits = {"dev": {"queries": "docdev-queries.tsv.gz", "qrels": "docdev-qrels.tsv.gz"}}
    tables, _ = build(stages, files, corpus, splits)
    assert tables["corpus"] == [
        {"doc_id": "D2", "title": "https://a.b/c\tOf C", "text": 'It is "c".'},
        {"doc_id": "D10", "title": "http://d\t", "text": "No title."},
    ]
    assert [(row["doc_id"], row["passage"]) for row in tables["qrels.dev"]] == [("D10", 1)]
    put(files, "msmarco-docs.tsv.gz", "D2\thttps://a.b/c\tIt is c.\n")
    with pytest.raises(ValueError, match="line 1: column count 3, expected 4"):
        build(stages, files, corpus, splits)


def test_long_texts_are_written_in_smaller_groups(stages, files, monkeypatch):
    """What is held in memory is bounded by characters too; the content is the same."""
    monkeypatch.setattr(corpus_stage, "ROW_GROUP_CHARACTERS", 25)
    monkeypatch.setattr(corpus_stage, "ROW_GROUP", 3)
    texts = ["x" * size for size in (5, 19, 2, 40, 1, 1, 1, 1)]
    put(files, "corpus.tsv", "".join(f"d{i}\t{text}\n" for i, text in enumerate(texts)))
    tables, _ = build(stages, files, {"file": "corpus.tsv"}, {})
    assert [row["text"] for row in tables["corpus"]] == texts
    rows = [(i, f"d{i}", "", text) for i, text in enumerate(texts)]
    assert [len(block) for block in corpus_stage.blocks(rows)] == [3, 1, 3, 1]
    assert list(corpus_stage.blocks([])) == []


PSGS = 'id\ttext\ttitle\n1\t"Aaron is a ""prophet"", they say"\tAaron\n2\tno quotes\t"The ""End"""\n3\tthird\tT\n'
NQ = [
    {
        "dataset": "nq_train_psgs_w100",
        "question": "who is aaron",
        "answers": ["a prophet", "Prophet"],
        "positive_ctxs": [
            {"title": "Aaron", "text": "…", "score": 1000, "title_score": 1, "passage_id": "1"},
            {"title": "T", "text": "…", "score": 9.1, "title_score": 0, "passage_id": "3"},
            {"title": "Aaron", "text": "…", "score": 8.0, "title_score": 1, "passage_id": "1"},
        ],
        "negative_ctxs": [{"title": "T", "text": "…", "score": 0, "title_score": 0, "passage_id": "2"}],
        "hard_negative_ctxs": [{"title": "T", "text": "…", "score": 7, "title_score": 0, "passage_id": "2"}],
    },
    {"question": "no context", "answers": ["x"], "positive_ctxs": [], "negative_ctxs": [], "hard_negative_ctxs": []},
]
QA = (
    'who sings the theme song for the proud family\t"[\'Solange Knowles\', ""Destiny \'s Child""]"\n'
    "who got the first nobel prize in physics\t['Wilhelm Conrad Röntgen']\n"
)


def dpr(files, train=None):
    put(files, "psgs_w100.tsv.gz", PSGS)
    put(files, "biencoder-nq-train.json.gz", json.dumps(train or NQ, indent=4, ensure_ascii=False))
    put(files, "nq-test.qa.csv", QA)
    return {"form": "dpr", "file": "psgs_w100.tsv.gz"}, {
        "train": {"form": "dpr", "queries": "biencoder-nq-train.json.gz"},
        "test": {"form": "qa", "queries": "nq-test.qa.csv"},
    }


@pytest.mark.parametrize("piece", [1, 7, 2**16])
def test_dpr_passages_training_file_and_questions(stages, files, monkeypatch, piece):
    monkeypatch.setattr(dpr_json, "PIECE_BYTES", piece)
    tables, facts = build(stages, files, *dpr(files), drop=["empty"])
    assert tables["corpus"] == [
        {"doc_id": "1", "title": "Aaron", "text": 'Aaron is a "prophet", they say'},
        {"doc_id": "2", "title": 'The "End"', "text": "no quotes"},
        {"doc_id": "3", "title": "T", "text": "third"},
    ]
    assert tables["queries.train"] == [{"query_id": "0", "text": "who is aaron"}]
    assert [row["doc_id"] for row in tables["qrels.train"]] == ["1", "3"], "the gold one first, negatives left out"
    assert tables["answers.train"] == [{"query_id": "0", "answers": ["a prophet", "Prophet"]}]
    assert tables["answers.test"] == [
        {"query_id": "0", "answers": ["Solange Knowles", "Destiny 's Child"]},
        {"query_id": "1", "answers": ["Wilhelm Conrad Röntgen"]},
    ]
    assert tables["qrels.test"] == []
    assert facts["splits"]["train"]["dropped"] == 0 and facts["splits"]["test"]["queries"] == 2


def test_a_passage_may_be_longer_than_csv_reads_by_default(stages, files):
    csv.field_size_limit(131_072)  # another test may have raised it
    corpus, splits = dpr(files)
    put(files, "psgs_w100.tsv.gz", PSGS + f"4\t{'long ' * 30_000}end\tLong\n")
    tables, _ = build(stages, files, corpus, splits, drop=["empty"])
    assert tables["corpus"][3]["text"].endswith("long end")


def test_questions_of_dpr_without_a_positive_are_counted_and_the_first_are_named(stages, files):
    """Lists of negatives may be empty, as they are in released files."""
    sound = NQ[0] | {"negative_ctxs": [], "hard_negative_ctxs": []}
    records = [sound | {"question": f"which {number}"} for number in range(9)]
    for number in (1, 3, 4, 5, 6, 7):
        records[number]["positive_ctxs"] = []
    records[8] = {"question": "no keys"}
    with pytest.raises(ValueError) as error:
        build(stages, files, *dpr(files, records))
    assert "train.json.gz: 7 records are wrong (6 without a positive, 1 not of this form)" in str(error.value)
    assert "collection.drop: [empty]" in str(error.value) and "record 2: positive_ctxs is empty" in str(error.value)
    assert str(error.value).count("\n  record ") == 5 and "record 8" not in str(error.value)
    tables, _ = build(stages, files, *dpr(files, records[:8]), drop=["empty"])
    assert [row["query_id"] for row in tables["queries.train"]] == ["0", "2"]
    assert [row["query_id"] for row in tables["answers.train"]] == ["0", "2"]


def test_answers_stand_for_positives_where_they_decide(stages, files):
    corpus, splits = dpr(files)
    tables, _ = build(stages, files, corpus, splits, positives="answers")
    assert [row["text"] for row in tables["queries.train"]] == ["who is aaron", "no context"]
    tables, _ = build(stages, files, corpus, {"dev": splits["train"], "test": splits["test"]})
    assert [row["text"] for row in tables["queries.dev"]] == ["who is aaron", "no context"]


def test_triviaqa_names_its_passages_otherwise(stages, files):
    train = json.loads(json.dumps(NQ).replace('"passage_id"', '"psg_id"'))
    tables, _ = build(stages, files, *dpr(files, train[:1]))
    assert [row["doc_id"] for row in tables["qrels.train"]] == ["1", "3"]


def with_all_questions(files, questions):
    """The split `train` of DPR's records, with a file of all `questions` (text)."""
    dpr(files)
    put(files, "nq-train.qa.csv", questions)
    facts = {p.name: {"path": str(p), "bytes": p.stat().st_size} for p in files.iterdir()}
    form = OfficialSplit(form="dpr", queries="biencoder-nq-train.json.gz", all_questions="nq-train.qa.csv")
    job = SimpleNamespace(inputs={"download": None}, facts=lambda role: {"files": facts})
    return official.split(SimpleNamespace(splits={"train": form}, drop=None, positives="given"), "train", job)


def test_questions_that_the_training_file_lacks_come_without_contexts(files):
    found = with_all_questions(files, "who is aaron\t['a prophet']\nwho else\t['nobody']\n")
    ids = [(query_id, text) for _, query_id, text in found.queries]
    assert ids == [("0", "who is aaron"), ("1", "no context"), ("2", "who else")]
    assert {query_id for _, query_id, _, _ in found.qrels} == {"0"}
    assert [(query_id, answers) for _, query_id, answers in found.answers][-1] == ("2", ["nobody"])


def test_an_empty_question_is_refused_with_the_line_of_its_own_file(files):
    with pytest.raises(Refusal, match=r"nq-train\.qa\.csv, line 2.*empty"):
        with_all_questions(files, "who is aaron\t['a prophet']\n \t['nobody']\n")


def test_wrong_lines_of_all_questions_are_counted_and_named_in_one_message(files):
    faults = r"nq-train\.qa\.csv: 2 lines are wrong .*\n  line 1: the question is empty.*\n  line 3: not a question"
    with pytest.raises(Refusal, match=faults):
        with_all_questions(files, " \t['nobody']\nwho is aaron\t['a prophet']\nwho else\t5\n")


def test_tevatron_json_lines(stages, files):
    put(files, "corpus.tsv", "d1\tT\tfirst\nd2\tT\tsecond\n")
    passage = {"docid": "d2", "title": "T", "text": "second"}
    records = [
        {"query_id": "q1", "query": "which", "positive_passages": [passage], "negative_passages": []},
        {"query_id": "q2", "query": "none", "positive_passages": [], "negative_passages": [passage]},
    ]
    put(files, "train.jsonl.gz", "".join(json.dumps(record) + "\n" for record in records))
    splits = {"train": {"form": "tevatron", "queries": "train.jsonl.gz"}}
    tables, facts = build(stages, files, {"file": "corpus.tsv"}, splits)
    assert tables["queries.train"] == [{"query_id": "q1", "text": "which"}]
    assert [(row["query_id"], row["doc_id"], row["grade"]) for row in tables["qrels.train"]] == [("q1", "d2", 1)]
    assert "answers.train" not in tables


def change(name, text):
    return lambda folder: put(folder, name, text)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (change("psgs_w100.tsv.gz", "1\tx\ty\n"), "line 1: .* header"),
        (change("psgs_w100.tsv.gz", "id\ttext\ttitle\n1\tx\n"), "line 2: 2 columns"),
        (change("psgs_w100.tsv.gz", 'id\ttext\ttitle\n1\t"x"y\tz\n'), "line 2: wrong quoting"),
        (change("nq-test.qa.csv", "who ['x']\n"), "line 1: not a question, a tab and a list"),
        (change("nq-test.qa.csv", "who\t['\\ud83d']\n"), "line 1: not a question, a tab and a list"),
        (change("biencoder-nq-train.json.gz", json.dumps(NQ)[:-3]), "torn or wrong JSON"),
        (change("biencoder-nq-train.json.gz", json.dumps(NQ[0])), "not a JSON array"),
        (
            change("biencoder-nq-train.json.gz", '[{"question": "é"}]'.encode("latin1")),
            r"train.json.gz: .*\(.* byte 0xe9 in .*\)\. .*data/down",
        ),
    ],
)
def test_a_file_that_is_not_in_its_form_is_refused(stages, files, spoil, message):
    corpus, splits = dpr(files, NQ[:1])
    spoil(files)
    with pytest.raises(ValueError, match=message):
        build(stages, files, corpus, splits)


def test_a_title_file_of_other_passages_and_a_missing_member_are_refused(stages, files):
    put(files, "c.tar.gz", tar_bytes({"collection.tsv": "0\ttext\n"}))
    put(files, "titles.txt", "7\tTitle\n")
    corpus = {"file": "c.tar.gz!collection.tsv", "titles": "titles.txt"}
    with pytest.raises(ValueError, match="titles.txt: .*title"):
        build(stages, files, corpus, {})
    with pytest.raises(ValueError, match="c.tar.gz .*'corpus.tsv'"):
        build(stages, files, {"file": "c.tar.gz!corpus.tsv"}, {})


def test_a_torn_training_file_is_refused(stages, files):
    corpus, splits = dpr(files, train=NQ * 2000)
    whole = (files / "biencoder-nq-train.json.gz").read_bytes()
    (files / "biencoder-nq-train.json.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"train.json.gz: .*gzip.*\(Compressed file ended"):
        build(stages, files, corpus, splits)


def test_an_archive_that_is_none_or_is_torn_is_refused(stages, files):
    """The member that is asked for stands first, or behind one that is torn."""
    noise = "".join(map(str, range(30_000)))
    whole = tar_bytes({"first.tsv": f"0\t{noise}\n", "second.tsv": "0\ttext\n"})
    page = b"<p>This bucket has moved.</p>"
    for content, member in ((whole[:20_000], "first.tsv"), (whole[:20_000], "second.tsv"), (page, "first.tsv")):
        (files / "c.tar.gz").write_bytes(content)
        with pytest.raises(ValueError, match=r"c.tar.gz: .*tar archive.* data/downloads/dig"):
            build(stages, files, {"file": f"c.tar.gz!{member}"}, {})


def test_folders_and_members_may_have_an_exclamation_mark(stages, tmp_path):
    folder = tmp_path / "wow! data"
    folder.mkdir()
    put(folder, "c.tar.gz", tar_bytes({"wow!.tsv": "0\tin an archive\n"}))
    put(folder, "c.tsv", "0\tplain\n")
    for name, text in (("c.tar.gz!wow!.tsv", "in an archive"), ("c.tsv", "plain")):
        assert build(stages, folder, {"file": name}, {})[0]["corpus"] == [{"doc_id": "0", "title": "", "text": text}]


def test_a_file_that_changed_since_it_was_verified_is_refused(files):
    path = put(files, "c.tsv", "0\ttext\n")
    with pytest.raises(ValueError, match="c.tsv .* 99 bytes"):
        located("c.tsv", {"c.tsv": {"path": str(path), "bytes": 99}})


def test_the_official_test_questions_of_nq(shared):
    found = list(official.qa_questions(shared / "judgments/openqa/topics.dpr.nq.test.txt"))
    assert len(found) == 3610
    assert found[36].answers == ["Solange Knowles", "Destiny 's Child"]
    assert found[0] == (1, "0", "who got the first nobel prize in physics", [], ["Wilhelm Conrad Röntgen"])
    assert all(isinstance(answer, str) for question in found for answer in question.answers)
