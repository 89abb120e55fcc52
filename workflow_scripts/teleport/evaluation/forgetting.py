"""How much an episode makes a retriever forget (ANCE-Tele Figure 4 and Table 9)."""

import numpy as np

DEPTH = 100  # of the reciprocal rank: MRR@100 in the paper


def forgetting_rate(before_QK, after_QK, positives):
    """The share of training queries that lose: whose reciprocal rank@100 after an episode is lower than before it.

    before_QK, after_QK: int32 [num_queries, depth], the retrieved passages of query row q on line q, best first, -1
    where a list ends; positives: `Ragged`, those of each query.
    Raises ValueError when the two retrievals are not of the same queries.
    """
    if len(before_QK) != len(after_QK):
        found = f"the retrievals before and after the episode have {len(before_QK)} and {len(after_QK)} queries"
        raise ValueError(f"{found}: they are not of one collection. Run the workflow again.")
    before_Q, after_Q = (reciprocal_ranks(ids, positives) for ids in (before_QK, after_QK))
    return float(np.mean(after_Q < before_Q))


def reciprocal_ranks(ids_QK, positives):
    """1 / rank of the first positive among the first 100 passages of each query, 0 without one (float64 [Q])."""
    values = np.zeros(len(ids_QK))
    for query, ids in enumerate(ids_QK[:, :DEPTH]):
        hits = np.flatnonzero(np.isin(ids, positives[query]))
        values[query] = 1 / (hits[0] + 1) if len(hits) else 0.0
    return values
