"""Each draw against a literal example, an independent implementation, and the closed form of its chances."""

import json
from collections import Counter
from itertools import combinations, permutations

import numpy as np
import pytest

from commands.audit import audit
from commands.export import export
from teleport.negatives import merge, retrieved
from teleport.negatives.draw import Candidates, draw_slots, hash_ids, slots_by_weight
from teleport.negatives.draws import around, rank_decay, stratified, top, triangle, uniform
from teleport.refusal import Refusal
from teleport.running.artefact import Artefact
from teleport.settings.negatives import Negatives
from teleport.settings.registry import DRAWS

NAN = float("nan")


def candidates(scores, positive=(), available=None, seed=3, **others):
    """`Candidates` of the queries q0, q1, ... with these scores [Q, S] and scores of their positives."""
    scores_QS = np.array(scores, np.float32)
    available_QS = ~np.isnan(scores_QS) if available is None else np.array(available, bool)
    others = {name: np.array(value) for name, value in others.items()}
    names = [f"q{row}" for row in range(len(scores_QS))]
    positive_Q = np.array(positive, np.float32) if len(positive) else None
    return Candidates(available_QS, hash_ids(names), seed, scores_QS=scores_QS, positive_scores_Q=positive_Q, **others)


def drawn(choose, given, count, **settings):
    """The slots that are drawn of each query (list of lists)."""
    slots_QN, filled_QN = draw_slots(lambda c, n: choose(c, n, **settings), given, count)
    return [row[ok].tolist() for row, ok in zip(slots_QN, filled_QN, strict=True)]


def repeated(number, **given):
    """As `candidates`, of `number` queries that differ only in their ids."""
    return candidates(**{name: np.tile(value, (number, *[1] * (np.ndim(value) - 1))) if np.ndim(value) > 1
                         else np.tile(value, number) for name, value in given.items()})  # fmt: skip


def chances(weights, count):
    """{sorted tuple of slots: chance} of drawing `count` one after another, each by its weight among those left."""
    found = Counter()
    for order in permutations(np.flatnonzero(weights), count):
        chance, left = 1.0, sum(weights)
        for slot in order:
            chance, left = chance * weights[slot] / left, left - weights[slot]
        found[tuple(sorted(map(int, order)))] += chance
    return found


def assert_as_often(sets, expected):
    """Chi-square of the sets of slots that were drawn against their chances; .999 of its distribution (Wilson and
    Hilferty)."""
    counts, number = Counter(map(tuple, sets)), len(sets)
    assert set(counts) <= set(expected)
    statistic = sum((counts[slots] - number * chance) ** 2 / (number * chance) for slots, chance in expected.items())
    degrees = len(expected) - 1
    assert statistic < degrees * (1 - 2 / (9 * degrees) + 3.09 * np.sqrt(2 / (9 * degrees))) ** 3, (counts, expected)


# --- weights ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "count"), [([1, 2, 3, 4], 1), ([1, 2, 3, 4], 2), ([5, 1, 1, 8, 0.5], 3), ([0, 3, 1, 0, 1], 2)]
)
def test_slots_are_drawn_by_their_weights_without_replacement(weights, count):
    given = repeated(20_000, scores=[np.zeros(len(weights))])
    with np.errstate(divide="ignore"):
        logs_QS = np.tile(np.log(np.array(weights, float)), (20_000, 1))
    sets = drawn(lambda c, n: slots_by_weight(c, logs_QS, n), given, count)
    assert_as_often(sets, chances(weights, count))


def test_a_slot_of_weight_0_is_never_drawn_and_a_list_may_fall_short():
    given = candidates([[1, 1, 1], [1, 1, 1]])
    logs_QS = np.array([[0, -np.inf, 5], [-np.inf] * 3])
    assert drawn(lambda c, n: slots_by_weight(c, logs_QS, n), given, 3) == [[0, 2], []]


def test_tiny_weights_are_drawn_as_their_ratios_say():
    """exp(-2000) is 0 as a float; which of two such weights is the larger still decides."""
    logs_QS = np.tile([-2000.0, -2000.0 - np.log(3)], (20_000, 1))
    sets = drawn(lambda c, n: slots_by_weight(c, logs_QS, n), repeated(20_000, scores=[[0.0, 0.0]]), 1)
    assert_as_often(sets, {(0,): 0.75, (1,): 0.25})


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_weight_that_is_no_number_is_refused(wrong):
    given = candidates([[1, 1], [1, NAN]])
    with pytest.raises(ValueError, match="negatives.draw: .*row 0 .*slot 1 "):
        slots_by_weight(given, np.array([[0, wrong], [0, 0]]), 1)
    assert slots_by_weight(given, np.array([[0, 0], [0, wrong]]), 2)[1].tolist() == [0, 2], "it is no candidate"


