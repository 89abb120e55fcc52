"""Stage `errors` against brute force in float64: several positives, ties, chunks, blocks, a kill."""

import numpy as np
import pytest

from collection_world import make_collection
from teleport.analyses import errors
from teleport.arrays import pair_keys, save_array
from teleport.running.artefact import Artefact
from teleport.running.files import read_saved

QUERIES, PASSAGES = 12, 90


def judgments(rng):
    """Query 0 has no positive, the others one to four; some passages are judged irrelevant."""
    judged = []
    for query in range(1, QUERIES):
        chosen = rng.permutation(PASSAGES)[: 1 + query % 4 + 2]
        judged += [(query, int(passage), 1) for passage in chosen[:-2]] + [(query, int(p), 0) for p in chosen[-2:]]
    return judged


def make_world(stages, queries, passages, judged, offsets=None):
    collection = make_collection(stages, PASSAGES, {"test": QUERIES}, {"test": judged})
    job = stages.make("encode")
    save_array(job.output("queries.test.npy"), queries)
    save_array(job.output("passages.npy"), passages)
    if offsets is not None:
        save_array(job.output("passages.offsets.npy"), offsets)
    vectors = stages.finish(job)
    return {"collection": collection, "queries": vectors, "passages": vectors}


def random_vectors(rng, rows, ties):
    """Vectors of few different whole numbers, of which many products are equal, or random ones."""
    values = rng.integers(-1, 2, (rows, 6)) if ties else rng.normal(size=(rows, 6))
    return values.astype(np.float32)


def brute_force(queries, passages, judged, offsets=None, own=frozenset()):
    """{(query, positive): (errors, ties)} by loops over float64 scores rounded to float32, without the pairs `own`."""
    products = (queries.astype(np.float64) @ passages.astype(np.float64).T).astype(np.float32)
    if offsets is not None:
        products = np.stack([products[:, a:b].max(axis=1) for a, b in zip(offsets[:-1], offsets[1:], strict=True)], 1)
    positives = {(query, passage) for query, passage, grade in judged if grade > 0}
    found = {}
    for query, positive in positives:
        score, others = products[query, positive], [p for p in range(PASSAGES) if (query, p) not in positives | own]
        above = sum(products[query, p] > score for p in others)
        found[query, positive] = int(above), int(sum(products[query, p] == score for p in others))
    return found


def run(stages, inputs, **settings):
    job = stages.run(errors.run, "errors", {"split": "test"} | settings, inputs)
    arrays = {name: np.load(job.folder / f"{name}.npy") for name in ("queries", "passages", "errors", "ties")}
    pairs = zip(arrays["queries"].tolist(), arrays["passages"].tolist(), strict=True)
    counts = zip(arrays["errors"].tolist(), arrays["ties"].tolist(), strict=True)
    return dict(zip(pairs, counts, strict=True)), Artefact(job.folder).facts


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("blocks, dtype", [((8192, 16384), "float32"), ((3, 7), "float32"), ((3, 7), "float16")])
def test_counts_equal_brute_force(stages, monkeypatch, ties, blocks, dtype):
    monkeypatch.setattr(errors, "ERROR_PAIRS", blocks[0])
    monkeypatch.setattr(errors, "ERROR_ROWS", blocks[1])
    rng = np.random.default_rng(3)
    queries, passages = random_vectors(rng, QUERIES, ties), random_vectors(rng, PASSAGES, ties).astype(dtype)
    judged = judgments(rng)
    found, facts = run(stages, make_world(stages, queries, passages, judged), top=20)
    expected = brute_force(queries, passages, judged)
    assert found == expected
    assert (sum(tied for _, tied in found.values()) > 0) == ties  # ties occur where they are meant to
    per_query = [sum(e for (q, _), (e, _) in expected.items() if q == query) for query in range(1, QUERIES)]
    top = [sum(min(e, 20) for (q, _), (e, _) in expected.items() if q == query) for query in range(1, QUERIES)]
    assert facts["errors"] == pytest.approx(np.mean(per_query)) and facts["num_queries"] == QUERIES - 1
    assert facts["errors_per_positive"] == pytest.approx(np.mean([e for e, _ in expected.values()]))
    assert facts["ties_per_positive"] == pytest.approx(np.mean([t for _, t in expected.values()]))
    assert facts["top_errors"] == pytest.approx(np.mean(top)) and facts["top_errors"] < facts["errors"]
    assert (facts["num_positives"], facts["top"]) == (len(expected), 20)


