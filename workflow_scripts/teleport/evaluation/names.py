"""The ids of the passages that a run numbers, and the documents that they are parts of (MaxP and FirstP).

Passages of the collection come first, then those of the run alone. A document that is longer than an encoder reads is
cut into passages `DOCUMENT#0`, `DOCUMENT#1`, …; a run of passages becomes a run of documents by each document's best
passage (MaxP; ANCE, Table 1), or by its first one alone (FirstP).
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from teleport.evaluation.measures import Judgments
from teleport.maxp import first_of_passages

OWN_PASSAGES = "passages.parquet"  # of a stage `external` that keeps passages that are not in the collection


def read_query_ids(job, split):
    """The ids (Arrow strings) of the queries of a split, by row."""
    return read_column(job, f"queries.{split}.parquet", "query_id", f"split.{split}")


def read_column(job, file_name, column, role="corpus"):
    """One text column of a Parquet file of the stage in `role`, as one Arrow array."""
    return pq.read_table(job.input(role, file_name), columns=[column])[column].combine_chunks()


def read_doc_ids(job, role):
    """The ids (Arrow strings) by number of the passages of the run in `role`."""
    return pa.concat_arrays([read_column(job, "corpus.parquet", "doc_id"), own_ids(job, role)])


def own_ids(job, role):
    """The ids of passages that only the run in `role` has (Arrow strings)."""
    if OWN_PASSAGES not in job.inputs[role].manifest["files"]:
        return pa.array([], pa.string())
    return read_column(job, OWN_PASSAGES, "doc_id", role)


def joint_numbers(job, role, other):
    """(ids of the passages of two runs, those of `role` first; the number in them of `other`'s passages, int32)."""
    ours, theirs = read_doc_ids(job, role), own_ids(job, other)
    ids = pa.concat_arrays([ours, theirs.filter(pc.invert(pc.is_in(theirs, value_set=ours)))])
    in_corpus = np.arange(len(ours) - len(own_ids(job, role)), dtype=np.int32)
    return ids, np.concatenate([in_corpus, pc.index_in(theirs, value_set=ids).to_numpy().astype(np.int32)])


class Documents:
    """The documents that the passages (doc_ids, Arrow strings [num_passages]) belong to, in the order of their first
    passages. A document's id is the part of a passage's id before the last `separator`, or the whole id."""

    def __init__(self, doc_ids, separator):
        parts = pc.split_pattern(doc_ids, separator, max_splits=1, reverse=True)
        encoded = pc.list_element(parts, 0).cast(pa.string()).dictionary_encode()
        self.names = encoded.dictionary
        self.document_P = encoded.indices.to_numpy().astype(np.int32)
        self.first_P = np.zeros(len(doc_ids), bool)
        self.first_P[np.unique(self.document_P, return_index=True)[1]] = True

    def collapse(self, ids_QK, scores_QK, mode):
        """The best (maxp) or first (firstp) passage of each document, in the order of the run: (ids, scores) [Q, K],
        ids of documents. -1 is an empty slot, with score 0."""
        kept_QK = (ids_QK >= 0) & (self.first_P[ids_QK] if mode == "firstp" else True)
        return first_of_passages(np.where(kept_QK, self.document_P[ids_QK], -1), scores_QK, ids_QK.shape[1])

    def judge(self, judgments):
        """`Judgments` of documents from those of passages: the highest grade of their passages. A number below 0, of a
        passage that is not in the corpus, counts from the end of `doc_ids`."""
        columns = {"query": judgments.queries, "document": self.document_P[judgments.passages]}
        table = pa.table(columns | {"grade": judgments.grades})
        highest = table.group_by(["query", "document"]).aggregate([("grade", "max")])
        highest = highest.sort_by([("query", "ascending"), ("document", "ascending")])
        return Judgments(*(column.to_numpy() for column in highest.columns))
