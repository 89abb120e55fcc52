"""Stage `errors`: count pairwise errors by exact ranks in the whole corpus (STAR and ADORE, Table 1 and Figure 3; no
code was released).

The errors of a query and a positive are the irrelevant passages with a higher score; with settings.ignore_own_text a
query's own text is none. The counts depend on the vectors alone: float32 products decide the passages far from the
positive's score, and the others are scored again.
"""

import numpy as np

from teleport.analyses.budget import ERROR_PAIRS, ERROR_ROWS
from teleport.arrays import pair_keys, rows_and_values, save_array
from teleport.evaluation.evaluate import own_keys
from teleport.maxp import consecutive, max_over_chunks
from teleport.reader import read_positives
from teleport.refusal import Refusal
from teleport.running.blocks import RowBlocks
from teleport.search.pairs import ROUNDING, PairScorer
from teleport.settings.measures import ErrorsSettings as Settings  # noqa: F401


def run(job):
    """Count the passages above each positive of the queries of a split.

    Writes errors.npy and ties.npy, int64 [J]: irrelevant passages with a higher score than the positive, and with the
    same score; queries.npy and passages.npy, int32 [J]: rows of query and positive.

    Facts: num_queries (those with a positive), num_positives; errors (sum over the positives of a query, mean over
    queries), errors_per_positive, ties_per_positive; top_errors (like errors, at most settings.top per positive), top;
    histogram (`decades`); earlier_seconds (before this process).
    """
    split = job.settings.split
    scorer = PairScorer.of_job(job, split)
    positives = read_positives(job.inputs[f"split.{split}"], split)
    rows_J, ids_J = positives.rows.astype(np.int32), positives.values.astype(np.int32)
    if not len(rows_J):
        raise Refusal(f"evaluation.analyses: no query of the split {split!r} has a positive. Name another split.")
    scores_J = scorer.score(rows_J, ids_J)
    shape = (np.int64, (len(rows_J),))
    blocks = RowBlocks(job, {"above.npy": shape, "equal.npy": shape}, ERROR_PAIRS)
    for start, stop in blocks:
        above_J, equal_J = count_all(scorer, rows_J[start:stop], scores_J[start:stop], job)
        blocks["above.npy"][start:stop], blocks["equal.npy"][start:stop] = above_J, equal_J
    relevant_above_J, relevant_equal_J = count_relevant(positives, scores_J)
    errors_J, ties_J = blocks["above.npy"] - relevant_above_J, blocks["equal.npy"] - relevant_equal_J
    if job.settings.ignore_own_text:
        own = np.setdiff1d(own_keys(job, split), pair_keys(rows_J, ids_J))
        rows, passages = rows_and_values(own)
        for row, score in zip(rows, scorer.score(rows, passages), strict=True):
            of_query = slice(*positives.offsets[row : row + 2])
            errors_J[of_query] -= score > scores_J[of_query]
            ties_J[of_query] -= score == scores_J[of_query]
    for name, array in {"errors": errors_J, "ties": ties_J, "queries": rows_J, "passages": ids_J}.items():
        save_array(job.output(f"{name}.npy"), array)
    queries, query_J = np.unique(rows_J, return_inverse=True)
    errors_Q = np.bincount(query_J, errors_J)
    return {
        "num_queries": len(queries),
        "num_positives": len(errors_J),
        "errors": float(errors_Q.mean()),
        "errors_per_positive": float(errors_J.mean()),
        "ties_per_positive": float(ties_J.mean()),
        "top_errors": float(np.bincount(query_J, np.minimum(errors_J, job.settings.top)).mean()),
        "top": job.settings.top,
        "histogram": decades(errors_Q),
        "earlier_seconds": round(blocks.earlier, 3),
    }


def count_all(scorer, rows_J, scores_J, job):
    """(passages with a higher score than each pair's, those with the same score, its own included), int64 [J]."""
    rows_Q, query_J = np.unique(rows_J, return_inverse=True)
    queries_QD = np.ascontiguousarray(scorer.queries[rows_Q])
    norms_Q = np.linalg.norm(queries_QD.astype(np.float64), axis=1)
    above_J, equal_J = np.zeros(len(rows_J), np.int64), np.zeros(len(rows_J), np.int64)
    step = max(1, ERROR_ROWS * len(scorer) // len(scorer.vectors))
    for first in range(0, len(scorer), step):
        last = min(first + step, len(scorer))
        rows, offsets = consecutive(first, last, scorer.offsets)
        block_CD = np.asarray(scorer.vectors[rows], np.float32)
        products_QP = max_over_chunks(queries_QD @ block_CD.T, offsets)
        errors_J = product_errors(norms_Q, queries_QD.shape[1], float(norms_of(block_CD).max()))[query_J]
        for j, row in enumerate(query_J):
            # The limits are float32, so that no array is converted. Passages between them are scored again.
            low = np.nextafter(np.float32(scores_J[j] - errors_J[j]), np.float32(-np.inf))
            high = np.nextafter(np.float32(scores_J[j] + errors_J[j]), np.float32(np.inf))
            near = np.flatnonzero(products_QP[row] >= low)
            surely = products_QP[row, near] > high
            exact = scorer.score(rows_J[j], first + near[~surely])
            above_J[j] += np.count_nonzero(surely) + np.count_nonzero(exact > scores_J[j])
            equal_J[j] += np.count_nonzero(exact == scores_J[j])
        job.progress(last, len(scorer), "passages")
    return above_J, equal_J


def norms_of(vectors):
    """The Euclidean norms of the rows of an array [n, dim]: float32 [n]."""
    vectors = np.asarray(vectors, np.float32)
    return np.sqrt(np.vecdot(vectors, vectors))


def product_errors(norms_Q, dim, max_norm):
    """Largest error of float32 inner products of queries `norms_Q` long with vectors up to `max_norm` long: [Q]. Each
    of `dim` products and sums is off by at most 2^-24 x |q| |p| (Higham, Accuracy and Stability of Numerical
    Algorithms, §3.1); twice that covers the final rounding."""
    return 2 * dim * ROUNDING * max_norm * norms_Q


def count_relevant(positives, scores_J):
    """(positives of the same query with a higher score than each, those with the same score, itself included)."""
    above_J, equal_J = np.zeros(len(scores_J), np.int64), np.ones(len(scores_J), np.int64)
    for row in np.flatnonzero(positives.lengths > 1):
        pairs = slice(positives.offsets[row], positives.offsets[row + 1])
        above_J[pairs] = (scores_J[None, pairs] > scores_J[pairs, None]).sum(axis=1)
        equal_J[pairs] = (scores_J[None, pairs] == scores_J[pairs, None]).sum(axis=1)
    return above_J, equal_J


def decades(errors_Q):
    """Return the shares of queries by their errors, 0, 1 to 9, 10 to 99, … (SA, Figure 3): [{"from": lowest number of
    errors, "queries": share, "errors": share of all errors}], up to the largest number of errors."""
    decade_Q = np.where(errors_Q > 0, np.floor(np.log10(np.maximum(errors_Q, 1))) + 1, 0).astype(np.int64)
    share_of = [np.bincount(decade_Q) / len(errors_Q), np.bincount(decade_Q, errors_Q) / max(errors_Q.sum(), 1)]
    lowest = [0, *(10**power for power in range(len(share_of[0]) - 1))]
    shares = zip(lowest, *map(np.ndarray.tolist, share_of), strict=True)
    return [{"from": low, "queries": queries, "errors": errors} for low, queries, errors in shares]
