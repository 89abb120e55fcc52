"""Stage `errors`: pairwise errors by exact ranks in the whole corpus (STAR and ADORE, Table 1 and Figure 3).

The errors of a query and a positive are the irrelevant passages with a higher score. No paper released code for it.
Scores are those of every exact search, so the counts depend on the vectors alone: a float32 product of all passages
decides those that are far from the positive's score, and the others are scored again, each pair by itself.
"""

import numpy as np

from teleport.collection.reader import read_positives
from teleport.runtime.arrays import save_array
from teleport.runtime.blocks import RowBlocks
from teleport.search.flat import norms_of, product_errors, require_finite
from teleport.search.pairs import PairScorer
from teleport.settings.scoring import ErrorsSettings as Settings  # noqa: F401

BLOCK_PAIRS = 8192  # (query, positive) at a time; each block reads the passages once, and a killed run loses a block
BLOCK_ROWS = 16384  # passage vectors at a time: products of 0.5 GB with as many queries


def run(job):
    """Count the passages above each positive of the queries of a split.

    Writes errors.npy and ties.npy, int64 [J]: irrelevant passages with a higher score than the positive, and with the
    same one; queries.npy and passages.npy, int32 [J]: rows of query and positive.

    Facts: num_queries (those with a positive), num_positives; errors (sum over the positives of a query, mean over
    queries), errors_per_positive, ties_per_positive; top_errors (as errors, up to settings.top of each positive), top;
    histogram (`decades`). Raises ValueError when no query has a positive, and for a vector that is not finite.
    """
    split, scorer = job.settings.split, PairScorer.of_job(job)
    path = job.input("queries", f"queries.{split}.npy")
    queries = np.load(path, mmap_mode="r")
    require_finite(path, queries, "query")
    positives = read_positives(job.inputs["collection"], split)
    rows_J, ids_J = positives.rows.astype(np.int32), positives.values.astype(np.int32)
    if not len(rows_J):
        raise ValueError(f"evaluation.analyses: no query of the split {split!r} has a positive. Name another split.")
    scores_J = np.array([scorer.score(queries[row], ids_J[[j]])[0] for j, row in enumerate(rows_J)], np.float32)
    shape = (np.int64, (len(rows_J),))
    blocks = RowBlocks(job, {"above.npy": shape, "equal.npy": shape}, BLOCK_PAIRS)
    for start, stop in blocks:
        part = slice(start, stop)
        above_J, equal_J = count_all(scorer, queries, rows_J[part], scores_J[part], job)
        blocks["above.npy"][part], blocks["equal.npy"][part] = above_J, equal_J
    relevant_above_J, relevant_equal_J = count_relevant(positives, scores_J)
    errors_J, ties_J = blocks["above.npy"] - relevant_above_J, blocks["equal.npy"] - relevant_equal_J
    for name, array in {"errors": errors_J, "ties": ties_J, "queries": rows_J, "passages": ids_J}.items():
        save_array(job.output(f"{name}.npy"), array)
    return summary(rows_J, errors_J, ties_J, job.settings.top)


def count_all(scorer, queries, rows_J, scores_J, job):
    """(passages with a higher score than each pair's, those with the same score, its own included), int64 [J]."""
    rows_Q, query_J = np.unique(rows_J, return_inverse=True)
    queries_QD = np.ascontiguousarray(queries[rows_Q])
    norms_Q = np.linalg.norm(queries_QD.astype(np.float64), axis=1)
    above_J, equal_J = np.zeros(len(rows_J), np.int64), np.zeros(len(rows_J), np.int64)
    for first, last in passage_blocks(scorer):
        products_QP, longest = block_products(scorer, queries_QD, first, last)
        errors_J = product_errors(norms_Q, queries_QD.shape[1], longest)[query_J]
        for j, row in enumerate(query_J):
            # float32 limits, so that nothing is converted; what lies between them is scored again.
            low = np.nextafter(np.float32(scores_J[j] - errors_J[j]), np.float32(-np.inf))
            high = np.nextafter(np.float32(scores_J[j] + errors_J[j]), np.float32(np.inf))
            near = np.flatnonzero(products_QP[row] >= low)
            surely = products_QP[row, near] > high
            exact = scorer.score(queries_QD[row], first + near[~surely])
            above_J[j] += np.count_nonzero(surely) + np.count_nonzero(exact > scores_J[j])
            equal_J[j] += np.count_nonzero(exact == scores_J[j])
        job.progress(last, len(scorer), "passages")
    return above_J, equal_J


def passage_blocks(scorer):
    """(first, last) of blocks of passages, of about `BLOCK_ROWS` vectors."""
    step = BLOCK_ROWS if scorer.offsets is None else max(1, BLOCK_ROWS * len(scorer) // len(scorer.vectors))
    return [(first, min(first + step, len(scorer))) for first in range(0, len(scorer), step)]


def block_products(scorer, queries_QD, first, last):
    """(float32 scores [Q, P] of passages `first` to `last` as a product has them, length of the longest vector)."""
    if scorer.offsets is None:
        block = np.asarray(scorer.vectors[first:last])
        return queries_QD @ block.T, float(norms_of(block).max())
    offsets = scorer.offsets[first : last + 1]
    block = np.asarray(scorer.vectors[offsets[0] : offsets[-1]])
    return np.maximum.reduceat(queries_QD @ block.T, offsets[:-1] - offsets[0], axis=1), float(norms_of(block).max())


def count_relevant(positives, scores_J):
    """(positives of the same query with a higher score than each, those with the same score, itself included)."""
    above_J, equal_J = np.zeros(len(scores_J), np.int64), np.ones(len(scores_J), np.int64)
    for row in np.flatnonzero(positives.lengths > 1):
        part = slice(positives.offsets[row], positives.offsets[row + 1])
        own = scores_J[part]
        above_J[part] = (own[None] > own[:, None]).sum(axis=1)
        equal_J[part] = (own[None] == own[:, None]).sum(axis=1)
    return above_J, equal_J


def summary(rows_J, errors_J, ties_J, top):
    """The facts of `run` from the counts of every pair."""
    queries, query_J = np.unique(rows_J, return_inverse=True)
    errors_Q = np.bincount(query_J, errors_J)
    return {
        "num_queries": len(queries),
        "num_positives": len(errors_J),
        "errors": float(errors_Q.mean()),
        "errors_per_positive": float(errors_J.mean()),
        "ties_per_positive": float(ties_J.mean()),
        "top_errors": float(np.bincount(query_J, np.minimum(errors_J, top)).mean()),
        "top": top,
        "histogram": decades(errors_Q),
    }


def decades(errors_Q):
    """Of queries by their errors, 0, 1 to 9, 10 to 99, ...: the share of queries and of all errors (SA, Figure 3).

    A list of {"from": lowest number of errors, "queries": share, "errors": share}, up to the most errors there are.
    """
    decade_Q = np.where(errors_Q > 0, np.floor(np.log10(np.maximum(errors_Q, 1))) + 1, 0).astype(np.int64)
    share_of = [np.bincount(decade_Q) / len(errors_Q), np.bincount(decade_Q, errors_Q) / max(errors_Q.sum(), 1)]
    lowest = [0, *(10**power for power in range(len(share_of[0]) - 1))]
    shares = zip(lowest, *map(np.ndarray.tolist, share_of), strict=True)
    return [{"from": low, "queries": queries, "errors": errors} for low, queries, errors in shares]
