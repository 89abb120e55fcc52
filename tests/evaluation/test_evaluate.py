"""The stage `evaluate` on a run small enough to score by hand."""

import gzip
import math

import ir_measures
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collection_world import make_collection, make_run
from commands.export import export
from teleport.arrays import Run, pair_keys
from teleport.evaluation import evaluate
from teleport.running.artefact import Artefact

MEASURES = ["RR@10", "nDCG@10", "R@2"]


def make_inputs(stages, ids, scores, rows, doc_ids=("d0", "d1", "d,2", 'd"3', "dé")):
    """Queries qa, qb, qc, qd (qd without judgments), five passages, and a run."""
    passages = [(doc_id, "", "text") for doc_id in doc_ids]
    queries = [(query_id, "text") for query_id in ("qa", "qb", "qc", "qd")]
    judged = [(0, 3, 1), (0, 4, 2), (1, 1, 1), (2, 2, 1)]
    collection = make_collection(stages, passages, {"test": queries}, {"test": judged})
    return {"collection": collection, "run": make_run(stages, ids, scores, rows)}


def evaluate_run(stages, inputs, measures=MEASURES):
    return stages.run(evaluate.run, "evaluate", {"split": "test", "measures": measures}, inputs)


IDS = [[0, 3, 4], [1, 2, -1], [-1, -1, -1], [0, 1, 2]]
SCORES = [[2.5, 2.5, -0.1], [1, 0.5, 0], [0, 0, 0], [3, 2, 1]]


def test_files_and_facts(stages):
    job = evaluate_run(stages, make_inputs(stages, IDS, SCORES, range(4)))
    ndcg = (1 / math.log2(3) + 2 / math.log2(4)) / (2 / math.log2(2) + 1 / math.log2(3))
    expected = {"RR@10": [0.5, 1, 0], "nDCG@10": [ndcg, 1, 0], "R@2": [0.5, 1, 0]}
    table = pq.read_table(job.folder / "per_query.parquet")
    assert table.schema.field("value").type == pa.float64()
    assert table["query_id"].to_pylist() == ["qa", "qb", "qc"] * 3
    assert table["measure"].to_pylist() == [name for name in MEASURES for _ in range(3)]
    assert table["value"].to_pylist() == pytest.approx([value for name in MEASURES for value in expected[name]])
    facts = Artefact(job.folder).facts
    assert facts["means"] == pytest.approx({name: sum(values) / 3 for name, values in expected.items()})
    assert facts["num_queries"] == 3


def test_the_run_is_a_trec_file_of_constant_bytes(stages):
    inputs = make_inputs(stages, IDS, SCORES, range(4))
    raw = (evaluate_run(stages, inputs).folder / "test.run.gz").read_bytes()
    tag = f"retrieve-{inputs['run'].key}"
    assert gzip.decompress(raw).decode() == (
        f'qa Q0 d0 1 2.5 {tag}\nqa Q0 d"3 2 2.5 {tag}\nqa Q0 dé 3 -0.1 {tag}\n'
        f"qb Q0 d1 1 1 {tag}\nqb Q0 d,2 2 0.5 {tag}\n"
        f"qd Q0 d0 1 3 {tag}\nqd Q0 d1 2 2 {tag}\nqd Q0 d,2 3 1 {tag}\n"
    )
    assert raw[3:8] == bytes(5)  # neither a file name nor a time in gzip's header
    assert (evaluate_run(stages, inputs).folder / "test.run.gz").read_bytes() == raw


def test_large_runs_are_written_in_blocks(stages, monkeypatch):
    inputs = make_inputs(stages, IDS, SCORES, range(4))
    whole = gzip.decompress((evaluate_run(stages, inputs).folder / "test.run.gz").read_bytes())
    monkeypatch.setattr(evaluate, "BLOCK_QUERIES", 3)
    assert gzip.decompress((evaluate_run(stages, inputs).folder / "test.run.gz").read_bytes()) == whole


