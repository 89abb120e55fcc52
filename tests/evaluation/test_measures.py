"""Scores of rankings, against literal values, plain formulas, and official evaluations."""

import math
import re

import ir_measures
import numpy as np
import pytest

from collection_world import read_judgments
from teleport.evaluation import measures
from teleport.evaluation.measures import Judgments, score_run
from teleport.settings.measures import parse_measures

NAMES = ["RR", "RR@10", "nDCG@10", "P@1", "R@2", "AP", "Success@1"]


def score_queries(run, judgments, names):
    """`score_run` for literal runs: {name: {query: value}} of {query: [passages]} and {query: {passage: grade}}."""
    queries = sorted({*run, *judgments})
    passages = sorted({*(p for ranking in run.values() for p in ranking), *(p for g in judgments.values() for p in g)})
    query_row, passage_row = ({name: row for row, name in enumerate(names)} for names in (queries, passages))
    ids = np.full((len(run), max(map(len, run.values()), default=0)), -1, np.int32)
    for line, ranking in enumerate(run.values()):
        ids[line, : len(ranking)] = [passage_row[passage] for passage in ranking]
    judged = [(query_row[q], passage_row[p], grade) for q, grades in judgments.items() for p, grade in grades.items()]
    rows = np.array([query_row[query] for query in run], np.int32)
    found, scores = score_run(ids, rows, Judgments(*np.array(judged).T), names)
    return {
        name: {queries[row]: value for row, value in zip(found, values, strict=True)} for name, values in scores.items()
    }


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


UNKNOWN = ["Foo@10", "nDCG@", "", "nDCG@ten", "SDCG@10", "nDCG(foo=3)@10", "alpha_nDCG@10", "Accuracy", "Accuracy@5"]
UNKNOWN += ["P", "R", "Success", "P@5.5", "Rprec@5", "nDCG(rel=2)@10", "Judged(rel=2)@3"]


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_measures_are_refused_by_name(name):
    message = f"there is no measure {name!r} that ir-measures can compute here. Give its names, for example RR@10"
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_measures(["RR@10", name])


def test_names_are_kept_as_they_were_given():
    assert list(score_queries({"q": ["a"]}, {"q": {"a": 1}}, ["MRR@10", "nDCG@10"])) == ["MRR@10", "nDCG@10"]


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
    run = {"q1": ["a", "x", "b", "y", "z"], "q2": ["x", "y", "a", "v"]}
    judgments = {"q1": {"a": 1, "b": 0}, "q2": {"a": 1}}
    scores = score_queries(run, judgments, ["Hole@4", "Hole@1", "Judged@4", "RR@10"])
    assert scores["Hole@4"] == {"q1": 0.5, "q2": 0.75} and scores["Judged@4"] == {"q1": 0.5, "q2": 0.25}
    assert scores["Hole@1"] == {"q1": 0, "q2": 1}
    assert scores["RR@10"]["q1"] == 1


def test_the_mean_hole_rate_is_pooled_over_queries():
    """As in ANCE's evaluation: 3 unjudged of 5 first results, whatever query they are of; without results none."""
    run = {"q1": ["a", "x", "b", "y", "z"], "q2": ["x"], "empty": []}
    judgments = {"q1": {"a": 1, "b": 0}, "q2": {"a": 1}, "empty": {"a": 1}, "missing": {"a": 1}}
    values = score_queries(run, judgments, ["Hole@4"])["Hole@4"]
    assert np.mean(list(values.values())) == pytest.approx(3 / 5)
    assert values["empty"] == values["missing"] == 0
    nothing = score_queries({"q1": [], "unjudged": ["a"]}, {"q1": {"a": 1}}, ["Hole@4"])
    assert nothing["Hole@4"] == {"q1": 0}


def errors_by_loop(ranking, grades, k):
    """Top-K errors from the definition: of every positive, the irrelevant passages before it, up to K."""
    total = 0
    for positive in (passage for passage, grade in grades.items() if grade >= 1):
        before = ranking[: ranking.index(positive)] if positive in ranking else None
        wrong = k if before is None else sum(grades.get(passage, 0) < 1 for passage in before)
        total += min(wrong, k)
    return total


def test_top_errors_by_hand():
    run = {"q1": ["x", "a", "y", "b", "z"], "q2": ["y", "x"], "none": ["a"]}
    judgments = {"q1": {"a": 1, "b": 2, "x": 0}, "q2": {"c": 1}, "none": {"a": 0}, "missing": {"a": 1, "b": 1}}
    scores = score_queries(run, judgments, ["Errors@3", "Errors@1"])
    assert scores["Errors@3"] == {"q1": 1 + 2, "q2": 3, "none": 0, "missing": 6}
    assert scores["Errors@1"] == {"q1": 2, "q2": 1, "none": 0, "missing": 2}


