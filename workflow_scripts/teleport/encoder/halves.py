"""Vectors of passages kept in float16, and how far that changes what a search finds."""

import numpy as np

QUERIES, DEPTH = 32, 200  # whose nearest passages are compared, and how many
LARGEST = float(np.finfo(np.float16).max)


def halved(vectors_BD):
    """float32 [B, D] as float16. Raises ValueError when a number has no place there."""
    if np.abs(vectors_BD).max(initial=0) > LARGEST:
        raise ValueError(
            f"encoder.vectors: fp16 has numbers up to {LARGEST:.0f}, a passage's vector has "
            f"{np.abs(vectors_BD).max():g}. Set encoder.vectors to fp32."
        )
    return vectors_BD.astype(np.float16)


class Overlap:
    """The nearest passages of some vectors by exact and by halved ones, while the passages are encoded.

    queries_QD: float32, the vectors of queries, or of passages where no queries are encoded
    """

    def __init__(self, queries_QD):
        self.queries_QD, self.passages = queries_QD, 0
        self.best = [(np.empty((len(queries_QD), 0), np.float32), np.empty((len(queries_QD), 0), np.int64))] * 2

    def add(self, exact_BD, halved_BD):
        """Compare the queries with a block of passages."""
        for number, vectors_BD in enumerate((exact_BD, halved_BD.astype(np.float32))):
            scores_QC, ids_QC = self.best[number]
            scores_QC = np.hstack([scores_QC, self.queries_QD @ vectors_BD.T])
            ids_B = np.arange(self.passages, self.passages + len(vectors_BD))
            ids_QC = np.hstack([ids_QC, np.broadcast_to(ids_B, (len(ids_QC), len(ids_B)))])
            kept_QC = np.argpartition(-scores_QC, min(DEPTH, scores_QC.shape[1]) - 1, axis=1)[:, :DEPTH]
            self.best[number] = [np.take_along_axis(values, kept_QC, 1) for values in (scores_QC, ids_QC)]
        self.passages += len(exact_BD)

    def facts(self):
        """overlap: the mean share of the nearest passages that halved vectors find too; over how many of what.

        Nothing (dict) where no passage was encoded.
        """
        if not self.passages:
            return {}
        (_, exact_QK), (_, halved_QK) = self.best
        share = np.mean([np.isin(*ids).mean() for ids in zip(exact_QK, halved_QK, strict=True)])
        found = {"overlap": round(float(share), 5), "overlap_depth": exact_QK.shape[1]}
        return found | {"overlap_queries": len(exact_QK), "overlap_passages": self.passages}
