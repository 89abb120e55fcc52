"""Filters of probable false negatives, against loops over candidates."""

import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from teleport.negatives import merge
from teleport.negatives.filters import above_positive, absolute_margin, nearer_to_positive, percentage, relative_margin
from teleport.negatives.scores import positive_scores
from teleport.search import pairs
from teleport.settings.section import Part

DROPS = {
    "relative_margin": lambda score, best, margin: score > best - abs(best) * margin,
    "absolute_margin": lambda score, best, margin: score > best - margin,
    "above_positive": lambda score, best, on: on and score > best,
}
CHOOSE = {"lowest": min, "mean": lambda scores: sum(scores) / len(scores), "first": lambda scores: scores[0]}


class Scored:
    """12 queries and 60 passages with vectors of small integers, so that every sum is exact. The positives of query q
    are q % 3 passages (one query in three has none); the lists of all sources have passages of either sign of score."""

    def __init__(self, world, shift):
        rng = np.random.default_rng(7)
        self.world, self.queries = world, rng.integers(-3, 4, (12, 8))
        self.all_passages = rng.integers(-3, 4, (60, 8)) + shift * self.queries.mean(axis=0).round().astype(int)
        self.given = [rng.choice(60, (1, 4, 0)[q % 3], replace=False).tolist() for q in range(12)]
        judgments = [(q, p, 1) for q, given in enumerate(self.given) for p in given]
        self.collection = world.collection([f"q{q}" for q in range(12)], judgments, num_passages=60)
        self.vectors = world.vectors(queries=self.queries, passages=self.all_passages)
        lists = {name: np.array([rng.permutation(60)[:30] for _ in range(12)]) for name in ("query", "lookahead")}
        scores = np.take_along_axis(self.queries @ self.all_passages.T, lists["query"], axis=1)
        self.lists = {"query": world.retrieval(lists["query"], scores=scores)}
        self.lists["lookahead"] = world.retrieval(lists["lookahead"])
        last = world.merge(self.collection, {"query": 30}, self.lists | {"query": world.retrieval(lists["lookahead"])})
        self.lists["momentum"] = last

    def merge(self, counts=None, **settings):
        counts = counts or {"query": 99, "lookahead": 99, "momentum": 99, "random": 99}
        inputs = {"vectors": self.vectors}
        return self.world.merge(self.collection, counts, self.lists, inputs, episode=2, filters=settings)

    def dropped(self, query, passage, rule="lowest", **filters):
        """The filters that drop a passage."""
        score = int(self.queries[query] @ self.all_passages[passage])
        scores = [int(self.queries[query] @ self.all_passages[p]) for p in self.given[query]]
        return [n for n, value in filters.items() if scores and DROPS[n](score, CHOOSE[rule](scores), value)]


@pytest.fixture
def scored(world):
    return Scored(world, 0)


@pytest.mark.ci(5)
@pytest.mark.parametrize("rule", ["lowest", "mean", "first"])
@pytest.mark.parametrize(
    "on",
    [
        {"relative_margin": 0.5},
        {"relative_margin": 0.0},
        {"absolute_margin": 3.0},
        {"above_positive": True},
        {"relative_margin": 0.25, "absolute_margin": 4.0, "above_positive": True},
    ],
)
def test_filters_equal_loops_over_all_sources(scored, monkeypatch, on, rule):
    monkeypatch.setattr(merge, "BLOCK_SLOTS", 300)  # several blocks
    monkeypatch.setattr(pairs, "PAIRS", 37)  # whose vectors are gathered in several pieces
    plain, filtered = scored.merge(), scored.merge(**on, positive_score=rule)
    expected = [
        [item for item in pool if not scored.dropped(q, item[0], rule, **on)] for q, pool in enumerate(plain.pools)
    ]
    without_scores = [[item[:4] for item in pool] for pool in filtered.pools]  # NaN of random ones equals nothing
    assert without_scores == [[item[:4] for item in pool] for pool in expected]
    reasons = [[scored.dropped(q, item[0], rule, **on) for item in pool] for q, pool in enumerate(plain.pools)]
    dropped = [sum(map(bool, row)) for row in reasons]
    facts = filtered.merge_facts["filters"]
    assert 100 < sum(dropped) < sum(map(len, plain.pools)) - 100, "not vacuous"
    for name in on:
        drops = sum(name in reason for row in reasons for reason in row)
        assert sum(facts["dropped"][source][name] for source in facts["dropped"]) == drops > 0
    points = dict(zip(("min", "p25", "median", "p75", "p90", "max"), (0, 25, 50, 75, 90, 100), strict=True))
    assert facts["dropped_per_query"] == {name: np.percentile(dropped, point) for name, point in points.items()}


