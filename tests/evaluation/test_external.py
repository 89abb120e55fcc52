"""Runs from elsewhere: read as trec_eval reads them, refused with file, line and remedy."""

import gzip
import random
import re
import tarfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import collection_world
from teleport.evaluation import evaluate, external
from teleport.running.artefact import Artefact
from teleport.running.files import sha256_file

GOOD = """\
qb Q0 d3 1 0.5 tag
qa Q0 d1 1 2.0 tag
qa Q0 d2 9 3.5 tag
qa Q0 dé 3 2.0 tag
"""


def make_collection(stages, judgments, passages):
    """A collection with the queries of `judgments` ({query: {passage: grade}}) and the ids `passages`."""
    queries = [(query, "") for query in judgments]
    judged = [(n, passages.index(p), g) for n, grades in enumerate(judgments.values()) for p, g in grades.items()]
    passages = [(passage, "", "") for passage in passages]
    return collection_world.make_collection(stages, passages, {"test": queries}, {"test": judged})


def read_run(stages, collection, path, **settings):
    usual = {"form": "trec", "unknown_queries": "error", "unknown_passages": "error"}
    digest = sha256_file(path) if path.exists() else "0" * 64
    settings = {"file": str(path), "sha256": digest, "split": "test"} | usual | settings
    return stages.run(external.run, "external", settings, {"collection": collection})


@pytest.fixture
def collection(stages):
    return make_collection(stages, {"qa": {"d1": 1}, "qb": {"d3": 1}, "qc": {"d0": 1}}, ["d0", "d1", "d2", "d3", "dé"])


def arrays(job):
    return {name: np.load(job.folder / f"{name}.npy") for name in ("ids", "scores", "rows")}


@pytest.mark.parametrize("zipped", [False, True])
def test_lists_are_ordered_by_score_then_by_descending_id(stages, collection, tmp_path, zipped):
    path = tmp_path / ("a.run.gz" if zipped else "a.run")
    path.write_bytes(gzip.compress(GOOD.encode()) if zipped else GOOD.encode())
    job = read_run(stages, collection, path)
    found = arrays(job)
    assert found["rows"].tolist() == [0, 1]
    assert found["ids"].tolist() == [[2, 4, 1], [3, -1, -1]]  # d2, then dé before d1 of the same score
    assert found["scores"].tolist() == [[3.5, 2, 2], [0.5, 0, 0]]
    assert {name: array.dtype.name for name, array in found.items()} == {
        "ids": "int32", "scores": "float32", "rows": "int32",
    }  # fmt: skip
    counts = {"lines": 4, "num_queries": 2, "depth": 3, "unknown_queries": 0, "unknown_passages": 0}
    assert Artefact(job.folder).facts == counts


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("qa Q0 d0 4 1.0", "line 5: 5 columns"),
        ("qa\tQ0\td0\t4\tbest\tt", "line 5: the score 'best' is not a finite number. Correct the line."),
        ("qa Q0 d0 4 1_0 t", "line 5: the score '1_0' is not a finite number."),
        ("qa Q0 d0 4 ４ t", "line 5: the score '４' is not a finite number."),
        ("qa Q0 d0 4 nan t", "line 5: the score 'nan' is not a finite number."),
        ("qz Q0 d0 1 1.0 t", "line 5: query 'qz' "),
        ("qa Q0 d9 4 1.0 t", "line 5: passage 'd9' "),
        ("qa Q0 d1 4 1.0 t", "line 5: passage 'd1' "),
    ],
)  # fmt: skip
def test_bad_lines_are_refused_with_file_line_and_remedy(stages, collection, tmp_path, line, message):
    path = tmp_path / "a.run"
    path.write_text(GOOD + line + "\n")
    with pytest.raises(ValueError, match=re.escape(f"{path}, {message}")):
        read_run(stages, collection, path)


