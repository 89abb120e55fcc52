"""Scores of a file from elsewhere: what is read, and every line that is refused."""

import gzip
import json

import numpy as np
import pytest

from stages import facts_of
from teleport.negatives import scores_file
from teleport.negatives.scores import PairTable
from teleport.refusal import Refusal
from teleport.running.files import sha256_file

PAIRS = [("q2", "doc_id7", 0.25), ("q0", "doc_id9", -3.5), ("q0", "doc_id2", 4), ("q2", "doc_id1", 1e-3)]


@pytest.fixture
def read(world, tmp_path):
    """Function of (name, text) of a file: the job of the stage that reads it, over three queries and 10 passages."""
    collection = world.collection(["q0", "q1", "q2"], [(0, 2, 1)], num_passages=10)

    def of_text(name, text):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        settings = {"path": str(path), "sha256": sha256_file(path)}
        return world.stages.run(scores_file.run, "scores_file", settings, {"collection": collection})

    of_text.merge = lambda job: world.stages.make("merge", inputs={"scores.judge": job, "collection": collection})
    return of_text


def tsv(pairs):
    return "".join("\t".join(map(str, pair)) + "\n" for pair in pairs)


def jsonl(pairs):
    return "".join(
        json.dumps(dict(zip(("query_id", "passage_id", "score"), pair, strict=True))) + "\n" for pair in pairs
    )


@pytest.mark.parametrize(
    ("name", "form"), [("s.tsv", tsv), ("s.jsonl", jsonl), ("s.tsv.gz", tsv), ("s.jsonl.gz", jsonl)]
)
def test_both_forms_give_one_table(read, name, form):
    job = read(name, form(PAIRS))
    table = PairTable.open(read.merge(job), "scores.judge")
    assert table.offsets.tolist() == [0, 2, 2, 4] and table.passages.tolist() == [2, 9, 1, 7]
    rows, passages = [2, 0, 0, 2], [7, 9, 2, 1]
    assert table.score(np.array(rows), np.array(passages)).tolist() == [np.float32(score) for *_, score in PAIRS]
    assert facts_of(job) == {"pairs": 4, "queries": 2, "other_queries": 0}


def test_lines_of_other_queries_are_left_out_counted_and_warned_of(read, caplog):
    """They may be of another split, or mistyped."""
    whole = PairTable.open(read.merge(read("all.tsv", tsv(PAIRS))), "scores.judge")
    assert not caplog.records
    job = read("s.tsv", tsv([PAIRS[0], ("q9", "doc_id1", 1), ("Q2", "doc_id1", 1), *PAIRS[1:]]))
    assert facts_of(job)["other_queries"] == 2
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert "s.tsv: 2 of 6 lines" in warning.message and "'q9' on line 2." in warning.message
    table = PairTable.open(read.merge(job), "scores.judge")
    assert table.passages.tolist() == whole.passages.tolist() and table.scores.tolist() == whole.scores.tolist()


def test_a_verdict_is_a_score_and_a_header_no_line(read):
    verdicts = read("v.jsonl", jsonl([("q0", "doc_id1", True), ("q0", "doc_id2", False)]))
    table = PairTable.open(read.merge(verdicts), "scores.judge")
    assert table.scores.tolist() == [1.0, 0.0]
    headed = read("h.tsv", "query_id\tpassage_id\tscore\n" + tsv(PAIRS))
    assert len(PairTable.open(read.merge(headed), "scores.judge").scores) == 4


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("a.tsv", tsv([("q9", "doc_id1", 1)]), "a.tsv: .*1 line"),
        ("b.tsv", tsv([*PAIRS, ("q1", "doc_id10", 1)]), "b.tsv, line 5: query 'q1' with passage 'doc_id10'.*corpus"),
        ("c.tsv", tsv([*PAIRS, ("q2", "doc_id7", 1)]), "c.tsv, line 5: query 'q2' with passage 'doc_id7'.* line 1 "),
        ("d.tsv", tsv([*PAIRS, ("q1", "doc_id1", "nan")]), "d.tsv, line 5: the score 'nan'"),
        ("e.jsonl", jsonl([*PAIRS, ("q1", "doc_id1", float("nan"))]), "e.jsonl, line 5: the score nan"),
        ("f.jsonl", jsonl([*PAIRS, ("q1", "doc_id1", 10**400)]), "f.jsonl, line 5: the score 1000"),
        ("g.tsv", tsv([*PAIRS, ("q1", "doc_id1", "1_0")]), "g.tsv, line 5: the score '1_0'"),
        ("f.jsonl", jsonl(PAIRS) + '{"query_id": "q1", "passage_id": "doc_id1"}\n', "f.jsonl, line 5: the score None"),
        ("g.tsv", tsv([*PAIRS, ("q1", "doc_id1", 1e39)]), "g.tsv, line 5: the score '1e.39'"),
        ("h.tsv", tsv(PAIRS) + "q1\tdoc_id1\n", "h.tsv, line 5: column count 2"),
        ("j.tsv", "", "j.tsv has no"),
    ],
)
def test_a_wrong_line_is_refused_with_file_line_and_pair(read, name, text, where):
    with pytest.raises(Refusal, match=where):
        read(name, text)