@pytest.mark.parametrize("rows", [16384, 5])
def test_a_passage_of_several_chunks_has_the_score_of_its_best(stages, monkeypatch, rows):
    monkeypatch.setattr(errors, "ERROR_ROWS", rows)
    rng = np.random.default_rng(5)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 4, PASSAGES))])
    queries, chunks = random_vectors(rng, QUERIES, False), random_vectors(rng, int(offsets[-1]), False)
    judged = judgments(rng)
    found, _ = run(stages, make_world(stages, queries, chunks, judged, offsets))
    assert found == brute_force(queries, chunks, judged, offsets)


def test_a_query_s_own_text_is_no_error(stages, monkeypatch):
    """Own texts among the passages above a positive, at its score, and below it; one is a positive itself and stays."""
    rng = np.random.default_rng(9)
    queries, passages, judged = random_vectors(rng, QUERIES, True), random_vectors(rng, PASSAGES, True), judgments(rng)
    inputs = make_world(stages, queries, passages, judged)
    plain, _ = run(stages, inputs)
    positive = next(iter(plain))
    own = {(query, passage) for query in range(QUERIES) for passage in range(query, PASSAGES, 9)} | {positive}
    keys = pair_keys(*np.array(sorted(own)).T)
    monkeypatch.setattr(errors, "own_keys", lambda *given: keys)
    found, _ = run(stages, inputs, ignore_own_text=True)
    assert found == brute_force(queries, passages, judged, own=own)
    fewer = [[before > after for before, after in zip(plain[pair], found[pair], strict=True)] for pair in plain]
    assert {positive} <= found.keys() and all(map(any, zip(*fewer, strict=True))), "errors and ties both fall"


def test_near_ties_are_decided_by_exact_scores(stages):
    """Passages that differ from the positive in the last bits, where float32 products are wrong in places."""
    rng = np.random.default_rng(7)
    queries = rng.normal(size=(QUERIES, 384)).astype(np.float32)
    base = rng.normal(size=384).astype(np.float32)
    passages = (base + rng.normal(size=(PASSAGES, 384)) * 1e-7).astype(np.float32)
    judged = judgments(rng)
    found, _ = run(stages, make_world(stages, queries, passages, judged))
    scores = queries.astype(np.float64) @ passages.astype(np.float64).T
    assert found == brute_force(queries, passages, judged)
    assert ((queries @ passages.T) != scores.astype(np.float32)).any()


def test_a_killed_count_goes_on_at_its_block(stages, monkeypatch):
    monkeypatch.setattr(errors, "ERROR_PAIRS", 4)
    rng = np.random.default_rng(1)
    inputs = make_world(stages, random_vectors(rng, QUERIES, True), random_vectors(rng, PASSAGES, True), judgments(rng))
    whole, _ = run(stages, inputs)
    job, counted = stages.make("errors", {"split": "test"}, inputs, save_every=0.0), []

    def count(*arguments):
        if len(counted) == 2:
            raise KeyboardInterrupt
        counted.append(arguments)
        return plain(*arguments)

    plain = errors.count_all
    monkeypatch.setattr(errors, "count_all", count)
    with pytest.raises(KeyboardInterrupt):
        errors.run(job)
    monkeypatch.setattr(errors, "count_all", lambda *arguments: counted.append(arguments) or plain(*arguments))
    spent = read_saved(job.resume / "above.npy.json")["seconds"]
    facts = errors.run(job)
    assert facts["earlier_seconds"] == round(spent, 3) > 0
    stages.finish(job, facts)
    assert len(counted) == -(-len(whole) // 4)  # the third block was never counted twice
    assert np.load(job.folder / "errors.npy").tolist() == [e for e, _ in whole.values()]


def test_decades_are_shares_of_queries_and_of_errors():
    assert errors.decades(np.array([0, 0, 1, 9, 10, 99, 1000, 881])) == [
        {"from": 0, "queries": 0.25, "errors": 0.0},
        {"from": 1, "queries": 0.25, "errors": 0.005},
        {"from": 10, "queries": 0.25, "errors": 109 / 2000},
        {"from": 100, "queries": 0.125, "errors": 881 / 2000},
        {"from": 1000, "queries": 0.125, "errors": 0.5},
    ]
    assert errors.decades(np.array([0, 0])) == [{"from": 0, "queries": 1.0, "errors": 0.0}]


def test_a_split_without_positives_is_refused(stages):
    rng = np.random.default_rng(1)
    vectors = random_vectors(rng, QUERIES, False), random_vectors(rng, PASSAGES, False)
    inputs = make_world(stages, *vectors, [(0, 1, 0)])
    with pytest.raises(ValueError, match="'test'.*positive"):
        run(stages, inputs)


def test_norms():
    assert errors.norms_of(np.array([[3, 4], [0, -6], [0, 1]], np.float16)).tolist() == [5, 6, 1]