def test_candidates_nearer_to_the_positive_than_to_the_query_are_left_out_of_all_sources(scored, monkeypatch):
    """Of several positives the first one counts; a query without one keeps all. Beside a filter by s+."""
    monkeypatch.setattr(merge, "BLOCK_SLOTS", 300)
    plain, filtered = scored.merge(), scored.merge(nearer_to_positive=True, absolute_margin=3.0)
    vectors, given, drops = scored.all_passages.astype(np.float64), scored.given, []
    for q, pool in enumerate(plain.pools):
        for passage, source, *_ in pool:
            nearer = given[q] and vectors[given[q][0]] @ vectors[passage] >= scored.queries[q] @ vectors[passage]
            drops.append((q, passage, source, bool(nearer), bool(scored.dropped(q, passage, absolute_margin=3.0))))
    assert filtered.passages == [[p for row, p, _, *either in drops if row == q and not any(either)] for q in range(12)]
    counted = filtered.merge_facts["filters"]["dropped"]
    for place, name in ((3, "nearer_to_positive"), (4, "absolute_margin")):
        assert sum(of[name] for of in counted.values()) == sum(drop[place] for drop in drops)
    for source in ("query", "lookahead", "random"):
        nearer = [drop[3] for drop in drops if drop[2] == source]
        assert 10 < counted[source]["nearer_to_positive"] == sum(nearer) < len(nearer) - 10, "not vacuous"
    alone = scored.merge(nearer_to_positive=True)
    assert "scores.miner" in alone.inputs and alone.raw_settings["positive_score"] is None


def test_scores_of_both_signs_are_filtered(scored):
    """Where the positive scores below 0, s+ * (1 - margin) would lie above it and keep what scores as high."""
    pairs = [(q, p) for q, given in enumerate(scored.given) for p in given]
    best = [int(scored.queries[q] @ scored.all_passages[p]) for q, p in pairs]
    assert min(best) < 0 < max(best)
    query = next(q for q, p in pairs if len(scored.given[q]) == 1 and scored.queries[q] @ scored.all_passages[p] < 0)
    kept = scored.merge(relative_margin=0.5).passages[query]
    score = int(scored.queries[query] @ scored.all_passages[scored.given[query][0]])
    assert kept and all(scored.queries[query] @ scored.all_passages[p] <= score * 1.5 for p in kept)


def test_each_rule_is_a_sentence_of_arithmetic():
    scores, positive = np.array([9, 8, 7, -1], np.float32), np.array([10, 10, 7, -1], np.float32)
    assert relative_margin.drops_scores(scores, positive, 0.2).tolist() == [True, False, True, True]
    assert relative_margin.drops_scores(scores, positive, 0.1).tolist() == [False, False, True, True]
    assert relative_margin.drops_scores(np.float32([-1, -2, -3]), np.float32([-2, -2, -2]), 0.25).tolist() == [
        True,
        True,
        False,
    ]
    assert absolute_margin.drops_scores(scores, positive, 1.5).tolist() == [True, False, True, True]
    assert above_positive.drops_scores(np.float32([1, 2]), np.float32([1, 1]), True).tolist() == [False, True]
    anchors = np.array([9.5, 8, 6, np.nan], np.float32)
    assert nearer_to_positive.drops_anchors(scores, anchors, True).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("rule", "setting"),
    [
        (relative_margin, 0.05),
        (relative_margin, 1.0),
        (absolute_margin, 0.3),
        (above_positive, True),
        (percentage, 0.9),
    ],
)
def test_a_candidate_passes_beside_the_lowest_positive_if_it_does_beside_each(rule, setting):
    rng = np.random.default_rng(0)
    scores_QS, positives_QN = rng.normal(size=(200, 9)), rng.normal(size=(200, 3))
    beside = [rule.drops_scores(scores_QS, positives_QN[:, [n]], setting) for n in range(3)]
    lowest = rule.drops_scores(scores_QS, positives_QN.min(axis=1, keepdims=True), setting)
    np.testing.assert_array_equal(lowest, np.any(beside, axis=0))
    assert (lowest != beside[0]).sum() > 100, "not vacuous"


