"""Stage `rerank` against a plain sort of float64 scores."""

import numpy as np
import pytest

from collection_world import make_run
from teleport.arrays import save_array
from teleport.running.artefact import Artefact
from teleport.search import rerank


def make_vectors(stages, queries, passages, offsets=None):
    job = stages.make("encode")
    save_array(job.output("queries.test.npy"), queries)
    save_array(job.output("passages.npy"), passages)
    if offsets is not None:
        save_array(job.output("passages.offsets.npy"), offsets)
    return stages.finish(job)


def rank(stages, candidates, vectors):
    inputs = {"candidates": candidates, "queries": vectors, "passages": vectors}
    job = stages.run(rerank.run, "rerank", {"split": "test"}, inputs)
    return {name: np.load(job.folder / f"{name}.npy") for name in ("ids", "scores", "rows")}, Artefact(job.folder).facts


def plain(query, ids, passages, offsets=None):
    """The candidates by descending score, ties by the smaller number."""
    rows = [range(i, i + 1) if offsets is None else range(offsets[i], offsets[i + 1]) for i in ids]
    scores = [max(np.float32(passages[r].astype(np.float64) @ query.astype(np.float64)) for r in own) for own in rows]
    return sorted(zip((-s for s in scores), ids, strict=True))


@pytest.mark.parametrize("chunked", [False, True])
def test_the_order_is_that_of_exact_scores_and_of_numbers(stages, chunked):
    rng = np.random.default_rng(0)
    queries = rng.integers(-1, 2, (6, 8)).astype(np.float32)  # many equal scores
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 4, 40))]) if chunked else None
    passages = rng.integers(-1, 2, (int(offsets[-1]) if chunked else 40, 8)).astype(np.float32)
    candidates = np.stack([rng.permutation(40)[:15] for _ in range(4)]).astype(np.int32)
    candidates[1, 9:], candidates[2] = -1, -1
    rows = [4, 0, 5, 2]
    found, facts = rank(
        stages, make_run(stages, candidates, rows=rows), make_vectors(stages, queries, passages, offsets)
    )
    assert found["rows"].tolist() == rows and facts == {"num_queries": 4, "candidates": 15 + 9 + 15}
    tied = 0
    for line, row in enumerate(rows):
        ids = candidates[line][candidates[line] >= 0].tolist()
        expected = plain(queries[row], ids, passages, offsets)
        tied += len(expected) - len({score for score, _ in expected})
        assert found["ids"][line].tolist() == [i for _, i in expected] + [-1] * (15 - len(ids))
        assert found["scores"][line].tolist() == [-s for s, _ in expected] + [0] * (15 - len(ids))
    assert tied > 5


def test_a_vector_that_is_not_finite_is_refused(stages):
    queries = np.array([[1, 2], [np.nan, 0]], np.float32)
    vectors = make_vectors(stages, queries, np.ones((3, 2), np.float32))
    with pytest.raises(ValueError, match="query row 1 .*not finite"):
        rank(stages, make_run(stages, [[0, 1], [2, 1]]), vectors)