@pytest.mark.parametrize("judged", [1, 6, 30])
def test_top_errors_equal_a_loop_over_every_positive(judged):
    rng, found = np.random.default_rng(judged), set()
    passages = [f"d{n}" for n in range(60)]
    run = {f"q{q}": [str(p) for p in rng.permutation(passages)[:40]] for q in range(20)}
    judgments = {
        query: {
            str(p): int(grade)
            for p, grade in zip(rng.permutation(passages)[:judged], rng.integers(0, 3, judged), strict=True)
        }
        for query in run
    }
    for k in (1, 5, 10):
        scores = score_queries(run, judgments, [f"Errors@{k}"])[f"Errors@{k}"]
        assert scores == {query: errors_by_loop(run[query], judgments[query], k) for query in run}
        found |= set(scores.values())
    assert len(found) > 3  # not all the same, at 0 or at K


@pytest.mark.parametrize("name", ["Hole", "Hole@0", "Hole@-1", "hole@10", "Hole@ten", "Errors", "Errors@0"])
def test_other_names_of_ours_are_refused(name):
    with pytest.raises(ValueError, match="no measure"):
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


ALL = [
    *("RR", "RR@10", "RR(rel=2)@3", "RR(rel=2)", "MRR@100", "nDCG", "nDCG@10", "nDCG@1000", "R@1", "R@20", "R@1000"),
    *("R(rel=2)@20", "P@1", "P@10", "P(rel=3)@5", "P@1000", "AP", "AP@10", "AP(rel=2)", "AP(rel=2)@100", "Rprec"),
    *("Rprec(rel=2)", "Success@1", "Success@10", "Success(rel=2)@5", "Judged@10", "Judged@100", "Judged"),
    *("Bpref", "SetP", "P(judged_only=True)@5", "nDCG(gains={1:0,2:3,3:7})@10", "IPrec@0.2", "NumRet"),
]


def random_run(seed, judged):
    """Lists of different lengths of 60 passages for 40 queries, and `judged` grades from 0 to 3 of each."""
    rng = np.random.default_rng(seed)
    run = {f"q{q:02}": [f"d{p}" for p in rng.permutation(60)[: rng.integers(1, 50)]] for q in range(40)}
    judgments = {
        query: {
            f"d{p}": int(grade)
            for p, grade in zip(rng.permutation(60)[:judged], rng.integers(0, 4, judged), strict=True)
        }
        for query in run
    }
    return run, judgments


@pytest.mark.parametrize("judged", [1, 4, 40])
def test_every_measure_equals_ir_measures_over_whole_lists(judged):
    for seed in range(3):
        run, judgments = random_run(seed, judged)
        scores = score_queries(run, judgments, ALL)
        ranked = {query: {p: float(-place) for place, p in enumerate(ranking)} for query, ranking in run.items()}
        for name in ALL:  # one at a time: in one call, ir-measures computes nDCG under the grade of another measure
            measure = ir_measures.parse_measure(name)
            expected = dict.fromkeys(judgments, 0.0)
            expected |= {m.query_id: m.value for m in ir_measures.iter_calc([measure], judgments, ranked)}
            assert scores[name] == pytest.approx(expected, abs=1e-12, rel=0), name


def test_negative_grades_are_judged_and_gain_nothing():
    """TREC Web judges spam with -2."""
    run, judgments = {"q": ["spam", "good", "other"]}, {"q": {"spam": -2, "good": 1}}
    scores = score_queries(run, judgments, ["nDCG@3", "Judged@3", "Hole@3", "P@1"])
    assert scores["nDCG@3"]["q"] == pytest.approx(1 / math.log2(3))
    assert scores["Judged@3"]["q"] == pytest.approx(2 / 3) and scores["Hole@3"]["q"] == pytest.approx(1 / 3)
    assert scores["P@1"]["q"] == 0


def test_queries_in_blocks_score_the_same(monkeypatch):
    run, judgments = random_run(3, 40)
    names = [*ALL, "Hole@10", "Errors@10"]
    whole = score_queries(run, judgments, names)
    monkeypatch.setattr(measures, "BLOCK_QUERIES", 7)
    assert len(run) > 3 * 7 and score_queries(run, judgments, names) == whole


@pytest.mark.parametrize("grade", [-1, -2])
def test_a_query_with_grades_below_zero_alone_scores_zero(monkeypatch, grade):
    """pytrec_eval ends the process if all judgments of a query are -2, TREC Web's grade of spam, and reads memory that
    is not its own if all are -1: nDCG then may never end."""
    calls, calculate = [], ir_measures.iter_calc
    monkeypatch.setattr(ir_measures, "iter_calc", lambda *given: calls.append(given) or calculate(*given))
    names = ["Bpref", "nDCG@10", "R@5", "RR@10"]
    scores = score_queries({"q": ["a", "b"]}, {"q": {"a": grade, "b": grade}}, names)
    assert scores == {name: {"q": 0.0} for name in names}
    assert len(calls) == 4 and all(max(grades["0"].values()) == 0 for _, grades, _ in calls)
