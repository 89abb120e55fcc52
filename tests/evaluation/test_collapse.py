"""Passages to documents, by hand."""

import gzip

import numpy as np
import pyarrow as pa
import pytest

from collection_world import make_collection, make_run
from teleport.evaluation import evaluate
from teleport.evaluation.measures import Judgments
from teleport.evaluation.names import Documents
from teleport.running.artefact import Artefact

# Documents a (passages 0, 2), b#1 (1, 4), c (3, no separator).
IDS = pa.array(["a#0", "b#1#0", "a#1", "c", "b#1#7"])


def collapsed(mode, ids, scores=None):
    scores = np.array(scores or [[5, 4, 3, 2, 1]] * len(ids), np.float32)
    return [part.tolist() for part in Documents(IDS, "#").collapse(np.array(ids, np.int32), scores, mode)]


def test_the_document_is_what_stands_before_the_last_separator():
    documents = Documents(IDS, "#")
    assert documents.names.to_pylist() == ["a", "b#1", "c"]
    assert documents.document_P.tolist() == [0, 1, 0, 2, 1]
    assert documents.first_P.tolist() == [True, True, False, True, False]
    assert Documents(IDS, "::").names.to_pylist() == IDS.to_pylist()


def test_maxp_takes_the_best_passage():
    assert collapsed("maxp", [[4, 2, 0, 3, 1], [3, -1, -1, -1, -1]]) == [
        [[1, 0, 2, -1, -1], [2, -1, -1, -1, -1]],
        [[5, 4, 2, 0, 0], [5, 0, 0, 0, 0]],
    ]


def test_firstp_takes_the_first_passage_of_the_corpus():
    assert collapsed("firstp", [[4, 2, 0, 3, 1]]) == [[[0, 2, 1, -1, -1]], [[3, 2, 1, 0, 0]]]
    assert collapsed("firstp", [[4, 2, -1, -1, -1]]) == [[[-1] * 5], [[0] * 5]]


def test_a_document_has_the_highest_grade_of_its_passages():
    judgments = Judgments(*np.array([[7, 7, 8, 7], [0, 2, 4, 3], [1, 3, -1, 0]]))
    assert [part.tolist() for part in Documents(IDS, "#").judge(judgments)] == [[7, 7, 8], [0, 2, 1], [3, 0, -1]]
    none = Documents(IDS, "#").judge(Judgments(*np.zeros((3, 0), np.int32)))
    assert [len(part) for part in none] == [0, 0, 0]


def test_judged_passages_that_the_corpus_lacks_belong_to_their_documents(stages, tmp_path):
    """Of the documents a, b and gone, the first one is found by its one passage in the corpus."""
    (tmp_path / "corpus.tsv").write_text("a#0\tone\nc#0\ttwo\nb#0\tthree\n")
    (tmp_path / "queries.test.tsv").write_text("q\twhich\n")
    judged = ("a#0 1", "a#1 2", "a#2 1", "b#0 0", "b#7 1", "gone#0 1", "gone#1 1", "c#0 0")
    (tmp_path / "qrels.test.tsv").write_text("".join(f"q 0 {line}\n" for line in judged))
    collection = stages.collection({"source": "folder", "path": str(tmp_path), "drop": ["dangling"]})
    inputs = {"collection": collection, "run": make_run(stages, [[0, 1, 2]])}
    settings = {"split": "test", "collapse": "maxp", "separator": "#", "measures": ["R@1", "R@3", "Rprec", "nDCG@3"]}
    means = Artefact(stages.run(evaluate.run, "evaluate", settings, inputs).folder).facts["means"]
    ideal = 2 + 1 / np.log2(3) + 1 / 2
    expected = {"R@1": 1 / 3, "R@3": 2 / 3, "Rprec": 2 / 3, "nDCG@3": (2 + 1 / 2) / ideal}
    assert means == pytest.approx(expected)


@pytest.mark.parametrize(("mode", "rr", "run"), [("maxp", 0.5, ["b#1", "a", "c"]), ("firstp", 1.0, ["a", "c", "b#1"])])
def test_evaluate_scores_documents(stages, mode, rr, run):
    """Document a is relevant by its second passage; the run is b#1#7, a#1, a#0, c, b#1#0."""
    passages = [(doc_id, "", "") for doc_id in IDS]
    collection = make_collection(stages, passages, {"test": [("q", "")]}, {"test": [(0, 2, 1)]})
    inputs = {"collection": collection, "run": make_run(stages, [[4, 2, 0, 3, 1]])}
    settings = {"split": "test", "measures": ["RR@10", "R@10"], "collapse": mode, "separator": "#"}
    job = stages.run(evaluate.run, "evaluate", settings, inputs)
    assert Artefact(job.folder).facts["means"] == {"RR@10": rr, "R@10": 1}
    lines = gzip.decompress((job.folder / "test.run.gz").read_bytes()).decode().splitlines()
    assert [line.split()[2] for line in lines] == run


# Six documents of two passages. Lists of four: two documents, four, and a search that found no more.
SHORT, LONG, ENDED = [0, 1, 2, 3], [0, 2, 4, 6], [0, 1, -1, -1]


@pytest.mark.parametrize(
    ("lists", "changes", "warned"),
    [
        ([SHORT, LONG, ENDED, SHORT], {}, "1 of 3 queries"),  # the last query has no judgment
        ([SHORT, LONG, SHORT], {"collapse": "firstp"}, "2 of 3 queries"),
        ([LONG, LONG, ENDED], {}, ""),
        ([SHORT, LONG, SHORT], {"measures": ["R@2", "AP", "Cov@4"]}, ""),  # answers are searched in passages
        ([SHORT, LONG, SHORT], {"collapse": None}, ""),
        ([list(range(12))] * 3, {"measures": ["R@10"]}, ""),  # no passage is left to search for
    ],
)
def test_full_lists_that_collapse_to_fewer_documents_than_a_measure_counts_are_warned_of(
    stages, caplog, lists, changes, warned
):
    passages, queries = [(f"D{n // 2}#{n % 2}", "", "") for n in range(12)], [(f"q{n}", "") for n in range(4)]
    judged, answers = {"test": [(n, 2 * n, 1) for n in range(3)]}, {"test": {"q0": ["word"]}}
    collection = make_collection(stages, passages, {"test": queries}, judged, answers)
    settings = {"split": "test", "measures": ["RR@1", "R@3"], "collapse": "maxp", "separator": "#"} | changes
    stages.run(evaluate.run, "evaluate", settings, {"collection": collection, "run": make_run(stages, lists)})
    if warned:
        (line,) = caplog.messages
        assert line.startswith(warned) and "R@3" in line and "evaluation.depth" in line and " 4 passages" in line
    assert bool(caplog.messages) == bool(warned)