@pytest.mark.parametrize("ids", [[[0]] * 4 + [[-1]], [[-1]] + [[0]] * 4, [[-1]] * 5])
def test_a_block_of_queries_without_results_writes_nothing(stages, monkeypatch, ids):
    monkeypatch.setattr(evaluate, "BLOCK_QUERIES", 1)
    queries = [(f"q{n}", "text") for n in range(len(ids))]
    collection = make_collection(stages, [("d0", "", "text")], {"test": queries}, {"test": [(0, 0, 1)]})
    inputs = {"collection": collection, "run": make_run(stages, ids, [[1]] * len(ids), range(len(ids)))}
    text = gzip.decompress((evaluate_run(stages, inputs).folder / "test.run.gz").read_bytes()).decode()
    tag = f"retrieve-{inputs['run'].key}"
    assert text == "".join(f"q{n} Q0 d0 1 1 {tag}\n" for n, (passage,) in enumerate(ids) if passage == 0)


def test_lines_of_the_run_may_come_in_any_order(stages):
    order = [2, 0, 3, 1]
    shuffled = make_inputs(stages, [IDS[n] for n in order], [SCORES[n] for n in order], order)
    ordered = evaluate_run(stages, make_inputs(stages, IDS, SCORES, range(4)))
    assert Artefact(evaluate_run(stages, shuffled).folder).facts == Artefact(ordered.folder).facts


def test_tied_scores_leave_the_ranking_as_it_is(stages):
    """Every order of three tied passages scores as its ranks say, in measures of different libraries."""
    for place, ids in enumerate([[1, 0, 2], [0, 1, 2], [0, 2, 1]]):
        job = evaluate_run(stages, make_inputs(stages, [ids], [[7, 7, 7]], [1]), ["RR@10", "RR", "nDCG@10"])
        means = Artefact(job.folder).facts["means"]
        assert means["RR@10"] == means["RR"] == pytest.approx(1 / (place + 1) / 3)
        assert means["nDCG@10"] == pytest.approx(1 / math.log2(place + 2) / 3)


def test_bad_input_is_refused(stages):
    with pytest.raises(ValueError, match="measure 'Foo@3'"):
        evaluate_run(stages, make_inputs(stages, IDS, SCORES, range(4)), ["Foo@3"])


def built(stages, folder, files, **source):
    """A collection that was built from files of the form `folder`."""
    for name, text in files.items():
        (folder / name).write_text(text)
    return stages.collection({"source": "folder", "path": str(folder)} | source)


def test_a_relevant_passage_that_the_corpus_lacks_counts_as_not_found(stages, tmp_path):
    """trec_eval reads judgments and a run, and no corpus: what it says of the files as they came is the rule."""
    corpus = "a\tone\nb\ttwo\nc\tthree\n"
    qrels = "q 0 a 1\nq 0 gone 2\nq 0 lost 1\nr 0 b 1\nr 0 gone 0\ns 0 gone 1\n"
    files = {"corpus.tsv": corpus, "queries.test.tsv": "q\twhich\nr\twho\ns\twhom\n", "qrels.test.tsv": qrels}
    collection = built(stages, tmp_path, files, drop=["dangling"])
    names = ["R@10", "AP", "nDCG@10", "Rprec", "P@1", "RR@10", "Bpref", "Judged@3"]
    inputs = {"collection": collection, "run": make_run(stages, [[1, 0, 2], [1, 2, 0], [0, 1, 2]])}
    means = Artefact(evaluate_run(stages, inputs, names).folder).facts["means"]
    official = [line.split() for line in qrels.splitlines()]
    judged = [ir_measures.Qrel(query, doc, int(grade)) for query, _, doc, grade in official]
    lists = {"q": "bac", "r": "bca", "s": "abc"}
    places = ((query, doc, rank) for query, docs in lists.items() for rank, doc in enumerate(docs))
    ranked = [ir_measures.ScoredDoc(query, doc, -rank) for query, doc, rank in places]
    for name in names:
        measure = ir_measures.parse_measure(name)
        assert means[name] == pytest.approx(ir_measures.calc_aggregate([measure], judged, ranked)[measure]), name
    assert means["R@10"] == pytest.approx((1 / 3 + 1 + 0) / 3), "not vacuous: without the missing ones it is 1"