def test_the_score_of_several_positives_is_the_lowest_the_mean_or_that_of_the_first():
    """Of those that have one."""
    scores, rows = np.array([np.nan, 3, 1, 5, -2, np.nan], np.float32), np.array([0, 0, 0, 0, 2, 3])
    found = {rule: positive_scores(rows, scores, 4, rule).tolist() for rule in ("lowest", "mean", "first")}
    assert [row[0] for row in found.values()] == [1, 3, 3] and all(np.isnan(row[1::2]).all() for row in found.values())
    assert [row[2] for row in found.values()] == [-2, -2, -2]
    assert positive_scores(rows[:0], scores[:0], 2, "mean").shape == (2,)


def test_queries_that_a_filter_leaves_short_are_counted_apart_from_short_lists(world):
    """Scores are the numbers of the passages; the positive is number 3. Query a loses two of three, c had one only."""
    collection = world.collection(["a", "b", "c"], [(0, 3, 1), (1, 3, 1), (2, 3, 1)], num_passages=6)
    ids = [[4, 3, 5, 0], [0, 1, 2, 3], [0, -1, -1, -1]]
    lists = {"query": world.retrieval(ids, scores=ids)}
    encoded = world.vectors(queries=[[1.0]] * 3, passages=[[float(n)] for n in range(6)])
    job = world.merge(collection, {"query": 2}, lists, {"vectors": encoded}, filters={"above_positive": True})
    assert [len(pool) for pool in job.pools] == [1, 2, 1] and job.passages[0] == [0]
    assert job.merge_facts["short_queries"] == {"query": 2}
    assert job.merge_facts["filters"] == {
        "dropped": {"query": {"above_positive": 2}},
        "dropped_per_query": {"min": 0, "p25": 0, "median": 0, "p75": 1, "p90": 1.6, "max": 2},
        "left_short": {"query": 1},
    }


def test_vectors_are_not_read_when_no_filter_asks_for_scores(scored):
    scored.vectors = None
    job = scored.merge(skip_ranks=3)
    assert "filters" not in job.merge_facts and job.raw_settings["positive_score"] is None
    capped = scored.merge({"query": 99}, max_score=5.0)
    assert max(item[4] for pool in capped.pools for item in pool) == 5, "the retrieval has the scores"


def test_a_passage_in_chunks_has_the_score_of_its_best_one(scored):
    """The same vectors, as the best of chunks that all score lower, and as that of many."""
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 5, 60)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    chunks = rng.integers(-3, 4, (offsets[-1], 8))
    scored.vectors = scored.world.vectors(queries=scored.queries, passages=chunks, offsets=offsets)
    scores = [[max((chunks[offsets[p] : offsets[p + 1]] @ q).tolist()) for p in range(60)] for q in scored.queries]
    ids = np.array([ids for _, ids, _ in scored.lists["query"].lists])
    scored.lists["query"] = scored.world.retrieval(ids, scores=np.take_along_axis(np.array(scores), ids, axis=1))
    found = scored.merge(absolute_margin=3.0)
    kept = [
        [item[0] for item in pool if not given or scores[q][item[0]] <= min(scores[q][p] for p in given) - 3]
        for q, (pool, given) in enumerate(zip(scored.merge().pools, scored.given, strict=True))
    ]
    assert found.passages == kept and found.merge_facts["negatives"] < scored.merge().merge_facts["negatives"] - 100


def test_no_pairs_have_no_scores():
    offsets = np.array([0, 2, 3])
    nothing = pairs.PairScorer(np.ones((1, 2)), np.ones((3, 2)), offsets).score(np.array([], int), np.array([], int))
    assert nothing.shape == (0,) and nothing.dtype == np.float32


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_part_of_the_queries_is_filtered_as_the_whole(scored, number):
    """Only its queries are scored."""
    settings = {"episode": 2, "filters": {"relative_margin": 0.5}}
    counts, inputs = {"query": 99, "lookahead": 99}, {"vectors": scored.vectors}
    whole, part = (
        scored.world.merge(scored.collection, counts, scored.lists, inputs, part=part, **settings)
        for part in (None, Part(number=number, of=3))
    )
    rows = range(4 * number, 4 * number + 4)
    assert part.passages == [pool if q in rows else [] for q, pool in enumerate(whole.passages)]
    filters = part.merge_facts["filters"]
    assert sum(of["relative_margin"] for of in filters["dropped"].values()) > 10, "not vacuous"
    plain = scored.world.merge(scored.collection, counts, scored.lists, episode=2)
    dropped = [len(plain.passages[q]) - len(part.passages[q]) for q in rows]
    assert filters["dropped_per_query"]["median"] == np.median(dropped), "the other parts' queries do not count"