CHOICES = {
    "uniform": (uniform.choose, {}),
    "top": (top.choose, {}),
    "around": (around.choose, {"a": 0.5, "b": 0.0}),
    "triangle": (triangle.choose, {"among": 12}),
    "stratified": (stratified.choose, {"strata": 4}),
    "stratified by range": (stratified.choose, {"strata": 4, "by_range": True}),
    "rank-decay": (rank_decay.choose, {"power": 1.0}),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_draw_does_not_depend_on_row_and_neighbours(name):
    """And it never draws a slot that is not available, or one twice; where there are fewer, it draws them all."""
    choose, settings = CHOICES[name]
    rng, shape = np.random.default_rng(1), (40, 25)
    given = candidates(
        rng.normal(size=shape), rng.normal(size=40), rng.random(shape) < 0.7,
        ranks_QS=np.tile(np.arange(1, 26), (40, 1)), anchor_scores_QS=rng.normal(size=shape).astype(np.float32) + 9,
    )  # fmt: skip
    whole, order = drawn(choose, given, 6, **settings), rng.permutation(40)
    fields = (value[order] if isinstance(value, np.ndarray) else value for value in given)
    assert drawn(choose, Candidates(*fields), 6, **settings) == [whole[row] for row in order]
    assert all(len(set(row)) == 6 and given.available_QS[q, row].all() for q, row in enumerate(whole))
    for count in (25, 99):
        every = drawn(choose, given, count, **settings | ({"among": 25} if name == "triangle" else {}))
        assert every == [np.flatnonzero(row).tolist() for row in given.available_QS]
    if name != "top":
        assert whole != drawn(choose, given._replace(seed=4), 6, **settings)
    nothing = candidates(np.zeros((3, 0)), [1, 1, 1], ranks_QS=np.zeros((3, 0)), anchor_scores_QS=np.zeros((3, 0)))
    assert drawn(choose, nothing, 6, **settings) == [[], [], []]


# --- each draw --------------------------------------------------------------------------------------------------------


def test_top_is_a_sort():
    assert drawn(top.choose, candidates([[1, 5, NAN, 5, 2], [NAN, NAN, 3, -1, 0]]), 2) == [[1, 3], [2, 4]]
    rng = np.random.default_rng(0)
    scores = rng.integers(-5, 6, (50, 30)).astype(np.float32)  # many are equal: the first slot comes first
    given = candidates(scores, available=rng.random(scores.shape) < 0.6)
    for row, slots in enumerate(drawn(top.choose, given, 7)):
        there = [slot for slot in range(30) if given.available_QS[row, slot]]
        assert slots == sorted(sorted(there, key=lambda slot: (-scores[row, slot], slot))[:7])


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.0), (4.0, 0.5), (0.0, 0.0)])
def test_around_has_the_weights_of_simans(a, b):
    scores, positive = [1.0, 2.0, 2.5, 0.0, 4.0], 2.0
    weights = [np.exp(-a * (score - positive - b) ** 2) for score in scores]
    given = repeated(20_000, scores=[scores], positive=[positive])
    assert_as_often(drawn(around.choose, given, 2, a=a, b=b), chances(weights, 2))


def test_around_a_positive_far_away_is_the_nearest_score():
    """The weights are all 0 as floats."""
    given = candidates([[1.0, 3.0, 2.0]], [1000.0])
    assert drawn(around.choose, given, 1, a=50.0, b=0.0) == [[1]]


@pytest.mark.parametrize(("among", "count"), [(5, 2), (3, 2), (2, 1)])
def test_triangle_draws_near_the_positive_and_of_these_by_how_much_nearer_to_it(among, count):
    scores, anchors, positive = [1.0, 2.0, 1.5, 0.0, 3.0], [2.0, 2.5, 1.0, 0.5, 3.25], 2.0
    near = [np.exp(-((score - positive) ** 2) / 4) for score in scores]
    nearer = np.maximum(np.array(anchors) - scores, 0)
    expected = Counter()
    for slots, chance in chances(near, among).items():
        second = np.zeros(5)
        second[list(slots)] = nearer[list(slots)]
        possible = min(count, np.count_nonzero(second))
        for taken, of_these in (chances(second, possible) if possible else {(): 1.0}).items():
            expected[taken] += chance * of_these
    given = repeated(20_000, scores=[scores], positive=[positive], anchor_scores_QS=np.array([anchors], np.float32))
    assert_as_often(drawn(triangle.choose, given, count, among=among), expected)
    assert not any(2 in slots for slots in expected), "nearer to the query: never drawn"


