"""From passages to documents: MaxP and FirstP (ANCE, Table 1).

A document that is longer than an encoder reads is cut into passages `DOCUMENT#0`, `DOCUMENT#1`, …; a run of passages
becomes a run of documents by each document's best passage (MaxP), or by its first one alone (FirstP).
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from teleport.evaluation.judged import Judgments


class Documents:
    """The documents that the passages of a collection belong to.

    doc_ids: ids of the passages (Arrow strings [num_passages]); a document's id is what stands before the last
    `separator`, or the whole id where there is none. Documents are numbered in the order of their first passages.
    """

    def __init__(self, doc_ids, separator):
        parts = pc.split_pattern(doc_ids, separator, max_splits=1, reverse=True)
        encoded = pc.list_element(parts, 0).cast(pa.string()).dictionary_encode()
        self.names = encoded.dictionary
        self.document_P = encoded.indices.to_numpy().astype(np.int32)
        self.first_P = np.zeros(len(doc_ids), bool)
        self.first_P[np.unique(self.document_P, return_index=True)[1]] = True

    def collapse(self, ids_QK, scores_QK, mode):
        """The best (maxp) or first (firstp) passage of each document, in the order of the run: (ids, scores) [Q, K].

        ids are numbers of documents, -1 and score 0 where a list has fewer than K. -1 in `ids_QK` is an empty slot.
        """
        collapsed, scores = np.full_like(ids_QK, -1), np.zeros_like(scores_QK)
        for row, ids in enumerate(ids_QK):
            counts = (ids >= 0) & (self.first_P[ids] if mode == "firstp" else True)
            documents = self.document_P[ids[counts]]
            # Lists are ranked: the first passage of a document that is met is the best one.
            firsts = np.sort(np.unique(documents, return_index=True)[1])
            collapsed[row, : len(firsts)] = documents[firsts]
            scores[row, : len(firsts)] = scores_QK[row][counts][firsts]
        return collapsed, scores

    def judge(self, judgments):
        """`Judgments` of documents from those of passages: the highest grade of their passages."""
        documents = self.document_P[judgments.passages]
        order = np.lexsort((documents, judgments.queries))
        pairs = np.stack([judgments.queries[order], documents[order]])
        starts = np.flatnonzero((np.diff(pairs, prepend=-1) != 0).any(axis=0))
        grades = judgments.grades[order]
        return Judgments(*pairs[:, starts], np.maximum.reduceat(grades, starts) if len(starts) else grades)