class Dataset(dict):
    """What sentence-transformers asks of `datasets.Dataset`."""

    from_dict = classmethod(lambda cls, columns: cls(columns))
    column_names = property(list)

    def to_pandas(self):
        return pd.DataFrame(dict(self))

    def __len__(self):
        return len(next(iter(self.values())))


class Encoder(torch.nn.Module):
    """A model whose vectors are given. vectors: {text: float32 [dim]}"""

    similarity_fn_name, device, prompts = "cosine", torch.device("cpu"), {}

    def __init__(self, vectors):
        super().__init__()
        self.vectors = vectors

    def encode(self, texts, **_):
        return np.stack([self.vectors[text] for text in texts])

    encode_query = encode_document = encode

    def similarity(self, one, other):
        return torch.as_tensor(one) @ torch.as_tensor(other).T

    def similarity_pairwise(self, one, other):
        return (torch.as_tensor(one) * torch.as_tensor(other)).sum(-1)


def test_top_with_a_margin_or_a_percentage_chooses_what_sentence_transformers_mines(world, monkeypatch):
    """TopK-PercPos in both of its forms, from the same vectors; every third query has two positives. Beside `datasets`,
    which need not be installed."""
    from sentence_transformers.util import hard_negatives

    rng, queries, passages = np.random.default_rng(0), 40, 200
    vectors_Q = rng.normal(size=(queries, 8))
    vectors_P = np.vstack([vectors_Q + 0.8 * rng.normal(size=(queries, 8)), rng.normal(size=(passages - queries, 8))])
    vectors_P[100:140:3] = vectors_Q[::3] + rng.normal(size=(14, 8))
    vectors_Q, vectors_P = (np.float32(each / np.linalg.norm(each, axis=1)[:, None]) for each in (vectors_Q, vectors_P))
    pairs = sorted([(q, q) for q in range(queries)] + [(q, 100 + q) for q in range(0, queries, 3)])

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(Dataset=Dataset))
    monkeypatch.setattr(hard_negatives, "is_datasets_available", lambda: True)
    names = [[f"{kind}{n:03d}" for n in range(number)] for kind, number in (("q", queries), ("p", passages))]
    columns = {"query": [names[0][q] for q, _ in pairs], "passage": [names[1][p] for _, p in pairs]}
    settings = {"relative_margin": 0.05, "sampling_strategy": "top", "num_negatives": 5, "range_max": passages - 2}
    model = Encoder(dict(zip(sum(names, []), [*vectors_Q, *vectors_P], strict=True)))
    mined = hard_negatives.mine_hard_negatives(
        Dataset(columns), model, corpus=names[1], output_format="n-tuple", verbose=False, **settings
    )
    theirs = {}
    for row, query in enumerate(mined["query"]):
        theirs[query] = sorted(int(mined[f"negative_{n}"][row][1:]) for n in range(1, 6))
    assert len(theirs) == queries

    scores = vectors_Q.astype(np.float64) @ vectors_P.T
    ids = np.argsort(-scores, axis=1, kind="stable")
    lists = {"query": world.retrieval(ids, scores=np.take_along_axis(scores, ids, axis=1))}
    collection = world.collection(names[0], [(*pair, 1) for pair in pairs], num_passages=passages)
    encoded = {"vectors": world.vectors(queries=vectors_Q, passages=vectors_P)}
    assert min(scores[pair] for pair in pairs) > 0, "else a percentage is no margin"
    ours, share, unfiltered, *others = (
        world.merge(collection, {"query": 5}, lists, encoded, draw="top", filters=filters)
        for filters in (
            {"relative_margin": 0.05},
            {"percentage": 0.95},
            {},
            {"relative_margin": 0.05, "positive_score": "first"},
            {"percentage": 0.95, "positive_score": "first"},
            {"percentage": 0.8},
        )
    )
    assert dict(zip(names[0], map(sorted, ours.passages), strict=True)) == theirs
    assert share.passages == ours.passages
    changed = [sum(a != b for a, b in zip(ours.passages, o.passages, strict=True)) for o in (unfiltered, *others)]
    assert min(changed) > 3, "the filter drops some of the highest, and its share and the second positives count"
