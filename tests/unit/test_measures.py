"""Scores of rankings, against literal values, plain formulas, and official evaluations."""

import math
import re

import numpy as np
import pytest

from teleport.evaluation.measures import parse_measures, refuse_repeated_ids, score_queries

NAMES = ["RR", "RR@10", "nDCG@10", "P@1", "R@2", "AP", "Success@1"]


def test_literal_scores():
    run = {"q1": ["x", "a", "y", "b"], "q2": ["c"]}
    judgments = {"q1": {"a": 1, "b": 2, "x": 0}, "q2": {"c": 3}}
    scores = score_queries(run, judgments, [*NAMES, "R(rel=2)@4"])
    dcg, ideal = 1 / math.log2(3) + 2 / math.log2(5), 2 / math.log2(2) + 1 / math.log2(3)
    expected = {"RR": 0.5, "RR@10": 0.5, "nDCG@10": dcg / ideal, "P@1": 0, "R@2": 0.5, "AP": 0.5, "Success@1": 0}
    assert {name: scores[name]["q1"] for name in NAMES} == pytest.approx(expected)
    assert scores["R(rel=2)@4"]["q1"] == 1
    assert {scores[name]["q2"] for name in NAMES} == {1.0}


def test_judged_queries_without_results_count_zero_and_unjudged_ones_not_at_all():
    run = {"empty": [], "unjudged": ["a"], "found": ["a"]}
    judgments = {"empty": {"a": 1}, "missing": {"a": 1}, "found": {"a": 1}, "none": {"a": 0}}
    for values in score_queries(run, judgments, NAMES).values():
        assert values == {"empty": 0.0, "missing": 0.0, "found": 1.0, "none": 0.0}


@pytest.mark.parametrize("relevant", ["a", "b", "c"])
def test_all_measures_see_the_same_ranking_whatever_the_ids(relevant):
    """With tied scores, ir-measures would put the relevant passage elsewhere for RR@10 than for RR and nDCG@10."""
    others = sorted({"a", "b", "c"} - {relevant})
    for place in range(3):
        ranking = [*others[:place], relevant, *others[place:]]
        scores = score_queries({"q": ranking}, {"q": {relevant: 1}}, ["RR", "RR@10", "nDCG@10"])
        assert scores["RR"]["q"] == scores["RR@10"]["q"] == pytest.approx(1 / (place + 1))
        assert scores["nDCG@10"]["q"] == pytest.approx(1 / math.log2(place + 2))


def test_random_runs_against_plain_formulas():
    rng = np.random.default_rng(5)
    run = {str(q): [str(p) for p in rng.permutation(60)[:40]] for q in range(30)}
    judgments = {
        str(q): dict(zip(map(str, rng.permutation(60)[:12].tolist()), rng.integers(0, 4, 12).tolist(), strict=True))
        for q in range(30)
    }
    scores = score_queries(run, judgments, ["RR@10", "R@20", "nDCG@10"])
    for query, ranking in run.items():
        grades = [judgments[query].get(passage, 0) for passage in ranking]
        first = next((rank for rank, grade in enumerate(grades[:10], 1) if grade), None)
        assert scores["RR@10"][query] == pytest.approx(1 / first if first else 0)
        relevant = sum(grade > 0 for grade in judgments[query].values())
        assert scores["R@20"][query] == pytest.approx(sum(grade > 0 for grade in grades[:20]) / relevant)
        best = sorted(judgments[query].values(), reverse=True)
        dcg, ideal = (sum(g / math.log2(i + 2) for i, g in enumerate(gs[:10])) for gs in (grades, best))
        assert scores["nDCG@10"][query] == pytest.approx(dcg / ideal)


