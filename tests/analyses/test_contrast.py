"""Stage `contrast` against plain loops: overlap, wins and losses, and where two lists part."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from collection_world import make_collection, make_run
from teleport.analyses import contrast
from teleport.evaluation import evaluate, external
from teleport.running.artefact import Artefact

JUDGED = [(0, 3, 1), (0, 4, 2), (1, 1, 1), (2, 2, 1)]  # qd has no judgment


def make_world(stages, passages=8):
    queries = [(query_id, "text") for query_id in ("qa", "qb", "qc", "qd")]
    return make_collection(stages, passages, {"test": queries}, {"test": JUDGED})


def compare(stages, collection, ours, theirs, **settings):
    settings = {"split": "test", "measure": "RR@10", "depth": 3} | settings
    inputs = {"collection": collection, "run": ours, "reference": theirs}
    job = stages.run(contrast.run, "contrast", settings, inputs)
    return Artefact(job.folder).facts, pq.read_table(job.folder / "contrast.parquet").to_pydict()


OURS = [[3, 0, 1], [1, 2, -1], [5, 2, 6], [7, 6, 5]]
THEIRS = [[0, 3, 1], [1, 2, 4], [5, 2, 6]]


def test_by_hand(stages):
    collection = make_world(stages)
    facts, table = compare(stages, collection, make_run(stages, OURS), make_run(stages, THEIRS))
    assert facts == {
        "wins": 1, "losses": 0, "ties": 2, "num_queries": 3, "depth": 3, "measure": "RR@10",
        "overlap": pytest.approx((3 + 2 + 3) / 9),
    }  # fmt: skip
    assert table == {
        "query_id": ["qa", "qb", "qc"],
        "overlap": pytest.approx([1, 2 / 3, 1]),
        "value": [1, 1, 0.5],
        "reference_value": [0.5, 1, 0.5],
        "rank": [1, 3, 0],
        "doc_id": ["d3", None, None],
        "grade": [1, None, None],
        "reference_doc_id": ["d0", "d4", None],
        "reference_grade": [None, None, None],
    }


def test_fewer_errors_win(stages):
    collection = make_world(stages)
    facts, table = compare(stages, collection, make_run(stages, OURS), make_run(stages, THEIRS), measure="Errors@3")
    fewer = [ours < theirs for ours, theirs in zip(table["value"], table["reference_value"], strict=True)]
    assert (facts["wins"], facts["losses"]) == (sum(fewer), 0) and any(fewer)


def test_a_query_s_own_text_is_left_out_of_both_lists(stages, monkeypatch):
    monkeypatch.setattr(evaluate, "read_same_texts", lambda *given: None)
    monkeypatch.setattr(evaluate, "own_texts", lambda *given: np.array([3]))  # query 0 with passage 3
    collection = make_collection(stages, 8, {"test": [("d3", "text")]}, {"test": [(0, 0, 1)]})
    runs = make_run(stages, [[3, 0, 1]]), make_run(stages, [[0, 3, 1]])
    for ignored, losses in ((False, 1), (True, 0)):
        facts, table = compare(stages, collection, *runs, ignore_own_text=ignored)
        assert (facts["losses"], facts["ties"]) == (losses, 1 - losses) and table["rank"] == [losses]


def test_a_query_that_one_run_lacks_shares_nothing(stages):
    collection = make_world(stages)
    facts, table = compare(stages, collection, make_run(stages, THEIRS[:1]), make_run(stages, THEIRS))
    assert table["overlap"] == [1, 0, 0] and table["rank"] == [0, 1, 1]
    assert (facts["wins"], facts["losses"], facts["ties"]) == (0, 2, 1)


def test_a_run_beside_itself_only_ties(stages):
    collection, run = make_world(stages), make_run(stages, OURS)
    facts, table = compare(stages, collection, run, run)
    assert (facts["wins"], facts["losses"], facts["ties"]) == (0, 0, 3) and table["rank"] == [0, 0, 0]
    assert table["overlap"] == pytest.approx([1, 2 / 3, 1])  # qb has no third passage


def test_overlap_equals_a_loop_over_sets(stages):
    rng = np.random.default_rng(0)
    collection = make_world(stages, 60)
    lists = [np.array([rng.permutation(60)[:30] for _ in range(4)]) for _ in range(2)]
    facts, _ = compare(stages, collection, *(make_run(stages, ids) for ids in lists), depth=20)
    shared = [len(set(a[:20].tolist()) & set(b[:20].tolist())) / 20 for a, b in zip(*lists, strict=True)][:3]
    assert facts["overlap"] == pytest.approx(sum(shared) / 3) and 0.1 < facts["overlap"] < 0.9


def test_documents_are_compared_where_passages_are_collapsed(stages):
    passages = [(f"D{n // 2}#{n % 2}", "", "") for n in range(8)]
    queries = [(query_id, "text") for query_id in ("qa", "qb", "qc", "qd")]
    collection = make_collection(stages, passages, {"test": queries}, {"test": JUDGED})
    ours, theirs = (make_run(stages, [ids] * 3) for ids in ([0, 2, 4], [1, 3, 6]))
    assert compare(stages, collection, ours, theirs)[0]["overlap"] == 0
    facts, table = compare(stages, collection, ours, theirs, collapse="maxp")
    assert facts["overlap"] == pytest.approx(2 / 3)
    assert (table["rank"], table["doc_id"], table["reference_doc_id"]) == ([3] * 3, ["D2"] * 3, ["D3"] * 3)


def test_passages_of_runs_alone_are_the_same_by_their_ids(stages, tmp_path):
    """Each run numbers what the collection lacks in its own order."""
    collection = make_world(stages)

    def read(name, passages):
        path = tmp_path / name
        path.write_text("".join(f"qa Q0 {p} 1 {-rank} t\n" for rank, p in enumerate(passages)))
        settings = {"file": str(path), "sha256": None, "split": "test", "form": "trec"}
        settings |= {"unknown_queries": "error", "unknown_passages": "keep"}
        return stages.run(external.run, "external", settings, {"collection": collection})

    facts, table = compare(stages, collection, read("a", ["x", "d3", "y"]), read("b", ["x", "y", "z"]))
    assert table["overlap"] == pytest.approx([2 / 3, 0, 0]) and facts["overlap"] == pytest.approx(2 / 9)
    assert (table["rank"][0], table["doc_id"][0], table["reference_doc_id"][0]) == (2, "d3", "y")
