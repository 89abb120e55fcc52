"""The score of a pair: from vectors, from the table of a stage, and from a run; and the stage that makes tables."""

import numpy as np
import pytest

from teleport.negatives.scores import PairTable
from teleport.refusal import Refusal
from teleport.running.artefact import Artefact
from teleport.search.pairs import PairScorer
from teleport.settings.pool import Draw, Pool

RNG = np.random.default_rng(2)
QUERIES, PASSAGES = RNG.normal(size=(7, 5)).astype(np.float32), RNG.normal(size=(50, 5)).astype(np.float32)


def product(query, passage):
    return np.float32(QUERIES[query].astype(np.float64) @ PASSAGES[passage].astype(np.float64))


@pytest.fixture
def scored(world):
    """(job that reads the score stage, its pairs): candidates of two sources that overlap, and the positives. Query 3
    has no positive, and query 5 no candidate either."""
    judgments = [(q, 10 * (q % 3) + j, 1) for q in range(7) if q not in (3, 5) for j in range(q % 2 + 1)]
    collection = world.collection([f"q{q}" for q in range(7)], judgments, num_passages=50)
    lookahead = RNG.permuted(np.tile(np.arange(50), (9, 1)), axis=1)[:, :6]
    rows = [0, 0, 1, 2, 3, 4, 6, 6, 6]  # several lists of a query
    bm25 = RNG.permuted(np.tile(np.arange(50), (7, 1)), axis=1)[:, :8]
    bm25[5] = -1
    lists = {"lookahead": world.retrieval(lookahead, rows), "bm25": world.retrieval(bm25)}
    vectors = world.vectors(queries=QUERIES, passages=PASSAGES)
    draws = {"lookahead": Draw(count=1, place=0), "bm25": Draw(count=1, place=1)}
    inputs = {"collection": collection, "queries": vectors, "passages": vectors} | lists
    known = {(q, p) for q, p, _ in judgments}
    pairs = {(q, int(p)) for ids, of in ((lookahead, rows), (bm25, range(7))) for line, q in zip(ids, of, strict=True)
             for p in line if p >= 0}  # fmt: skip
    return world, Pool(sources=draws, seed=1, episode=1), inputs, pairs - known, known


def table(world, job):
    return PairTable.open(world.stages.make("merge", inputs={"scores.miner": job}), "scores.miner")


def test_the_stage_scores_each_pair_once_as_the_vectors_do(scored, monkeypatch):
    world, pool, inputs, candidates, positives = scored
    monkeypatch.setattr("teleport.negatives.score.BLOCK_SLOTS", 40)  # several blocks of queries
    job = world.score(pool, inputs)
    pairs = sorted(candidates | positives)
    assert Artefact(job.folder).facts == {"pairs": len(pairs), "queries": 6}
    read = table(world, job)
    listed = np.repeat(np.arange(7), np.diff(read.offsets)).tolist()
    assert list(zip(listed, read.passages.tolist(), strict=True)) == pairs
    rows, passages = np.random.default_rng(0).permutation(pairs).T
    found = read.score(rows, passages)
    assert found.dtype == np.float32
    assert found.tolist() == PairScorer(QUERIES, PASSAGES, None).score(rows, passages).tolist()
    assert found.tolist() == [product(*pair) for pair in zip(rows, passages, strict=True)]
    assert read.score(4, np.array([p for q, p in pairs if q == 4])).shape == (sum(q == 4 for q, _ in pairs),)
    assert read.score(np.array([], int), np.array([], int)).shape == (0,)


def test_a_pair_without_a_score_is_refused_by_name(scored):
    world, pool, inputs, candidates, positives = scored
    read = table(world, world.score(pool, inputs))
    missing = next(p for p in range(50) if (2, p) not in candidates | positives)
    there = next(p for q, p in sorted(positives) if q == 2)
    with pytest.raises(ValueError, match=rf"^miner \(score/\w+\) has no .* row 2 with .* row {missing}\b"):
        read.score(np.array([2, 2]), np.array([there, missing]))
    with pytest.raises(ValueError, match="row 5 .*row 49"):
        read.score(np.array([5]), np.array([49]))  # a query without any pair, behind which others follow


def test_of_positives_the_first_one_is_in_the_place_of_the_query(scored):
    world, pool, inputs, candidates, positives = scored
    read = table(world, world.score(pool, inputs, of="positives"))
    pairs = sorted(candidates)
    assert len(read.passages) == len(pairs)
    first = {q: min(p for query, p in positives if query == q) for q, _ in positives}
    found = read.score(*np.array(pairs).T)
    expected = [np.float32(PASSAGES[first[q]].astype(float) @ PASSAGES[p]) if q in first else np.nan for q, p in pairs]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))
    assert np.isnan(found).any() and not np.isnan(found).all()


def test_candidates_that_all_score_the_same_are_refused_with_their_number(scored):
    """Of positives alone it is no fault: they may all be copies of their queries. Scores with the first positive in
    place of the query are NaN where there is none."""
    world, pool, inputs, candidates, positives = scored
    same = world.vectors(queries=np.ones((7, 5)), passages=np.ones((50, 5)))
    inputs |= {"queries": same, "passages": same}
    for of, number in (("queries", len(candidates | positives)), ("positives", sum(q != 3 for q, _ in candidates))):
        with pytest.raises(Refusal, match=rf"^score/\w+, by .*encode/\w+/passages.npy: all {number} scores are 5, "):
            world.score(pool, inputs, of=of)
    alone = world.score(pool, inputs, sources=[])
    assert Artefact(alone.folder).facts["pairs"] == len(positives) > 1
    merged = world.merge(inputs["collection"], {"lookahead": 3}, {"lookahead": inputs["lookahead"]})
    with pytest.raises(Refusal, match=r"all \d+ scores are 5"):
        world.score(pool, inputs | {"negatives": merged}, sources=[])


def test_the_pairs_of_a_pool_are_scored_where_the_stage_reads_one(scored):
    world, pool, inputs, *_ = scored
    lists = {name: inputs[name] for name in pool.sources}
    merged = world.merge(inputs["collection"], {"lookahead": 3, "bm25": 2}, lists)
    read = {name: inputs[name] for name in ("collection", "queries", "passages")} | {"negatives": merged}
    job = world.score(pool, read, sources=[])
    pairs = {(q, p) for q, passages in enumerate(merged.passages) for p in passages} | scored[4]
    found = table(world, job)
    assert Artefact(job.folder).facts["pairs"] == len(pairs) == len(found.passages)
    assert found.score(*np.array(sorted(pairs)).T).tolist() == [product(*pair) for pair in sorted(pairs)]


def test_the_pool_has_the_miner_s_score_of_every_negative_once_somebody_asks(scored):
    """Whoever asks: here a filter that drops nothing."""
    world, pool, inputs, *_ = scored
    lists = {name: inputs[name] for name in pool.sources}
    counts, vectors = {"lookahead": 9, "bm25": 9, "random": 3}, {"vectors": inputs["queries"]}
    plain = world.merge(inputs["collection"], counts, lists, vectors)
    asked = world.merge(inputs["collection"], counts, lists, vectors, filters={"max_score": 1e9})
    assert plain.passages == asked.passages
    assert np.isnan([item[4] for pool in plain.pools for item in pool]).all()
    for query, of_query in enumerate(asked.pools):
        assert [item[4] for item in of_query] == [product(query, item[0]) for item in of_query]