@pytest.mark.parametrize("name", ["Foo@10", "nDCG@", "", "nDCG@ten", "SDCG@10", "nDCG(foo=3)@10", "alpha_nDCG@10"])
def test_unknown_measures_are_refused_by_name(name):
    message = (
        f"evaluation.measures has {name!r}, which ir-measures cannot compute here. Give its names, for example RR@10"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_measures(["RR@10", name])


def test_names_are_kept_as_they_were_given():
    assert list(score_queries({"q": ["a"]}, {"q": {"a": 1}}, ["MRR@10", "nDCG@10"])) == ["MRR@10", "nDCG@10"]


def test_a_passage_twice_in_a_list_is_refused_but_not_empty_slots():
    refuse_repeated_ids(np.array([[3, 1, -1, -1], [1, 3, 0, 2]]))
    with pytest.raises(ValueError, match=r"line 1 of the run has passage 7 more than once"):
        refuse_repeated_ids(np.array([[3, 1, -1, -1], [7, 3, 7, 2]]))


def read_judgments(path):
    judgments = {}
    for query, _, passage, grade in map(str.split, path.read_text().splitlines()):
        judgments.setdefault(query, {})[passage] = int(grade)
    return judgments


@pytest.mark.parametrize(("system", "expected"), [("BM25", 0.5058), ("D_BERT_KD_TASB", 0.7210)])
def test_published_scores_of_official_runs(shared, system, expected):
    judgments = read_judgments(shared / "judgments/trec-dl/qrels.dl19-passage.txt")
    run = {}
    for line in (shared / f"judgments/runs/{system}.dl19.top100.txt").read_text().splitlines():
        query, _, passage, rank, *_ = line.split()
        run.setdefault(query, []).append((int(rank), passage))
    run = {query: [passage for _, passage in sorted(ranked)] for query, ranked in run.items()}
    values = score_queries(run, judgments, ["nDCG@10"])["nDCG@10"].values()
    assert len(values) == 43
    assert round(sum(values) / 43, 4) == expected


def test_trec_eval_s_own_test_files(shared):
    folder = shared / "judgments/trec_eval"
    run = {}
    for line in (folder / "results.test").read_text().splitlines():
        query, _, passage, _, score, _ = line.split()
        run.setdefault(query, []).append((float(score), passage))
    run = {query: [passage for _, passage in sorted(ranked, reverse=True)] for query, ranked in run.items()}
    official = {"AP": "map", "RR": "recip_rank", "P@10": "P_10", "P@100": "P_100", "Rprec": "Rprec", "Bpref": "bpref"}
    expected = {name: {} for name in official}
    for line in (folder / "out.test.aq").read_text().splitlines():
        measure, query, value = line.split()
        for name, theirs in official.items():
            if measure == theirs and query != "all":
                expected[name][query] = float(value)
    scores = score_queries(run, read_judgments(folder / "qrels.test"), list(official))
    assert {name: {q: round(v, 4) for q, v in values.items()} for name, values in scores.items()} == expected


def test_the_hole_rate_is_one_minus_judged():
    run = {"q1": ["a", "x", "b", "y", "z"], "q2": ["x"], "empty": []}
    judgments = {"q1": {"a": 1, "b": 0}, "q2": {"a": 1}, "empty": {"a": 1}, "missing": {"a": 1}}
    scores = score_queries(run, judgments, ["Hole@4", "Hole@1", "RR@10"])
    assert scores["Hole@4"] == {"q1": 0.5, "q2": 1, "empty": 0, "missing": 0}
    assert scores["Hole@1"] == {"q1": 0, "q2": 1, "empty": 0, "missing": 0}
    theirs = score_queries({q: run[q] for q in ("q1", "q2")}, {q: judgments[q] for q in ("q1", "q2")}, ["Judged@4"])
    assert theirs["Judged@4"] == {"q1": 0.5, "q2": 0}
    assert scores["RR@10"]["q1"] == 1


@pytest.mark.parametrize("name", ["Hole", "Hole@0", "Hole@-1", "hole@10", "Hole@ten"])
def test_other_hole_names_are_refused(name):
    with pytest.raises(ValueError, match="evaluation.measures has"):
        parse_measures([name])


def test_grade_two_by_hand():
    """RR and recall at grade 2 or more, as TREC DL's passages are judged; nDCG keeps grade 1."""
    run, judgments = {"q": ["one", "none", "three", "x"]}, {"q": {"one": 1, "none": 0, "two": 2, "three": 3}}
    scores = score_queries(run, judgments, ["RR(rel=2)@10", "R(rel=2)@1000", "RR@10", "R@1000", "nDCG@10"])
    assert scores["RR(rel=2)@10"]["q"] == pytest.approx(1 / 3)
    assert scores["R(rel=2)@1000"]["q"] == 0.5
    assert scores["RR@10"]["q"] == 1
    assert scores["R@1000"]["q"] == pytest.approx(2 / 3)
    ideal = 3 + 2 / math.log2(3) + 1 / 2
    assert scores["nDCG@10"]["q"] == pytest.approx((1 + 3 / 2) / ideal)
