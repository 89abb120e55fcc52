"""Stage `rerank`: re-ranks the passages of a given run by an encoder's scores (ANCE, Table 1: rerank). As released
(evaluation notebook of ANCE), these are inner products with all candidates of a query."""

import numpy as np

from teleport.arrays import Run
from teleport.search.pairs import PairScorer, ranked
from teleport.settings.search import RerankSettings as Settings  # noqa: F401


def run(job):
    """Order the passages of every query of the run `candidates` by their scores, ties by the smaller number.

    Writes ids.npy int32 and scores.npy float32, shaped like the candidates, with id -1 and score 0 in empty slots, and
    rows.npy int32. Facts: num_queries, candidates (all of them).
    """
    candidates, scorer = Run.read(job, "candidates"), PairScorer.of_job(job, job.settings.split)
    ids_QK, scores_QK = np.full(candidates.ids.shape, -1, np.int32), np.zeros(candidates.ids.shape, np.float32)
    for line, row in enumerate(candidates.rows):
        ids = candidates.ids[line][candidates.ids[line] >= 0]
        if len(ids):
            best = ranked(scorer.score(row, ids)[None], ids[None], len(ids))
            ids_QK[line, : len(ids)], scores_QK[line, : len(ids)] = best[0][0], best[1][0]
        job.progress(line + 1, len(candidates.rows), "queries")
    Run(ids_QK, scores_QK, np.array(candidates.rows)).write(job)
    return {"num_queries": len(candidates.rows), "candidates": int(np.count_nonzero(ids_QK >= 0))}
