"""Stage `score`: score pairs that a draw, a filter, a loss or a mask compares and no retrieval has scored.

Pairs are a query's positives and the candidates of the sources that the settings name, or, if the stage reads a pool
(`negatives`), its negatives. Scores are inner products under one checkpoint: with the query, or (`of: positives`) with
the query's first positive in its place.
"""

import numpy as np

from teleport.arrays import GrowingArray, Ragged, offsets_of, pair_keys, rows_and_values, save_array
from teleport.negatives.candidates import blocks, open_sources
from teleport.negatives.known_positives import known_passages
from teleport.negatives.pool import read_pool
from teleport.negatives.scores import require_informative
from teleport.reader import positives_of_job
from teleport.refusal import Refusal
from teleport.search.pairs import PairScorer
from teleport.settings.pool import ScoreSettings as Settings  # noqa: F401
from teleport.settings.section import rows_of_part

BLOCK_SLOTS = 2**18  # candidates at once, as in `merge`


def run(job):
    """Write offsets.npy int64 [Q + 1], passages.npy int32 and scores.npy float32 (`scores.PairTable`). Facts: pairs,
    queries (that have some). Raises Refusal for a score that is not finite, and if all candidates score the same."""
    positives, scorer = positives_of_job(job, "train"), PairScorer.of_job(job, "train")
    score = scorer.score if job.settings.of == "queries" else of_positives(scorer, positives)
    begin, end = rows_of_part(job.settings.part, len(positives))
    scores_path = job.output("scores.npy")
    passages, scores = GrowingArray(job.output("passages.npy"), "i4"), GrowingArray(scores_path, "f4")
    lengths = [np.zeros(begin, np.int64)]
    for first, last, pairs in pairs_of_job(job, positives):
        rows, passage_rows = rows_and_values(pairs)
        passages.append(passage_rows)
        scored = score(rows, passage_rows)
        if job.settings.of == "queries" and not np.isfinite(scored).all():  # else a search refuses them
            row, passage = rows[~np.isfinite(scored)][0], passage_rows[~np.isfinite(scored)][0]
            path = job.input("passages", "passages.npy")
            raise Refusal(
                f"{path}: the score of query row {row} with passage row {passage} is not finite. The checkpoint that "
                "made the vectors is broken: give another one."
            )
        scores.append(scored)
        lengths.append(np.bincount(rows - first, minlength=last - first))
        job.progress(last, end, "queries")
    passages.close()
    scores.close()
    if job.settings.sources or "negatives" in job.inputs:  # positives alone may all be copies of their queries
        read = np.load(scores_path, mmap_mode="r")
        read = read if job.settings.of == "queries" else read[~np.isnan(read)]  # of queries without a positive
        require_informative(read, f"{job.name}, by {job.input('passages', 'passages.npy')}")
    lengths = np.concatenate([*lengths, np.zeros(len(positives) - end, np.int64)])
    save_array(job.output("offsets.npy"), offsets_of(lengths))
    return {"pairs": int(lengths.sum()), "queries": int(np.count_nonzero(lengths))}


def pairs_of_job(job, positives):
    """Yield (first, last, keys) of each block of query rows `first` to `last` - 1: the pairs that the job scores, each
    once, ascending, as `pair_keys`. positives: of the training queries (`Ragged`)"""
    sources = open_sources(job, known_passages(job)) if job.settings.sources else {}
    lists = [positives] if job.settings.of == "queries" else []
    if "negatives" in job.inputs:
        pool = read_pool(lambda name: job.input("negatives", name))
        lists.append(Ragged(pool.offsets, pool.items.passages))
    begin, end = rows_of_part(job.settings.part, len(positives))
    widths = [*(source.widths_Q for source in sources.values()), *(each.lengths for each in lists)]
    for first, last in blocks(widths, begin, end, BLOCK_SLOTS):
        yield first, last, np.unique(np.concatenate(list(keys_of(first, last, sources.values(), lists))))


def keys_of(first, last, sources, lists):
    """Yield `pair_keys` of the queries from row `first` on and their passages."""
    for each in lists:
        start, stop = each.offsets[[first, last]]
        rows = np.repeat(np.arange(first, last), each.lengths[first:last])
        yield pair_keys(rows, each.values[start:stop])
    for source in sources:
        block = source.block(first, last)
        rows, slots = np.nonzero(block.there_QS)
        yield pair_keys(first + rows, block.passages_QS[rows, slots])


def of_positives(scorer, positives):
    """Function of (query rows, passage rows): float32 d+·d of each query's first positive, NaN without a positive."""
    by_passage = PairScorer(scorer.vectors, scorer.vectors, None)

    def score(rows, passages):
        known = positives.lengths[rows] > 0
        scores = np.full(len(rows), np.nan, np.float32)
        scores[known] = by_passage.score(positives.values[positives.offsets[rows[known]]], passages[known])
        return scores

    return score
