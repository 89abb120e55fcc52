"""Stage `forgetting`: how many training queries an episode makes a retriever forget (ANCE-Tele Figure 4, Table 9)."""

import numpy as np

from teleport.arrays import Run, save_array
from teleport.evaluation.measures import first_hit_reciprocals
from teleport.reader import positives_of_job
from teleport.settings.section import NoSettings as Settings  # noqa: F401

DEPTH = 100  # of the reciprocal rank: MRR@100 in the paper


def run(job):
    """Compare the retrievals of the training queries before and after an episode. Writes forgotten.npy, bool [Q]: the
    queries whose reciprocal rank falls. Facts: rate (their share, the forgetting rate), gained (the share of queries
    whose reciprocal rank rises), mrr_before, mrr_after, num_queries."""
    before, after = Run.read(job, "before"), Run.read(job, "after")
    positives = positives_of_job(job, "train")
    before_Q, after_Q = (reciprocal_ranks(run.ids, [positives[row] for row in run.rows]) for run in (before, after))
    forgotten_Q = forgets(before_Q, after_Q)
    save_array(job.output("forgotten.npy"), forgotten_Q)
    return {
        "rate": float(np.mean(forgotten_Q)),
        "gained": float(np.mean(forgets(after_Q, before_Q))),
        "mrr_before": float(before_Q.mean()),
        "mrr_after": float(after_Q.mean()),
        "num_queries": len(before_Q),
    }


def forgets(before_Q, after_Q):
    """bool [Q]: the reciprocal rank is lower after an episode; the share is the forgetting rate (ANCE-Tele, §5.4)."""
    return after_Q < before_Q


def reciprocal_ranks(ids_QK, positives):
    """1 / rank of the first positive among the first 100 passages of each query, 0 without one (float64 [Q]). ids_QK:
    the passages of a `Run`"""
    hits = [np.isin(ids, given) for ids, given in zip(ids_QK[:, :DEPTH], positives, strict=True)]
    return first_hit_reciprocals(np.reshape(hits, ids_QK[:, :DEPTH].shape))