def test_a_query_without_a_positive_has_uniform_draws():
    given = repeated(
        20_000, scores=[[1.0, 5.0, 9.0]], positive=[NAN], anchor_scores_QS=np.array([[NAN] * 3], np.float32)
    )
    alike = chances([1, 1, 1], 2)
    assert_as_often(drawn(around.choose, given, 2, a=5.0, b=0.0), alike)
    assert_as_often(drawn(triangle.choose, given, 2, among=3), alike)


def test_stratified_takes_as_many_from_every_stratum():
    """Eight scores in four strata: of each pair in the order of scores, one."""
    given = repeated(20_000, scores=[[7.0, 0.0, 6.0, 1.0, NAN, 5.0, 2.0, 4.0, 3.0]])
    pairs = [(0, 2), (5, 7), (8, 6), (3, 1)]
    expected = {}
    for number in range(16):
        expected[tuple(sorted(pair[number >> place & 1] for place, pair in enumerate(pairs)))] = 1 / 16
    assert_as_often(drawn(stratified.choose, given, 4, strata=4), expected)
    halves = drawn(stratified.choose, given, 2, strata=4)  # every other stratum, from the first one on or the second
    expected = [(a, b) for high, low in (pairs[::2], pairs[1::2]) for a in high for b in low]
    assert_as_often(halves, {tuple(sorted(pair)): 1 / 8 for pair in expected})


