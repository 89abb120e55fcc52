"""Whatever is wrong in the files is an error that names file, line and remedy."""

import bz2
import gzip
import json
import lzma
import re
import unicodedata

import pyarrow.parquet as pq
import pytest

from commands.pairs import json_lines
from teleport import dpr, records
from teleport.collection import download
from teleport.collection.forms.downloads import dpr_questions, qa_questions
from teleport.dpr import json_array

FILES = {
    "corpus.tsv": "d1\tCats\tA cat sleeps.\nd2\tDogs\tA dog barks.\n",
    "queries.train.tsv": "q1\twhat sleeps\nq2\twhat barks\n",
    "qrels.train.tsv": "q1 0 d1 1\nq2 0 d2 1\n",
}
BEIR_FILES = {
    "corpus.jsonl": '{"_id": "d1", "title": "Cats", "text": "A cat sleeps."}\n',
    "queries.jsonl": '{"_id": "q1", "text": "what sleeps"}\n',
    "qrels/train.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
}


def write(root, files):
    for name, content in files.items():
        if content is not None:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def message(stages, tmp_path):
    """The error message of a sound collection's files with `changes` ({name: content, or None to remove it})."""

    def build(source, files, changes):
        write(tmp_path / "data", files | changes)
        with pytest.raises(ValueError) as error:
            stages.collection({"source": source, "path": str(tmp_path / "data")})
        return str(error.value).replace(str(tmp_path / "data") + "/", "")

    return build


def test_the_files_without_changes_are_sound(stages, tmp_path):
    for source, files in (("folder", FILES), ("beir", BEIR_FILES)):
        write(tmp_path / source, files)
        job = stages.collection({"source": source, "path": str(tmp_path / source)})
        assert "qrels.train.parquet" in job.files