def test_ranks_of_three_columns_are_a_run(stages, collection, tmp_path):
    """MS MARCO's form of its leaderboard; lists are as those of a run with these ranks' negatives as scores."""
    path, plain = tmp_path / "ranks.tsv", tmp_path / "plain.run"
    ranks = [("qb", "d3", 1), ("qa", "d1", 2), ("qa", "d2", 10), ("qa", "dé", 3)]
    path.write_text("".join(f"{query}\t{passage}\t{rank}\n" for query, passage, rank in ranks))
    plain.write_text("".join(f"{query} Q0 {passage} 0 -{rank} t\n" for query, passage, rank in ranks))
    found, expected = (arrays(read_run(stages, collection, each)) for each in (path, plain))
    assert found["ids"].tolist() == expected["ids"].tolist() == [[1, 4, 2], [3, -1, -1]]
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("qa d1 1 2", "line 2: 4 columns, expected 3 as in line 1"),
        ("qa Q0 d1 1 2.0 t", "line 2: 6 columns, expected 3 as in line 1"),
        ("qa d1 0.5", "line 2: the third"),
        ("qa d1 0", "line 2: the third"),
        ("qa d1 １", "line 2: the third"),
        ("qb d3 2", "line 2: passage 'd3' "),
    ],
)
def test_a_bad_line_of_ranks_is_refused(stages, collection, tmp_path, line, message):
    path = tmp_path / "ranks.tsv"
    path.write_text(f"qb d3 1\n{line}\n")
    with pytest.raises(ValueError, match=re.escape(f"{path}, {message}")):
        read_run(stages, collection, path)


def test_a_tag_may_have_blanks(stages, collection, tmp_path):
    path = tmp_path / "a.run"
    path.write_text(GOOD.replace("tag", "my system, v 2"))
    assert arrays(read_run(stages, collection, path))["ids"].tolist() == [[2, 4, 1], [3, -1, -1]]


def test_lines_of_unknown_queries_can_be_dropped(stages, collection, tmp_path):
    path = tmp_path / "a.run"
    path.write_text("qz Q0 d0 1 1.0 t\n" + GOOD)
    job = read_run(stages, collection, path, unknown_queries="drop")
    assert arrays(job)["ids"].tolist() == [[2, 4, 1], [3, -1, -1]]
    assert Artefact(job.folder).facts["unknown_queries"] == 1