@pytest.mark.parametrize("by_range", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_each_stratum_gives_one_more_as_often_if_the_count_is_no_multiple_of_the_strata(count, by_range):
    """A count of 1 would else draw the lowest score for every query, and a count of 3 never the highest."""
    given = repeated(20_000, scores=[[3.0, 2.0, 1.0, 0.0]])
    sets = drawn(stratified.choose, given, count, strata=4, by_range=by_range)
    assert_as_often(sets, {slots: 1 / 4 for slots in combinations(range(4), count)})


def test_strata_may_be_ranges_of_scores():
    """Of scores from 9 to 0 in two ranges, the higher has one candidate and the lower three: it is always drawn."""
    given = repeated(20_000, scores=[[0.0, 9.0, NAN, 2.0, 1.0]])
    sets = drawn(stratified.choose, given, 2, strata=2, by_range=True)
    assert_as_often(sets, {(low, 1) if low < 1 else (1, low): 1 / 3 for low in (0, 3, 4)})
    equal = drawn(stratified.choose, repeated(20_000, scores=[[5.0, NAN, 5.0, 5.0]]), 1, strata=4, by_range=True)
    assert_as_often(equal, {(slot,): 1 / 3 for slot in (0, 2, 3)})


def test_what_a_stratum_is_short_of_comes_from_the_others():
    """Three candidates in three strata, and four wanted of each; then two of each of two strata with one and two."""
    assert drawn(stratified.choose, candidates([[3.0, 1.0, 2.0, NAN, NAN]]), 4, strata=3) == [[0, 1, 2]]
    given = repeated(20_000, scores=[[3.0, 2.0, 1.0, 0.0, -1.0]])  # strata of 3 and 2
    sets = drawn(stratified.choose, given, 4, strata=2)
    assert_as_often(sets, {tuple(sorted({0, 1, 2, 3, 4} - {left})): 1 / 3 for left in range(3)})


@pytest.mark.parametrize("power", [0.0, 1.0, 3.0])
def test_rank_decay_has_weights_by_rank(power):
    ranks = [1, 2, 3, 1, 5]  # of two lists end to end
    given = repeated(20_000, scores=[np.zeros(5)], ranks_QS=np.array([ranks]))
    assert_as_often(drawn(rank_decay.choose, given, 2, power=power), chances([r**-power for r in ranks], 2))


# --- in a pool --------------------------------------------------------------------------------------------------------


class Scored:
    """Six queries over 40 passages; lists with all passages, best first, and the positive of query q is passage q."""

    def __init__(self, world):
        rng = np.random.default_rng(5)
        self.world, queries, passages = world, rng.normal(size=(6, 4)), rng.normal(size=(40, 4))
        self.scores = np.einsum("qd,pd->qp", np.float32(queries), np.float32(passages), dtype=np.float64)
        self.scores = self.scores.astype(np.float32)
        self.anchors = np.float32(passages) @ np.float32(passages).T
        self.collection = world.collection([f"q{q}" for q in range(6)], [(q, q, 1) for q in range(6)], num_passages=40)
        self.vectors = world.vectors(queries=queries, passages=passages)
        ids = np.argsort(-self.scores, axis=1, kind="stable")
        self.lists = {"query": world.retrieval(ids, scores=np.take_along_axis(self.scores, ids, axis=1))}
        self.lists["bm25"] = world.retrieval([rng.permutation(40)[:15] for _ in range(6)])

    def merge(self, counts, **settings):
        return self.world.merge(self.collection, counts, self.lists, {"vectors": self.vectors}, **settings)


@pytest.fixture
def scored(world):
    return Scored(world)


@pytest.mark.parametrize("rule", [{"percentage": 0.8}, {"absolute_margin": 0.3}, {"max_score": 0.5, "min_score": -0.5}])
def test_top_after_a_filter_is_the_k_highest_that_the_filter_leaves(scored, rule):
    job = scored.merge({"query": 5, "bm25": 3}, draw="top", filters=rule)
    lists = {"query": [range(40)] * 6, "bm25": [ids for _, ids, _ in scored.lists["bm25"].lists]}
    for row, pool in enumerate(job.pools):
        expected, best = [], scored.scores[row, row]
        for name, count in (("query", 5), ("bm25", 3)):
            kept = [p for p in lists[name][row] if p != row and not any(
                DROPS[filter_name](scored.scores[row, p], best, value) for filter_name, value in rule.items()
            )]  # fmt: skip
            highest = sorted(kept, key=lambda p: -scored.scores[row, p])[:count]
            places = [list(ids) for _, ids, _ in scored.lists[name].lists][row]
            expected += sorted(highest, key=places.index)
        assert [item[0] for item in pool] == expected
        np.testing.assert_array_equal([item[4] for item in pool], scored.scores[row, expected])
    dropped = job.merge_facts["filters"]["dropped"]
    assert all(min(of.values()) > 0 for of in dropped.values()) and min(map(len, job.pools)) > 3, "not vacuous"


DROPS = {
    "percentage": lambda score, best, share: score > best * np.float32(share),
    "absolute_margin": lambda score, best, margin: score > best - np.float32(margin),
    "max_score": lambda score, best, cap: score > cap,
    "min_score": lambda score, best, floor: score < floor,
}


def test_every_source_has_its_own_draw_and_one_leaves_the_other_alone(scored):
    plain = scored.merge({"query": 6, "bm25": 6})
    mixed = scored.merge({"query": 6, "bm25": 6}, draws={"query": "top"})
    for one, other in zip(plain.pools, mixed.pools, strict=True):
        assert [item[:4] for item in one[6:]] == [item[:4] for item in other[6:]]
        assert [item[3] for item in other[:6]] == [r for r in range(1, 40) if r in {item[3] for item in other[:6]}]
        assert one[:6] != other[:6] and max(item[3] for item in other[:6]) <= 7
    assert not np.isnan([item[4] for pool in mixed.pools for item in pool[:6]]).any()


def test_vectors_score_the_pairs_that_no_draw_compared(scored, tmp_path):
    """The table of a draw around s+ has the positives and the source that is compared. Without vectors, it is all there
    is: the other source then has no scores but those of passages that both sources found."""
    mixed = scored.merge({"query": 6, "bm25": 6}, draws={"query": "around"})

    def hardest(name):
        written = export(mixed.folder, tmp_path / name, hardest=True)
        return written, [json.loads(line)["negative_passages"] for line in (tmp_path / name).read_text().splitlines()]

    written, negatives = hardest("with")
    assert "no checkpoint scored" not in written
    for row, (pool, exported) in enumerate(zip(mixed.passages, negatives, strict=True)):
        best = sorted(pool, key=lambda p: -scored.scores[row, p])
        assert [p["docid"] for p in exported] == [f"doc_id{p}" for p in best]
    assert [figures["scored"] for figures in audit(mixed.folder)["sources"].values()] == [1, 1, 1]
    Artefact(scored.vectors.folder).delete_files()
    written, without = hardest("without")
    assert "6 queries, 6 of them with passages that no checkpoint scored" in written and without != negatives
    found = audit(mixed.folder)["sources"]
    assert found["query"]["scored"] == 1 and found["bm25"]["scored"] < 1


@pytest.mark.parametrize("draw", [name for name in DRAWS if name != "uniform"])
def test_each_draw_makes_a_pool(scored, draw):
    """A pool lists the same passages twice in a row, and others than a uniform draw does."""
    counts = {"query": 8, "bm25": 4}
    job, again, plain = (scored.merge(counts, draws=dict.fromkeys(counts, kind)) for kind in (draw, draw, "uniform"))
    assert job.passages == again.passages != plain.passages
    assert all(row not in pool for row, pool in enumerate(job.passages))
    if draw == "triangle":
        pairs = [(row, p) for row, pool in enumerate(job.passages) for p in pool]
        assert len(pairs) > 20 and all(scored.anchors[row, p] > scored.scores[row, p] for row, p in pairs)


def triangles(world, nearer):
    """(collection, sources, miner's vectors) of three queries and seven passages: passages 3 to 6 are all candidates,
    and nearer to the positive than to the query for the queries in `nearer` alone."""
    queries = [[1.0, 0.0] if q in nearer else [0.0, 1.0] for q in range(3)]
    passages = [[2.0, 0.0] if q in nearer else [0.0, 0.5] for q in range(3)] + [[n, n] for n in (1.0, 2.0, 3.0, 4.0)]
    collection = world.collection(["a", "b", "c"], [(q, q, 1) for q in range(3)], num_passages=7)
    ids, scores = [[6, 5, 4, 3]] * 3, [[4.0, 3.0, 2.0, 1.0]] * 3
    return collection, {"query": world.retrieval(ids, scores=scores)}, world.vectors(queries=queries, passages=passages)


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_draw_that_gives_every_candidate_weight_0_is_refused(world):
    collection, lists, vectors = triangles(world, nearer=[])
    says = r"negatives.draw triangle: .* weight 0 for all 3 queries, .*'a' \(row 0\).*'doc_id6' \(row 6\)"
    with pytest.raises(Refusal, match=says):
        world.merge(collection, {"query": 2}, lists, {"vectors": vectors}, draw="triangle")
    far = {"kind": "around", "a": 1e300, "b": 1e9}
    with pytest.raises(Refusal, match=r"negatives.draw around: .* weight 0 for all 3 queries"):
        world.merge(collection, {"query": 2}, lists, {"vectors": vectors}, draws={"query": far})


def test_queries_whose_candidates_all_have_weight_0_are_counted_with_the_cause(world, caplog):
    """Query b has candidates that weigh something; query c has none at all once the filter has dropped them."""
    collection, lists, vectors = triangles(world, nearer=[1])
    job = world.merge(collection, {"query": 2}, lists, {"vectors": vectors}, draw="triangle")
    assert list(map(len, job.pools)) == [0, 2, 0] and job.merge_facts["empty_queries"] == 2
    said = "negatives.draw triangle: 2 queries get none of query, because all candidates have weight 0; the first is"
    assert f"{said} the query 'a' (row 0) with the passage 'doc_id6' (row 6)" in caplog.messages
    assert not [text for text in caplog.messages if "filters and known passages leave none" in text]
    caplog.clear()
    short = {"query": world.retrieval([[6, 5], [6, 5], [2, -1]], scores=[[4, 3]] * 3)}
    world.merge(collection, {"query": 2}, short, {"vectors": vectors}, draw="triangle")
    assert (
        "1 of 3 queries have no negative: their lists are empty, or filters and known passages leave none"
        in caplog.messages
    )
    assert [text for text in caplog.messages if "negatives.draw triangle: 1 queries" in text]


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_a_weight_that_is_not_finite_is_refused_with_its_pair(world):
    collection, lists, vectors = triangles(world, nearer=[1])
    given = {"kind": "around", "a": 0.0, "b": 1e200}  # 0 times infinity
    says = r"negatives.draw: the weight of the query 'a' \(row 0\) with the passage 'doc_id6' \(row 6\) is not finite"
    with pytest.raises(Refusal, match=says):
        world.merge(collection, {"query": 2}, lists, {"vectors": vectors}, draws={"query": given})


def test_ranks_count_what_is_there_what_is_left_or_what_filters_leave(world):
    """Scores 9 to 1 by rank; the positive, passage 0, has rank 3 and score 7; the filter drops scores above 7."""
    collection = world.collection(["a"], [(0, 0, 1)], num_passages=9)
    ids = [[1, 2, 0, 3, 4, 5, 6, 7, 8]]
    lists = {"query": world.retrieval(ids, scores=[range(9, 0, -1)])}
    by_id = [[float(9 - ids[0].index(p))] for p in range(9)]
    inputs = {"vectors": world.vectors(queries=[[1.0]], passages=by_id)}
    common = {"ranks": {"query": [[2, 4]]}, "filters": {"above_positive": True}}

    def passages(**settings):
        return world.merge(collection, {"query": 9}, lists, inputs, **common | settings).passages[0]

    assert passages(ranks_after="nothing") == [3]  # ranks 2 to 4 hold 2, 0 and 3: one is dropped, one the positive
    assert passages() == passages(ranks_after="removals") == [3, 4]  # 2, 3 and 4, of which the filter drops 2
    assert passages(ranks_after="filters") == [4, 5, 6]
    skipped = {"filters": {"above_positive": True, "skip_ranks": 1}, "ranks_after": "filters"}
    assert passages(**skipped) == [4, 5, 6] and passages(**skipped, ranks={}) == [4, 5, 6, 7, 8]
    assert Negatives().ranks_after == "removals"


@pytest.mark.parametrize("compares", [{"draw": "top"}, {"filters": {"max_score": 9.0}}])
def test_a_miner_whose_scores_are_all_the_same_is_refused_where_they_are_compared(world, monkeypatch, compares):
    """One query with equal scores is no error; the positive's own score does not count."""
    monkeypatch.setattr(merge, "BLOCK_SLOTS", 3)  # a block for each query

    def pools(scores, **settings):
        queries = range(len(scores))
        collection = world.collection([f"q{q}" for q in queries], [(q, 0, 1) for q in queries], num_passages=9)
        lists = {"query": world.retrieval([[1, 2, 0]] * len(scores), scores=scores)}
        return world.merge(collection, {"query": 2}, lists, **settings).passages

    with pytest.raises(Refusal, match=r"^negatives: .* all 3 queries 0\.5, .*mining.checkpoint"):
        pools([[0.5, 0.5, 0.7]] * 3, **compares)
    same, other = [0.5, 0.5, 0.5], [0.5, 0.4, 0.5]
    for scores, settings in (([same] * 3, {}), ([same], compares), ([same, same, other], compares)):
        assert pools(scores, **settings) == [[1, 2]] * len(scores)


# --- draws and sources of one's own -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "wrong"),
    [
        ([[0, 2]], r"\(1, 2\), not \(2, 2\)"),
        ([[0], [1]], r"\(2, 1\), not \(2, 2\)"),
        ([[0, 2], [1, 1]], "twice"),
        ([[0, 2], [0, 1]], "not available"),
        ([[0, 2], [-1, 1]], "not available"),
    ],
)
def test_a_draw_that_breaks_its_contract_is_named(chosen, wrong):
    given = candidates([[1, 1, 1], [NAN, 1, 1]])
    with pytest.raises(ValueError, match=rf"{__name__}\.choose drew .*{wrong}"):
        drawn(lambda c, n: np.array(chosen), given, 2)


def test_slots_beyond_the_last_are_not_filled():
    assert drawn(lambda c, n: np.array([[3, 0], [3, 3]]), candidates([[1, 1, 1], [1, 1, 1]]), 2) == [[0], []]


@pytest.mark.parametrize("passage", [1, -1, 7])
def test_a_source_that_gives_a_known_positive_or_no_passage_is_named(world, monkeypatch, passage):
    collection, lists, _ = triangles(world, nearer=[])
    given = retrieved.Retrieval.block

    def block(self, first, last):
        found = given(self, first, last)
        passages, there = found.passages_QS.copy(), found.there_QS.copy()
        passages[1, 0], there[1, 0] = passage, True  # passage 1 is the positive of query 1
        return found._replace(passages_QS=passages, there_QS=there)

    monkeypatch.setattr(retrieved.Retrieval, "block", block)
    with pytest.raises(ValueError, match=rf"source query gives passage {passage} to query 1"):
        world.merge(collection, {"query": 4}, lists)