def test_blank_lines_of_json_lines_are_no_records(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n \n')
    assert list(records.json_objects(tmp_path / "rows.jsonl")) == [(1, {"a": 1}), (3, {"a": 2})]
    assert [record for _, record in json_lines.rows(tmp_path / "rows.jsonl", None)] == [{"a": 1}, {"a": 2}]


def test_the_remedy_for_a_file_of_windows_keeps_its_quotes_and_the_euro(message):
    """By latin1 they would become control characters, without a word."""
    text = "„Größe“ für 5 €"
    said = message("folder", FILES, {"corpus.tsv": f"d1\tCats\t{text}\n".encode("cp1252")})
    assert text.encode("cp1252").decode(re.search("iconv -f (\\S+) -t utf-8", said)[1]) == text


FOLDER_ERRORS = {
    "missing corpus": ({"corpus.tsv": None}, "corpus.tsv: no such file"),
    "a blank first line": (
        {"qrels.train.tsv": "\n" + FILES["qrels.train.tsv"]},
        "qrels.train.tsv, line 1: column count 0, expected 4",
    ),
    "missing judgments": ({"qrels.train.tsv": None}, "qrels.train.tsv: no such file"),
    "missing queries": ({"qrels.test.tsv": "q9 0 d1 1\n"}, "queries.test.tsv: no such file"),
    "corpus of one column": ({"corpus.tsv": "A cat sleeps.\n"}, "corpus.tsv, line 1: column count 1"),
    "column count changes": (
        {"corpus.tsv": FILES["corpus.tsv"] + "d3\tEmus\tAn emu\truns.\n"},
        "corpus.tsv, line 3: column count 4, expected 3",
    ),
    "empty line": (
        {"queries.train.tsv": "q1\twhat sleeps\n\nq2\twhat barks\n"},
        "queries.train.tsv, line 2: column count 1, expected 2 as in line 1 (query id, text). ",
    ),
    "column count of judgments": ({"qrels.train.tsv": "q1 0 d1 1\nq2 d2\n"}, "qrels.train.tsv, line 2: column count 2"),
    "UTF-16": (
        {"corpus.tsv": FILES["corpus.tsv"].encode("utf-16")},
        "corpus.tsv, line 1: byte 0xff at position 0 is not UTF-8. It is UTF-16: convert it with `iconv -f utf-16",
    ),
    "compressed by another name": (
        {"corpus.tsv": gzip.compress(b"d1\tone")},
        "corpus.tsv, line 1: byte 0x8b at position 1 is not UTF-8. It is compressed by gzip",
    ),
    "compressed by bzip2": (
        {"corpus.tsv": bz2.compress(b"d1\tone")},
        "corpus.tsv, line 1: byte 0xa0 at position 25 is not UTF-8. It is compressed by bzip2: decompress it",
    ),
    "compressed by xz": (
        {"corpus.tsv": lzma.compress(b"d1")},
        "corpus.tsv, line 1: byte 0xfd at position 0 is not UTF-8. It is compressed by xz",
    ),
    "not UTF-8": (
        {"corpus.tsv": FILES["corpus.tsv"].encode() + "d3\tCafé\tDrink.\n".encode("latin1")},
        "corpus.tsv, line 3: byte 0xe9",
    ),
    "empty passage": ({"corpus.tsv": "d1\tCats\tA cat sleeps.\nd2\t \t \n"}, "corpus.tsv, line 2: the text of 'd2'"),
    "empty query": ({"queries.train.tsv": "q1\t\nq2\twhat barks\n"}, "queries.train.tsv, line 1: the text of 'q1'"),
    "empty corpus": ({"corpus.tsv": ""}, "corpus.tsv: no passages. "),
    "duplicate passage": (
        {"corpus.tsv": FILES["corpus.tsv"] + "d1\tCats\tAnother text.\n"},
        "corpus.tsv, line 3: duplicate id 'd1', first on line 1. Remove one of them.",
    ),
    "duplicate query": (
        {"queries.train.tsv": "q1\twhat sleeps\nq2\twhat barks\nq2\twhat purrs\n"},
        "queries.train.tsv, line 3: duplicate id 'q2', first on line 2. Remove one of them.",
    ),
    "id of two words": ({"corpus.tsv": "d 1\tCats\tA cat sleeps.\n"}, "corpus.tsv, line 1: the id 'd 1'"),
    "text before the title": (
        {"corpus.tsv": "id\ttext\ttitle\nd1\tA cat sleeps.\tCats\nd2\tA dog barks.\tDogs\n"},
        "corpus.tsv, line 1: the header",
    ),
    "id after white space": (
        {"corpus.tsv": FILES["corpus.tsv"] + " d3\tCows\tA cow grazes.\n"},
        "corpus.tsv, line 3: the id ' d3'",
    ),
    "id before white space": (
        {"queries.train.tsv": "q1\twhat sleeps\nq2\twhat barks\nq3 \twhat grazes\n"},
        "queries.train.tsv, line 3: the id 'q3 '",
    ),
    "judged passage not in the corpus": (
        {"qrels.train.tsv": "q1 0 d1 1\nq2 0 d9 1\n"},
        "qrels.train.tsv, line 2: the judged passage 'd9'",
    ),
    "unknown query": ({"qrels.train.tsv": "q1 0 d1 1\nq2 0 d2 1\nq9 0 d2 1\n"}, "qrels.train.tsv, line 3: query 'q9'"),
    "grade": (
        {"qrels.train.tsv": "q1 0 d1 1.5\nq2 0 d2 1\n"},
        "qrels.train.tsv, line 1: grade '1.5' is not a 32-bit integer. Write a whole number.",
    ),
    "grade that only Python takes for a number": (
        {"qrels.train.tsv": "q1 0 d1 1_0\nq2 0 d2 1\n"},
        "qrels.train.tsv, line 1: grade '1_0' is not a 32-bit integer. Write a whole number.",
    ),
    "grade in other digits": (
        {"qrels.train.tsv": "q1 0 d1 1\nq2 0 d2 １\n"},
        "qrels.train.tsv, line 2: grade '１' is not a 32-bit integer. Write a whole number.",
    ),
    "grade of 5,000 digits": (
        {"qrels.train.tsv": "q1 0 d1 1\nq2 0 d2 " + "1" * 5000 + "\n"},
        "qrels.train.tsv, line 2: grade '111",
    ),
    "grade too large": (
        {"qrels.train.tsv": "q1 0 d1 1\nq2 0 d2 4294967296\n"},
        "qrels.train.tsv, line 2: grade '4294967296' is not a 32-bit integer.",
    ),
    "judged twice": ({"qrels.train.tsv": "q1 0 d1 1\nq2 0 d2 1\nq1 0 d1 0\n"}, "qrels.train.tsv, line 3: query 'q1'"),
    "no positive left": ({"qrels.train.tsv": "q1 0 d1 0\nq2 0 d2 0\n"}, "qrels.train.tsv: no training query"),
    "answers of an unknown query": (
        {"answers.train.jsonl": '{"id": "q9", "answers": ["x"]}\n'},
        "answers.train.jsonl, line 1: query 'q9'",
    ),
    "answers twice": (
        {"answers.train.jsonl": '{"id": "q1", "answers": ["x"]}\n{"id": "q1", "answers": ["y"]}\n'},
        "answers.train.jsonl, line 2: query 'q1'",
    ),
    "no answer": ({"answers.train.jsonl": '{"id": "q1", "answers": []}\n'}, "answers.train.jsonl, line 1: 'answers'"),
    "answer is a number": (
        {"answers.train.jsonl": '{"id": "q1", "answers": [1974]}\n'},
        "answers.train.jsonl, line 1: 'answers'",
    ),
}


@pytest.mark.parametrize("case", FOLDER_ERRORS)
def test_folder(message, case):
    changes, expected = FOLDER_ERRORS[case]
    assert message("folder", FILES, changes).startswith(expected)


def test_folder_without_queries(message):
    none = {"queries.train.tsv": None, "qrels.train.tsv": None}
    said = message("folder", FILES, none)
    assert "no files named like queries.SPLIT.tsv, so there are no queries. Put them there, or correct coll" in said


def test_damaged_gzip(message):
    whole = gzip.compress("".join(f"d{n}\tTitle\tText {n * n}.\n" for n in range(2000)).encode())
    damaged = {"torn": whole[: len(whole) // 2], "plain": FILES["corpus.tsv"], "flipped": whole[:99] + b"\xff" * 9}
    for content in damaged.values():
        found = message("folder", FILES, {"corpus.tsv": None, "corpus.tsv.gz": content})
        assert found.startswith("corpus.tsv.gz: not a gzip file, or a damaged one (")
        assert f"Fetch the file again; if {download.RECORDED} has an entry for it, delete file and entry" in found


BEIR_ERRORS = {
    "another header": ({"qrels/train.tsv": "a\tb\tc\nq1\td1\t1\n"}, "qrels/train.tsv, line 1: query 'a' is not among"),
    "columns in another order": (
        {"qrels/train.tsv": "corpus-id\tquery-id\tscore\nd1\tq1\t1\n"},
        "qrels/train.tsv, line 1: the header has the columns 'corpus-id', 'query-id', 'score'",
    ),
    "the grade before the passage": (
        {"qrels/train.tsv": "query-id\tscore\tcorpus-id\nq1\t1\td1\n"},
        "qrels/train.tsv, line 1: the header has the columns 'query-id', 'score', 'corpus-id'",
    ),
    "no JSON": ({"corpus.jsonl": "d1\tCats\n"}, "corpus.jsonl, line 1: not a JSON object (Expecting value"),
    "no object": ({"corpus.jsonl": BEIR_FILES["corpus.jsonl"] + "[1]\n"}, "corpus.jsonl, line 2: not a JSON object ("),
    "id is a truth value": (
        {"corpus.jsonl": '{"_id": true, "text": "A cat sleeps."}\n'},
        "corpus.jsonl, line 1: '_id' is true and must be a text or a whole number.",
    ),
    "no id": ({"corpus.jsonl": '{"_id": null, "text": "A cat."}\n'}, "corpus.jsonl, line 1: '_id' is missing and must"),
    "title is a long list": (
        {"corpus.jsonl": json.dumps({"_id": "d1", "title": ["Cats"] * 99, "text": "A cat."}) + "\n"},
        'corpus.jsonl, line 1: \'title\' is ["Cats", "Cats", "Cats", "Cats", "Cats",… and must be a text.',
    ),
    "brackets without end": (
        {"corpus.jsonl": BEIR_FILES["corpus.jsonl"] + "[" * 99_999 + "\n"},
        "corpus.jsonl, line 2: not a JSON object (",
    ),
    "number of 5,000 digits": (
        {"corpus.jsonl": '{"_id": ' + "1" * 5000 + "}\n"},
        "corpus.jsonl, line 1: not a JSON object (Exceeds the limit",
    ),
    "no text": ({"queries.jsonl": '{"_id": "q1"}\n'}, "queries.jsonl, line 1: 'text' is missing and must be a text."),
    "half of a surrogate pair": (
        {"corpus.jsonl": '{"_id": "d1", "text": "A cat \\ud83d sleeps."}\n'},
        "corpus.jsonl, line 1: not a JSON object ('utf-8' codec can't encode character",
    ),
    "duplicate passage": (
        {"corpus.jsonl": BEIR_FILES["corpus.jsonl"] * 2},
        "corpus.jsonl, line 2: duplicate id 'd1', first on line 1.",
    ),
    "unknown query": (
        {"qrels/train.tsv": BEIR_FILES["qrels/train.tsv"] + "q2\td1\t1\n"},
        "qrels/train.tsv, line 3: query 'q2'",
    ),
    "missing queries": ({"queries.jsonl": None}, "queries.jsonl: no such file"),
}


@pytest.mark.parametrize("columns", ["{} {} 1", "{} 0 {} 1"])
@pytest.mark.parametrize(
    "header", ["", "query_id iter docid relevance\n", "qid Q0 docno rel\n", "topic iter docno rel\n"]
)
@pytest.mark.parametrize("form", ["folder", "beir"])
def test_judgments_may_have_trecs_columns_and_a_header_in_every_form(stages, tmp_path, caplog, form, columns, header):
    files, qrels = (FILES, "qrels.train.tsv") if form == "folder" else (BEIR_FILES, "qrels/train.tsv")
    write(tmp_path, files | {qrels: f"{header}{columns.format('q1', 'd1')}\n"})
    job = stages.collection({"source": form, "path": str(tmp_path)})
    facts = job.facts["splits"]["train"]
    assert (facts["judgments"], facts["positives"]) == (1, 1)
    assert caplog.text.count("are column names, so the line is left out") == bool(header)


@pytest.mark.parametrize("case", BEIR_ERRORS)
def test_beir(message, case):
    changes, expected = BEIR_ERRORS[case]
    assert message("beir", BEIR_FILES, changes).startswith(expected)


def test_ids_that_are_numbers_null_titles_and_grades_of_floats_are_read(stages, tmp_path):
    """As json.dump of a table's rows and pandas write them."""
    files = {"corpus.jsonl": '{"_id": 0, "title": null, "text": "A cat sleeps."}\n'}
    files |= {"queries.jsonl": '{"_id": 7, "text": "what sleeps"}\n'}
    files |= {"qrels/train.tsv": "query-id\tcorpus-id\tscore\n7\t0\t2.0\n"}
    write(tmp_path, files)
    job = stages.collection({"source": "beir", "path": str(tmp_path)})
    (passage,) = pq.read_table(job.files["corpus.parquet"]).to_pylist()
    (judgment,) = pq.read_table(job.files["qrels.train.parquet"]).to_pylist()
    assert (passage["doc_id"], passage["title"]) == ("0", "")
    assert (judgment["query_id"], judgment["doc_id"], judgment["grade"]) == ("7", "0", 2)


@pytest.mark.parametrize(("of_corpus", "judged"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_an_id_in_another_unicode_form_is_said_to_be_one(message, of_corpus, judged):
    name = unicodedata.normalize(of_corpus, "é120")
    corpus = FILES["corpus.tsv"] + f"{name}\tCats\tA cat sleeps again.\n"
    qrels = f"q1 0 {unicodedata.normalize(judged, name)} 1\nq2 0 d2 1\n"
    said = message("folder", FILES, {"corpus.tsv": corpus, "qrels.train.tsv": qrels})
    assert said.startswith("qrels.train.tsv, line 1: ") and "not in the corpus, which has it in another Unicode" in said


def test_tsv_names_the_setting_of_a_missing_file(stages, tmp_path):
    write(tmp_path, FILES)
    split = {"queries": str(tmp_path / "queries.train.tsv"), "qrels": str(tmp_path / "nowhere.tsv")}
    source = {"source": "tsv", "corpus": str(tmp_path / "corpus.tsv"), "splits": {"train": split}}
    with pytest.raises(ValueError, match=r"nowhere.tsv: .*collection.splits.train.qrels\.$"):
        stages.collection(source)


def test_nothing_is_published_after_an_error(stages, tmp_path, message):
    message("folder", FILES, {"qrels.train.tsv": "q1 0 d9 1\n"})
    left = {path for path in (tmp_path / "results").rglob("*") if path.suffix in (".parquet", ".json")}
    left = {path.name for path in left if "split" in path.parts}  # the corpus is sound
    assert left <= {"stamp.json", "progress.json"}


@pytest.mark.parametrize("split", ["a" * 101, "a b", "ü", "..", "a:b"])
def test_a_split_whose_name_cannot_be_part_of_a_file_s_is_refused(message, split):
    text = message("folder", FILES, {f"queries.{split}.tsv": "q1\tx\n"})
    assert (
        f"has a file of the split {split!r}, and the name of a split must match" in text and "Rename the file" in text
    )


@pytest.mark.parametrize("name", ["corpus.tsv", "corpus.tsv.gz"])
def test_a_file_without_line_ends_does_not_fill_the_memory(stages, tmp_path, monkeypatch, name):
    monkeypatch.setattr(records, "MOST_LINE_BYTES", 2**16)
    write(tmp_path / "data", FILES)
    (tmp_path / "data/corpus.tsv").unlink()
    with (gzip.open if name.endswith("gz") else open)(tmp_path / "data" / name, "wb") as file:
        for _ in range(100):
            file.write(bytes(2**20))
    with pytest.raises(ValueError, match="line 1: 65,536 bytes without a line end"):
        stages.collection({"source": "folder", "path": str(tmp_path / "data")})


def test_a_split_without_judgments_is_empty(stages, tmp_path):
    write(tmp_path / "data", FILES | {"queries.test.tsv": "q3\twhat purrs\n", "qrels.test.tsv": ""})
    job = stages.collection({"source": "folder", "path": str(tmp_path / "data")})
    assert job.facts["splits"]["test"] == {"queries": 0, "judgments": 0, "positives": 0, "dropped": 1}


QUIRKS = {
    "header": (
        {"corpus.tsv": "id\ttitle\ttext\n" + FILES["corpus.tsv"]},
        "corpus.tsv, line 1: ['id', 'title', 'text'] are column names",
    ),
    "CSV's quotes": (
        {"corpus.tsv": FILES["corpus.tsv"] + 'd3\tA\t"Two"\nd4\tA\t"Say ""a"", twice"\nd5\tA\t"Or ""b"""\n'},
        "corpus.tsv, line 4: a field in CSV's quotes",
    ),
    "CSV's quotes at the beginning": (
        {"queries.train.tsv": FILES["queries.train.tsv"].replace("\t", '\t"').replace("\n", '"\n')},
        "queries.train.tsv, line 1: a field in CSV's quotes",
    ),
    "NUL bytes": (
        {"corpus.tsv": FILES["corpus.tsv"] + "d3\tNul\ta\0b\nd4\tNul\ta\0c\n"},
        "corpus.tsv, line 3: this and maybe later lines have NUL bytes, which are read as they are",
    ),
    "texts as titles": ({"corpus.tsv": "d1\tone\t\nd2\ttwo\t\n"}, "corpus.tsv: every passage has a title and no text"),
    "cut": ({"qrels.train.tsv": FILES["qrels.train.tsv"][:-1]}, "qrels.train.tsv, line 2: the last line"),
}


@pytest.mark.parametrize("case", QUIRKS)
def test_what_is_read_but_hardly_meant_is_a_warning_with_its_line(stages, tmp_path, caplog, case):
    changes, expected = QUIRKS[case]
    write(tmp_path, FILES | changes)
    stages.collection({"source": "folder", "path": str(tmp_path)})
    assert caplog.text.replace(f"{tmp_path}/", "").count(expected) == 1
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


def test_sound_files_are_no_warning(stages, tmp_path, caplog):
    """Quotes within a text, or around all of some later one, are usual."""
    write(tmp_path, FILES | {"corpus.tsv": FILES["corpus.tsv"] + 'd3\t"A" and "B"\t"one", "two"\nd4\t\t"said"\n'})
    stages.collection({"source": "folder", "path": str(tmp_path)})
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


DPR = [{"question": "q", "answers": ["a"], "positive_ctxs": [{"passage_id": "1"}]}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps(DPR + [DPR[0] | {"question": 5}]), "record 2: DPR's records have question (text), answers (a list"),
        (json.dumps([DPR[0] | {"answers": "yes"}]), "record 1: DPR's records have question (text), answers (a list"),
        (json.dumps(DPR + [5]), "record 2: DPR's records have"),
        ('[{"question": "\\ud83d"}]', "train.json: torn or wrong JSON (an escape"),
        ('["\\ude00"]', "train.json: torn or wrong JSON ('utf-8' codec can't decode byte 0xed"),
        ("[" * 99_999, "train.json: torn or wrong JSON (more than 1000"),
        ('[{"a":' * 99_999, "train.json: torn or wrong JSON (more than 1000"),
        ("[" + "9" * 5000 + "]", "train.json: torn or wrong JSON (parse error: integer"),
        (json.dumps(DPR) + "[]", "train.json: torn or wrong JSON (parse error: trailing"),
    ],
)
def test_a_wrong_record_of_dpr_is_named(tmp_path, content, message):
    (tmp_path / "train.json").write_text(content)
    with pytest.raises(ValueError) as error:
        list(dpr_questions(tmp_path / "train.json"))
    assert message in str(error.value)


@pytest.mark.parametrize("piece", [11, 12, 13, 2**16])
def test_escapes_are_looked_through_across_pieces(tmp_path, monkeypatch, piece):
    """Pairs are one character, a backslash before ud83d is text, and half a pair is refused wherever it is cut."""
    monkeypatch.setattr(dpr, "PIECE_BYTES", piece)
    path = tmp_path / "train.json"
    for shift in range(14):
        sound = ["x" * shift, "\U0001f600" * 3, "\\ud83d", "é"]
        path.write_text(json.dumps(sound))
        assert list(json_array(path)) == sound
        for half in ("\\ud83d", "\\\\\\ud83d!", "\\uD83D\\\\udc00", "\\ud83d\\u0041"):
            path.write_text(f'["{"x" * shift}{half}"]')
            with pytest.raises(ValueError, match="half of a surrogate pair"):
                list(json_array(path))


@pytest.mark.parametrize("answers", ["[" * 9999, "{[]: 1}", "-" * 99_999 + "1", "open('/')", "['a']*9", "a"])
def test_answers_that_are_no_list_are_named_and_not_run(tmp_path, answers):
    (tmp_path / "a.qa.csv").write_text(f"who\t{answers}\n")
    with pytest.raises(ValueError, match="a.qa.csv, line 1: not a question"):
        list(qa_questions(tmp_path / "a.qa.csv"))


def test_all_faults_of_a_file_are_one_message(message):
    """Counts of every kind, and the first five with their lines; a reader goes on after a wrong row."""
    corpus = FILES["corpus.tsv"] + "".join(f"e{n}\t\t \n" for n in range(8)) + "d1\tCats\tAgain.\nd3\n"
    text = message("folder", FILES, {"corpus.tsv": corpus})
    assert text.startswith("corpus.tsv: 10 lines are wrong (8 without text, 1 repeated, 1 not of this form).")
    assert "collection.drop: [empty, repeated]" in text and "The first 5:" in text
    assert [line.split(":")[0] for line in text.split("\n")[1:]] == [f"  line {n}" for n in range(3, 8)]
    qrels = FILES["qrels.train.tsv"] + "q9 0 d1 1\nq1 0 d9 1\nq1 0 d2 x\n"
    text = message("folder", FILES, {"qrels.train.tsv": qrels})
    assert "3 lines are wrong (2 of a query or passage that is not there, 1 not of this form)" in text
    assert "line 3: query 'q9'" in text and "line 4: the judged passage 'd9'" in text and "line 5: grade 'x'" in text


def test_wrong_questions_of_a_file_are_one_message(tmp_path):
    (tmp_path / "a.qa.csv").write_text("who\t['x']\nwhat\n\nwhen\t5\n")
    faults = records.Faults("a.qa.csv")
    assert [q.text for q in qa_questions(tmp_path / "a.qa.csv", wrong=faults.wrong)] == ["who"]
    with pytest.raises(ValueError, match=r"a.qa.csv: 3 lines are wrong .*\n  line 2: .*\n  line 3: .*\n  line 4: "):
        faults.refuse()


DIRTY = {
    "corpus.tsv": FILES["corpus.tsv"] + "d3\t\t \n" + "d1\tCats\tAnother cat.\n",
    "queries.train.tsv": FILES["queries.train.tsv"] + "q3\t \nq1\tagain\n",
    "qrels.train.tsv": FILES["qrels.train.tsv"] + "q1 0 d1 1\nq1 0 d1 0\nq2 0 d3 1\nq2 0 d8 2\nq9 0 d1 1\nq1 0 d7 0\n",
    "answers.train.jsonl": '{"id": "q1", "answers": ["x"]}\n{"id": "q8", "answers": ["y"]}\n',
}


def test_what_is_dropped_is_counted_and_the_rest_is_as_it_would_be_without(stages, tmp_path, caplog):
    write(tmp_path / "dirty", DIRTY)
    write(tmp_path / "clean", FILES | {"answers.train.jsonl": '{"id": "q1", "answers": ["x"]}\n'})
    source = {"source": "folder", "path": str(tmp_path / "dirty"), "drop": ["empty", "repeated", "dangling"]}
    job = stages.collection(source)
    clean = stages.collection({"source": "folder", "path": str(tmp_path / "clean")})
    tables = [name for name in clean.files if name.endswith(".parquet")]
    assert len(tables) == 5
    for name in tables:
        assert pq.read_table(clean.files[name]).equals(pq.read_table(job.files[name])), name
    assert job.facts["left_out"] == {"empty": 1, "repeated": 1}
    assert job.split("train").facts["left_out"] == {"empty": 1, "repeated": 3, "dangling": 5}
    missing = pq.read_table(job.files["missing.train.parquet"]).to_pylist()
    assert missing == [
        {"query": 1, "doc_id": "d3", "grade": 1},
        {"query": 1, "doc_id": "d8", "grade": 2},
        {"query": 0, "doc_id": "d7", "grade": 0},
    ]
    assert "corpus.tsv: 1 lines are left out: without text" in caplog.text


@pytest.mark.parametrize("kind", ["empty", "repeated", "dangling"])
def test_only_what_is_named_is_dropped(stages, tmp_path, kind):
    write(tmp_path, DIRTY)
    others = [name for name in records.LEFT_OUT if name != kind]
    source = {"source": "folder", "path": str(tmp_path), "drop": others}
    with pytest.raises(ValueError, match=rf"collection\.drop: \[[a-z, ]*{kind}[a-z, ]*\]"):
        stages.collection(source)


def test_brackets_in_texts_are_no_nesting(tmp_path):
    """A text may have any number of them, whatever it is cut into; 1,001 that are open are too many."""
    record = DPR[0] | {"question": "[" * 1500 + '\\" {' + "\\" * 3}
    (tmp_path / "train.json").write_text(json.dumps([record] * 100))
    assert [q.text for q in dpr_questions(tmp_path / "train.json")] == [record["question"]] * 100
    (tmp_path / "train.json").write_text('["]]]]", ' + "[" * 1001)
    with pytest.raises(ValueError, match="more than 1000 brackets are open"):
        list(json_array(tmp_path / "train.json"))
