"""Sets of ir_datasets: its own parsers over miniature official files, and made-up sets with its record types."""

import gzip
import json
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from test_collection_official import NQ, PSGS, tar_bytes

from teleport.collection.forms import ir_datasets as ir

MARCO = {
    "collectionandqueries.tar.gz": tar_bytes(
        {
            "collection.tsv": "0\tFirst passage.\n1\tCaf\u00c3\u00a9 latte.\n2\tThird.\n",
            "queries.dev.small.tsv": "2\t Androgen receptor define\n",
            "qrels.dev.small.tsv": "2\t0\t1\t1\n",
        }
    ),
    "queries.tar.gz": tar_bytes({"queries.train.tsv": "10\twhat was it\n11\tnever judged\n"}),
    "train/qrels": b"10\t0\t0\t1\n",
    "trec-dl-2020/queries.tsv.gz": gzip.compress(b"30\twho is aziz hashim\n31\tnever judged\n"),
    "trec-dl-2020/qrels": b"30 0 2 3\n30 0 0 0\n",
}
DPR = {"docs.tsv.gz": gzip.compress(PSGS.encode()), "nq-train.json.gz": gzip.compress(json.dumps(NQ).encode())}


SCRIPT = """
import json, sys
from pathlib import Path
from stages import Stages
from teleport.running.log import configure_logging
configure_logging()
made = Stages(Path()).collection(json.loads(sys.argv[1]))
print(json.dumps({name: str(path) for name, path in made.files.items()}))
"""


def run_stage(folder, source):
    """Run the stages of a collection in a process of its own: ir_datasets reads its home only once."""
    command = [sys.executable, "-c", SCRIPT, json.dumps(source)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    files = {name: folder / path for name, path in json.loads(done.stdout).items() if name.endswith(".parquet")}
    return {name.removesuffix(".parquet"): pq.read_table(p).to_pylist() for name, p in files.items()}, done.stderr


def place(folder, name, files):
    """Put files where ir_datasets looks for them before it fetches them."""
    for path, data in files.items():
        target = folder / "data/ir_datasets" / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def test_ms_marco_and_trec_dl_of_ir_datasets(tmp_path):
    place(tmp_path, "msmarco-passage", MARCO)
    splits = {name: f"msmarco-passage/{part}" for name, part in
              {"train": "train/judged", "dev": "dev/small", "dl20": "trec-dl-2020/judged"}.items()}  # fmt: skip
    source = {"source": "ir_datasets", "corpus": "msmarco-passage", "splits": splits}
    tables, log = run_stage(tmp_path, source)
    assert [row["doc_id"] for row in tables["corpus"]] == ["0", "1", "2"]
    assert tables["corpus"][1] == {"doc_id": "1", "title": "", "text": "Café latte."}, "its repair of the encoding"
    assert tables["queries.train"] == [{"query_id": "10", "text": "what was it"}]
    assert tables["queries.dl20"] == [{"query_id": "30", "text": "who is aziz hashim"}]
    assert [(row["doc_id"], row["grade"]) for row in tables["qrels.dl20"]] == [("2", 3), ("0", 0)]
    assert "Terms of ir_datasets-msmarco-passage" in log
    assert (tmp_path / "data/licences/ir_datasets-msmarco-passage.accepted").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"data", "results"}


