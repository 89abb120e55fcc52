"""A finished collection as other stages read it: the positives of each query as flat arrays of row numbers.

Apart from `canonical`, so that an edit to the validation of files reruns only the collection, not what reads it.
"""

import numpy as np
import pyarrow.parquet as pq


def read_positives(collection, split):
    """The positives of all queries of a split, from the Artefact of a collection stage.

    Returns offsets int64 [num_queries + 1] and passages int32 [num_positives]: the positives of query row q are
    `passages[offsets[q]:offsets[q + 1]]`, in the order of the judgments.
    """
    num_queries = pq.read_metadata(collection.path(f"queries.{split}.parquet")).num_rows
    columns = ["query", "passage", "grade"]
    qrels = pq.read_table(collection.path(f"qrels.{split}.parquet"), columns=columns)
    query, passage, grade = (qrels[name].to_numpy() for name in columns)
    positive = grade >= collection.facts["positive_grade"]
    query, passage = query[positive], passage[positive]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(query, minlength=num_queries))]).astype(np.int64)
    return offsets, passage[np.argsort(query, kind="stable")]