def test_an_exported_run_and_its_judgments_give_the_scores_of_the_stage(stages, tmp_path):
    """Also where the corpus lacks a judged passage."""
    files = {"corpus.tsv": "a\tone\nb\ttwo\n", "queries.test.tsv": "q\twhich\nr\twho\n"}
    files["qrels.test.tsv"] = "r 0 b 1\nq 0 a 1\nq 0 gone 2\n"
    collection = built(stages, tmp_path, files, drop=["dangling"])
    job = evaluate_run(stages, {"collection": collection, "run": make_run(stages, [[1, 0], [1, 0]])}, ["R@10", "AP"])
    export(job.folder, tmp_path / "run")
    assert (tmp_path / "run/test.qrels.txt").read_text() == "r 0 b 1\nq 0 a 1\nq 0 gone 2\n"
    with gzip.open(tmp_path / "run/test.run.gz", "rt") as file:
        lines = [line.split() for line in file]
    ranked = [ir_measures.ScoredDoc(query, doc, -int(rank)) for query, _, doc, rank, *_ in lines]
    judged = list(ir_measures.read_trec_qrels(str(tmp_path / "run/test.qrels.txt")))
    for name, mean in Artefact(job.folder).facts["means"].items():
        measure = ir_measures.parse_measure(name)
        assert mean == pytest.approx(ir_measures.calc_aggregate([measure], judged, ranked)[measure]), name


def test_a_query_s_own_text_can_be_left_out_of_its_results(stages, tmp_path):
    """By its id (ArguAna), by its text under another id, with or without the title, and in another case."""
    corpus = "a\tT\tx y\nb\t\tfar off\nc\tX\ty\nd\t\tX  Y\n"
    files = {"corpus.tsv": corpus, "queries.test.tsv": "a\tnear by\nq\tx y\n", "qrels.test.tsv": "a 0 b 1\nq 0 b 1\n"}
    collection = built(stages, tmp_path, files)
    assert collection.facts["copies"] == 1 and collection.split("test").facts["same_text"] == 1
    inputs = {"collection": collection, "run": make_run(stages, [[0, 1, 2, 3], [0, 3, 2, 1]])}
    job = evaluate_run(stages, inputs, ["RR@10"])
    assert Artefact(job.folder).facts["means"]["RR@10"] == pytest.approx((1 / 2 + 1 / 4) / 2)
    settings = {"split": "test", "measures": ["RR@10"], "ignore_own_text": True}
    job = stages.run(evaluate.run, "evaluate", settings, inputs)
    assert Artefact(job.folder).facts["means"]["RR@10"] == 1
    lines = gzip.decompress((job.folder / "test.run.gz").read_bytes()).decode().splitlines()
    assert [tuple(line.split()[:4:2]) for line in lines] == [("a", "b"), ("a", "c"), ("a", "d"), ("q", "b")]
    own = evaluate.own_pairs(job, "test", np.array([[0], [1]]), np.arange(4))
    assert own.tolist() == [[True, False, False, False], [True, False, True, True]]


def test_a_query_s_own_document_is_left_out_with_all_of_its_passages(stages, tmp_path):
    files = {"corpus.tsv": "a#0\t\tx one\na#1\t\tx two\nb#0\t\tfar off\n", "queries.test.tsv": "a\tnear by\n"}
    collection = built(stages, tmp_path, files | {"qrels.test.tsv": "a 0 b#0 1\n"})
    inputs = {"collection": collection, "run": make_run(stages, [[0, 1, 2]])}
    settings = {"split": "test", "measures": ["RR@10"], "collapse": "maxp", "separator": "#"}
    for ignored, expected in ((False, 1 / 2), (True, 1)):
        job = stages.run(evaluate.run, "evaluate", settings | {"ignore_own_text": ignored}, inputs)
        assert Artefact(job.folder).facts["means"]["RR@10"] == expected


def test_own_texts_are_found_in_large_collections():
    """Row 50,000 times MS MARCO's 8,841,823 passages is no int32, which the rows of a run are."""
    rows, ids = np.array([50_000], np.int32), np.array([[8_000_000, 5, -1]], np.int32)
    run = Run(ids, np.array([[3, 2, 0]], np.float32), rows)
    found = evaluate.without_own_text(run, pair_keys(rows, np.array([8_000_000])))
    assert found.ids.tolist() == [[5, -1, -1]] and found.scores.tolist() == [[2, 0, 0]]
