"""A finished collection as other stages read it: pyarrow tables, and the positives of each query as flat arrays."""

import numpy as np
import pyarrow.parquet as pq


class Collection:
    """The collection that is the input `collection` of `job`; every file is checked against its manifest when opened.

    `num_passages`; `splits`: {split: {queries, judgments, positives, dropped}}. Row numbers are the internal ids.
    """

    def __init__(self, job):
        self.job = job
        facts = job.facts("collection")
        self.num_passages, self.splits, self.positive_grade = (
            facts[name] for name in ("num_passages", "splits", "positive_grade")
        )

    def table(self, name, columns=None):
        """The pyarrow Table `name`.parquet, all columns or those named.

        Names: corpus (doc_id, title, text); queries.SPLIT (query_id, text); qrels.SPLIT (query_id, doc_id, and int32
        grade, query and passage, the last two being rows); answers.SPLIT (query_id, answers), where there are any.
        """
        return pq.read_table(self.job.input("collection", f"{name}.parquet"), columns=columns)

    def corpus_batches(self, columns=("title", "text"), rows=8192):
        """The corpus in order as pyarrow RecordBatches of at most `rows` passages, for corpora larger than memory."""
        path = self.job.input("collection", "corpus.parquet")
        yield from pq.ParquetFile(path).iter_batches(rows, columns=list(columns))

    def positives(self, split):
        """Offsets int64 [num_queries + 1] and passages int32 [num_positives]: those of query q are
        `passages[offsets[q]:offsets[q + 1]]`, in the order of the judgments."""
        qrels = self.table(f"qrels.{split}", ["query", "passage", "grade"])
        positive = qrels["grade"].to_numpy() >= self.positive_grade
        query, passages = (qrels[name].to_numpy()[positive] for name in ("query", "passage"))
        counts = np.bincount(query, minlength=self.splits[split]["queries"])
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return offsets, passages[np.argsort(query, kind="stable")]