@pytest.mark.parametrize("text", ["", "qz Q0 d0 1 1.0 t\nqy Q0 d0 1 1.0 t\n"], ids=["empty", "others"])
def test_a_run_without_any_query_of_the_split_is_refused(stages, collection, tmp_path, text):
    """Its row would be of zeros: most likely it is the run of another split."""
    path = tmp_path / "a.run"
    path.write_text(text)
    expected = f"{path}: no line has a query of 'test' ({text.count('qz') + text.count('qy')} lines have other queries)"
    with pytest.raises(ValueError, match=re.escape(expected)):
        read_run(stages, collection, path, unknown_queries="drop")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.run.gz", gzip.compress(GOOD.encode() * 9)[:60], "a.run.gz: not a gzip file, or a damaged one ("),
        ("a.run.gz", GOOD.encode(), "a.run.gz: not a gzip file, or a damaged one (Not a gzipped file"),
        ("a.run", GOOD.encode("latin1"), "a.run, line 4: byte 0xe9 at position 7 is not UTF-8. Convert the file,"),
    ],
    ids=["torn", "plain", "latin1"],
)
def test_files_that_cannot_be_read_are_refused(stages, collection, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_run(stages, collection, tmp_path / name)


def test_unknown_passages_can_be_kept_or_dropped(stages, collection, tmp_path):
    """Kept ones are numbered after the collection's in the order of the file, and have their ids beside the run."""
    path = tmp_path / "a.run"
    path.write_text("qa Q0 d9 1 9.0 t\n" + GOOD + "qb Q0 d8 1 0.1 t\nqb Q0 d9 1 0.2 t\n")
    kept = read_run(stages, collection, path, unknown_passages="keep")
    assert arrays(kept)["ids"].tolist() == [[5, 2, 4, 1], [3, 5, 6, -1]]
    assert pq.read_table(kept.folder / "passages.parquet")["doc_id"].to_pylist() == ["d9", "d8"]
    dropped = read_run(stages, collection, path, unknown_passages="drop")
    assert arrays(dropped)["ids"].tolist() == [[2, 4, 1], [3, -1, -1]]
    assert Artefact(dropped.folder).facts["unknown_passages"] == 3
    assert not (dropped.folder / "passages.parquet").exists()
    inputs = {"collection": collection, "run": kept}
    run = stages.run(evaluate.run, "evaluate", {"split": "test", "measures": ["RR@10", "Hole@1"]}, inputs)
    assert Artefact(run.folder).facts["means"] == pytest.approx({"RR@10": (1 / 4 + 1) / 3, "Hole@1": 1 / 2})
    lines = gzip.decompress((run.folder / "test.run.gz").read_bytes()).decode().splitlines()
    assert [line.split()[2] for line in lines] == ["d9", "d2", "dé", "d1", "d3", "d9", "d8"]


def test_candidates_of_query_and_passage_alone(stages, collection, tmp_path):
    """The form of MARCO's top1000.dev: texts follow, which nothing reads."""
    path = tmp_path / "candidates.tsv"
    path.write_text("qb\td3\ta query\ta passage\nqz\td0\tx\ty\nqb\tno\tx\ty\nqb\td0\n")
    settings = {"form": "tsv", "unknown_queries": "drop", "unknown_passages": "drop"}
    job = read_run(stages, collection, path, **settings)
    assert arrays(job)["ids"].tolist() == [[3, 0]] and arrays(job)["rows"].tolist() == [1]
    assert Artefact(job.folder).facts == {
        "lines": 2, "num_queries": 1, "depth": 2, "unknown_queries": 1, "unknown_passages": 1
    }  # fmt: skip
    for text, message in (("qb\n", "line 1: 1 column"), ("qb\tno\n", "'no' is not in")):
        path.write_text(text)
        with pytest.raises(ValueError, match=re.escape(message)):
            read_run(stages, collection, path, **settings)


def means(stages, collection, run, measures):
    settings = {"split": "test", "measures": measures}
    job = stages.run(evaluate.run, "evaluate", settings, {"collection": collection, "run": run})
    return Artefact(job.folder).facts["means"]


def official(stages, judgments, run_text):
    """A collection of exactly the passages that judgments and run name."""
    passages = {line.split()[2] for line in run_text.splitlines()} | {p for ps in judgments.values() for p in ps}
    return make_collection(stages, judgments, sorted(passages))


@pytest.mark.ci(1)
@pytest.mark.parametrize(("system", "ndcg"), [("BM25", 0.5058), ("D_BERT_KD_TASB", 0.7210)])
def test_official_runs_have_their_published_scores(stages, shared, system, ndcg):
    judgments = collection_world.read_judgments(shared / "judgments/trec-dl/qrels.dl19-passage.txt")
    path = shared / f"judgments/runs/{system}.dl19.top100.txt"
    collection = official(stages, judgments, path.read_text())
    job = read_run(stages, collection, path)
    found = means(stages, collection, job, ["nDCG@10", "R@100"])
    assert round(found["nDCG@10"], 4) == ndcg
    if system == "BM25":
        assert round(found["R@100"], 3) == 0.453  # STAR and ADORE, Table 2


@pytest.mark.parametrize(("system", "ndcg"), [("BM25", 0.5058), ("D_BERT_KD_TASB", 0.7210)])
def test_official_runs_have_their_published_scores_without_a_collection(stages, shared, system, ndcg):
    """Judgments alone: most passages of a run are in no file but the run."""
    qrels = shared / "judgments/trec-dl/qrels.dl19-passage.txt"
    source = {"source": "judgments", "splits": {"test": {"qrels": str(qrels)}}}
    collection = stages.collection(source)
    facts = collection.facts
    assert facts["judged_only"] and facts["num_passages"] == 9139
    counts = {"queries": 43, "judgments": 9260, "positives": 4102, "dropped": 0}
    assert facts["splits"]["test"] == counts
    run = read_run(stages, collection, shared / f"judgments/runs/{system}.dl19.top100.txt", unknown_passages="keep")
    assert len(pq.read_table(run.folder / "passages.parquet")) > 1000
    assert round(means(stages, collection, run, ["nDCG@10"])["nDCG@10"], 4) == ndcg


MEASURES = ["RR@10", "RR(rel=2)@10", "nDCG@10", "R@100", "R(rel=2)@100", "AP", "P@10", "Judged@10", "Hole@10", "Bpref"]


def test_ties_in_any_order_of_the_file_score_the_same(stages, shared, tmp_path):
    """An official run with scores rounded to whole numbers: a query has about a dozen different ones left."""
    judgments = collection_world.read_judgments(shared / "judgments/trec-dl/qrels.dl19-passage.txt")
    lines = (shared / "judgments/runs/BM25.dl19.top100.txt").read_text().splitlines()
    collection = official(stages, judgments, "\n".join(lines))
    tied = [" ".join([*(parts := line.split())[:3], "0", f"{float(parts[4]):.0f}", "t"]) for line in lines]
    assert len({(line.split()[0], line.split()[4]) for line in tied}) < len(lines) / 5
    found = []
    for seed in range(3):
        random.Random(seed).shuffle(tied)
        (tmp_path / "tied.run").write_text("\n".join(tied) + "\n")
        found.append(means(stages, collection, read_run(stages, collection, tmp_path / "tied.run"), MEASURES))
    assert found[0] == found[1] == found[2]
    assert 0.4 < found[0]["nDCG@10"] < 0.6


def test_trec_eval_s_own_files_through_the_stages(stages, shared):
    """results.test has ties; the figures are those that trec_eval prints for it."""
    folder = shared / "judgments/trec_eval"
    judgments = collection_world.read_judgments(folder / "qrels.test")
    path = folder / "results.test"
    answered = {line.split()[0] for line in path.read_text().splitlines()}
    judgments = {query: grades for query, grades in judgments.items() if query in answered}
    collection = official(stages, judgments, path.read_text())
    found = means(stages, collection, read_run(stages, collection, path), ["AP", "P@10", "Rprec", "Bpref", "RR"])
    names = {"AP": "map", "P@10": "P_10", "Rprec": "Rprec", "Bpref": "bpref", "RR": "recip_rank"}
    lines = [line.split() for line in (folder / "out.test.aq").read_text().splitlines()]
    printed = {measure: float(value) for measure, query, value in lines if query == "all" and measure != "runid"}
    assert {name: round(value, 4) for name, value in found.items()} == {n: printed[o] for n, o in names.items()}


def test_a_run_may_be_in_an_archive_of_ones_own(stages, collection, tmp_path):
    (tmp_path / "a.run").write_text(GOOD)
    with tarfile.open(tmp_path / "runs.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a.run", "runs/a.run")
    plain = read_run(stages, collection, tmp_path / "a.run")
    named = f"{tmp_path / 'runs.tar.gz'}!runs/a.run"
    packed = read_run(stages, collection, Path(named), sha256=sha256_file(tmp_path / "runs.tar.gz"))
    assert all(np.array_equal(array, arrays(packed)[name]) for name, array in arrays(plain).items())
    with pytest.raises(ValueError, match="runs.tar.gz has changed"):
        read_run(stages, collection, Path(named), sha256="0" * 64)


def test_a_run_that_has_changed_since_it_was_planned_is_refused(stages, collection, tmp_path):
    path = tmp_path / "a.run"
    path.write_text(GOOD)
    with pytest.raises(ValueError, match="a.run has changed"):
        read_run(stages, collection, path, sha256="0" * 64)
