"""Measures how far storing passages in float16 changes the results of a search."""

import numpy as np

QUERIES, DEPTH = 32, 200  # texts whose nearest passages are compared; passages of each


class Overlap:
    """The nearest passages of some texts (float32 [Q, D]) by exact and by float16 vectors, block by block."""

    def __init__(self, queries_QD):
        self.queries_QD, self.passages = queries_QD, 0
        self.best = [(np.empty((len(queries_QD), 0), np.float32), np.empty((len(queries_QD), 0), np.int64))] * 2

    def add(self, exact_BD, stored_BD):
        """Compare the queries with a block of passages."""
        ids_B = np.arange(self.passages, self.passages + len(exact_BD))
        ids_QB = np.broadcast_to(ids_B, (len(self.queries_QD), len(ids_B)))
        for form, vectors_BD in enumerate((exact_BD, stored_BD.astype(np.float32))):
            added = self.queries_QD @ vectors_BD.T, ids_QB
            scores_QM, ids_QM = (np.hstack(pair) for pair in zip(self.best[form], added, strict=True))
            kept_QK = np.argpartition(-scores_QM, min(DEPTH, scores_QM.shape[1]) - 1, axis=1)[:, :DEPTH]
            self.best[form] = [np.take_along_axis(values, kept_QK, 1) for values in (scores_QM, ids_QM)]
        self.passages += len(exact_BD)

    def state(self):
        """Return the state for `restore` (plain JSON, under a megabyte); JSON's numbers keep every bit of float32."""
        return {"passages": self.passages, "best": [[values.tolist() for values in form] for form in self.best]}

    def restore(self, state):
        """Continue from the `state` of another `Overlap` of the same queries."""
        self.passages = state["passages"]
        self.best = [(np.array(scores, np.float32), np.array(ids, np.int64)) for scores, ids in state["best"]]

    def facts(self):
        """overlap: the mean share of the nearest passages that are also nearest by float16; {} without a passage."""
        if not self.passages:
            return {}
        (_, exact_QK), (_, stored_QK) = self.best
        share = np.mean([np.isin(*ids).mean() for ids in zip(exact_QK, stored_QK, strict=True)])
        facts = {"overlap": round(float(share), 5), "overlap_depth": exact_QK.shape[1]}
        return facts | {"overlap_queries": len(exact_QK), "overlap_passages": self.passages}