def test_a_file_that_changed_since_it_was_planned_is_refused(world, tmp_path):
    path = tmp_path / "s.tsv"
    path.write_text(tsv(PAIRS))
    settings = {"path": str(path), "sha256": "0" * 64}
    with pytest.raises(Refusal, match="s.tsv has changed"):
        world.stages.run(scores_file.run, "scores_file", settings, {})


def test_a_pair_that_the_file_lacks_is_refused_by_the_ids(read):
    table = PairTable.open(read.merge(read("s.tsv", tsv(PAIRS))), "scores.judge")
    with pytest.raises(Refusal, match=r"^judge \(scores_file/.*'q2' \(row 2\) .*'doc_id9' \(row 9\)"):
        table.score(np.array([2, 2]), np.array([1, 9]))


def test_a_filter_drops_what_a_file_scores_high(world, tmp_path):
    """The miner's ranks stand; the judge alone decides what is left out."""
    collection = world.collection(["q0", "q1"], [(0, 0, 1)], num_passages=10)
    lists = {"query": world.retrieval([[1, 2, 3, 4], [5, 6, 7, 8]])}
    path = tmp_path / "judge.tsv"
    judged = {(query, passage): passage % 2 for query, of in enumerate([[1, 2, 3, 4], [5, 6, 7, 8]]) for passage in of}
    path.write_text(tsv((f"q{query}", f"doc_id{passage}", verdict) for (query, passage), verdict in judged.items()))
    settings = {"path": str(path), "sha256": sha256_file(path)}
    judge = world.stages.run(scores_file.run, "scores_file", settings, {"collection": collection})
    filters = {"max_score": 0.5, "scores": "judge"}
    pool = world.merge(collection, {"query": 4}, lists, {"scores.judge": judge}, filters=filters)
    assert [sorted(passages) for passages in pool.passages] == [[2, 4], [6, 8]]
    assert pool.merge_facts["filters"]["dropped"] == {"query": {"max_score": 4}}


@pytest.mark.parametrize("judge", ["top", "max_score"])
def test_a_file_without_positives_is_read_where_another_judge_has_s_plus(world, tmp_path, judge):
    """The miner has s+ and a file orders candidates, or the other way round. The miner's score of passage p is 10 - p,
    s+ is 9, and the file scores passages 2 to 9 by p."""
    collection = world.collection(["q0", "q1"], [(0, 1, 1), (1, 1, 1)], num_passages=10)
    vectors = world.vectors(queries=[[1.0]] * 2, passages=[[10.0 - p] for p in range(10)])
    ids = list(range(2, 10))
    lists = {"query": world.retrieval([ids] * 2, scores=[[10 - p for p in ids]] * 2)}
    path = tmp_path / "judge.tsv"
    path.write_text(tsv((query, f"doc_id{p}", p) for query in ("q0", "q1") for p in ids))
    settings = {"path": str(path), "sha256": sha256_file(path)}
    job = world.stages.run(scores_file.run, "scores_file", settings, {"collection": collection})
    inputs = {"scores.judge": job, "vectors": vectors}
    by_judge = {
        "top": {"draw": {"kind": "top", "scores": "judge"}, "filters": {"percentage": 0.7}},  # drops 2 and 3
        "max_score": {"draw": {"kind": "around", "a": 99}, "filters": {"max_score": 5.5, "scores": "judge"}},
    }
    pool = world.merge(collection, {"query": 2}, lists, inputs, **by_judge[judge])
    assert pool.passages == [{"top": [8, 9], "max_score": [2, 3]}[judge]] * 2
    assert sum(pool.merge_facts["filters"]["dropped"]["query"].values()) == {"top": 4, "max_score": 8}[judge]
    around, percentage = {"kind": "around", "scores": "judge"}, {"percentage": 1.9, "scores": "judge"}
    for compared in ({"draw": around}, {"filters": percentage}):
        with pytest.raises(Refusal, match=rf"^judge \(scores_file/{job.key}\) scores no positive of the 2 "):
            world.merge(collection, {"query": 2}, lists, inputs, **compared)


@pytest.mark.parametrize(
    "compares", [{"draw": {"kind": "top", "scores": "judge"}}, {"filters": {"min_score": 1, "scores": "judge"}}]
)
def test_a_file_whose_scores_are_all_the_same_is_refused_where_they_are_compared(read, world, compares):
    """A file of verdicts may have the false negatives alone."""
    job = read("s.jsonl", jsonl([("q0", f"doc_id{p}", True) for p in range(3, 6)]))
    assert facts_of(job)["pairs"] == 3
    lists, collection = {"query": world.retrieval([[3, 4, 5]])}, world.collection(["q0"], [(0, 2, 1)], num_passages=10)
    with pytest.raises(Refusal, match=rf"^judge \(scores_file/{job.key}\): all 3 scores are 1"):
        world.merge(collection, {"query": 2}, lists, {"scores.judge": job}, **compares)