def test_dpr_of_ir_datasets_has_answers(tmp_path):
    place(tmp_path, "dpr-w100", DPR)
    source = {"source": "ir_datasets", "corpus": "dpr-w100", "splits": {"train": "dpr-w100/natural-questions/train"}}
    tables, _ = run_stage(tmp_path, source)
    assert [(row["doc_id"], row["title"]) for row in tables["corpus"]][:1] == [("1", "Aaron")]
    assert tables["answers.train"] == [{"query_id": "0", "answers": ["a prophet", "Prophet"]}]
    assert [(row["doc_id"], row["grade"]) for row in tables["qrels.train"]] == [("1", 2), ("3", 1), ("2", 0)]


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """The registry of ir_datasets with a few made-up sets; its home is in a temporary folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IR_DATASETS_HOME", "restored after the test")
    monkeypatch.setenv("IR_DATASETS_TMP", "restored after the test")
    real = ir.open_registry()
    found = {name: real[name] for name in ("beir/scifact/test", "msmarco-document")}
    monkeypatch.setattr(ir, "open_registry", lambda: found)
    return found


def make_set(docs=None, queries=None, qrels=None):
    """A set of ir_datasets over given records, with its own Dataset class and record types."""
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import BaseDocs, BaseQrels, BaseQueries

    class Docs(BaseDocs):
        def docs_iter(self):
            return iter(docs)

        def docs_cls(self):
            return type(docs[0])

    class Queries(BaseQueries):
        def queries_iter(self):
            return iter(queries)

        def queries_cls(self):
            return type(queries[0])

    class Qrels(BaseQrels):
        def qrels_iter(self):
            return iter(qrels)

    return Dataset(docs and Docs(), queries and Queries(), qrels and Qrels())


def test_documents_with_a_title_a_body_or_only_fields(registry, stages):
    from ir_datasets.datasets.msmarco_document import MsMarcoDocument
    from ir_datasets.formats import GenericQuery, TrecQrel

    docs = [MsMarcoDocument("D1", "http://x", "Title", "Body."), MsMarcoDocument("D2", "http://y", "", "Other.")]
    docs.append(MsMarcoDocument("D3", "http://z", None, "Untitled."))
    qrels = [TrecQrel("q1", "D2", 2, "0"), TrecQrel("q1", "D2", 2, "0"), TrecQrel("q1", "D1", 0, "0")]
    registry["toy"] = make_set(docs)
    registry["toy/train"] = make_set(docs, [GenericQuery("q1", "what")], qrels)
    source = {"source": "ir_datasets", "corpus": "toy", "splits": {"train": "toy/train"}}
    files = stages.collection(source).files
    assert pq.read_table(files["corpus.parquet"]).to_pylist() == [
        {"doc_id": "D1", "title": "Title", "text": "Body."},
        {"doc_id": "D2", "title": "", "text": "Other."},
        {"doc_id": "D3", "title": "", "text": "Untitled."},
    ]
    rows = pq.read_table(files["qrels.train.parquet"]).to_pylist()
    assert [(row["doc_id"], row["grade"]) for row in rows] == [("D2", 2), ("D1", 0)], "a repetition is read once"


def test_a_document_whose_body_is_no_text_is_one_text():
    from ir_datasets.datasets.cord19 import Cord19FullTextDoc, Cord19FullTextSection

    body = (Cord19FullTextSection("Method", "We ask."), Cord19FullTextSection("Result", "It works."))
    doc = Cord19FullTextDoc("d1", "A title", "1", "2020", "An abstract.", body)
    assert ir.passage_fields(doc) == ("d1", "", doc.default_text())
    assert "An abstract." in doc.default_text() and "It works." in doc.default_text()


@pytest.mark.parametrize(
    ("corpus", "split", "message"),
    [
        ("beir/scifact/tset", "toy", "collection.corpus: .*'beir/scifact/tset'. Did you mean beir/scifact/test"),
        ("toy", "nothing like it", "collection.splits.test: .* ids "),
        ("toy", "msmarco-document", "collection.splits.test: 'msmarco-document' of .* has no queries"),
    ],
)
def test_wrong_ids_are_named_with_their_setting(registry, stages, corpus, split, message):
    from ir_datasets.datasets.msmarco_document import MsMarcoDocument

    registry["toy"] = make_set([MsMarcoDocument("D1", "http://x", "Title", "Body.")])
    source = {"source": "ir_datasets", "corpus": corpus, "splits": {"test": split}}
    with pytest.raises(ValueError, match=message):
        stages.collection(source)
