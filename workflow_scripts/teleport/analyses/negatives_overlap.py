"""Stage `negatives_overlap`: the share of a training query's negatives that the checkpoint trained on them ranks among
its first 100 passages, positives left out (fewer than 100 if the search is less deep); the mean over queries (ANCE,
Section 6.3 and Figure 3; no code was released)."""

import numpy as np

from teleport.arrays import Run
from teleport.negatives.pool import read_pool
from teleport.reader import positives_of_job
from teleport.refusal import Refusal
from teleport.settings.measures import NegativesOverlapSettings as Settings  # noqa: F401


def run(job):
    """Compare a pool with a retrieval of the training queries. A negative that is in the pool twice counts once. Facts:
    overlap (mean over the queries that have negatives), num_queries (with negatives), depth."""
    pool, neighbours = read_pool(lambda name: job.input("negatives", name)), Run.read(job, "queries")
    positives, shares = positives_of_job(job, "train"), []
    for line, row in enumerate(neighbours.rows):
        negatives = np.unique(pool.items.passages[pool.offsets[row] : pool.offsets[row + 1]])
        if len(negatives):
            ranked = neighbours.ids[line]
            first = ranked[(ranked >= 0) & ~np.isin(ranked, positives[row])][: job.settings.depth]
            shares.append(np.isin(negatives, first).mean())
        job.progress(line + 1, len(neighbours.rows), "queries")
    if not shares:
        raise Refusal("evaluation.analyses.negatives: no training query has negatives. Set it to false.")
    return {"overlap": float(np.mean(shares)), "num_queries": len(shares), "depth": job.settings.depth}
