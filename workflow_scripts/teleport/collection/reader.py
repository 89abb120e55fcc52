"""A finished collection as other stages read it: positives of each query as flat arrays of row numbers, and answers.

Apart from `canonical`, so that an edit to the validation of files reruns only the collection, not what reads it.
"""

import pyarrow.parquet as pq

from teleport.runtime.arrays import Ragged


def read_positives(collection, split, grade=None):
    """The positives of all queries of a split, from the Artefact of a collection stage.

    A `Ragged` of passage rows (int32), a list per query row, in the order of the judgments: those judged `grade` or
    higher, or as high as the collection's positives.
    """
    num_queries = pq.read_metadata(collection.path(f"queries.{split}.parquet")).num_rows
    columns = ["query", "passage", "grade"]
    qrels = pq.read_table(collection.path(f"qrels.{split}.parquet"), columns=columns)
    query, passage, judged = (qrels[name].to_numpy() for name in columns)
    positive = judged >= (collection.facts["positive_grade"] if grade is None else grade)
    return Ragged.grouped(query[positive], passage[positive], num_queries)


def positives_of_job(job, split):
    """The positives of all queries of a split, as `read_positives` returns them, from the inputs of a job.

    Those of the stage `positives` (training queries, by answer match) where the job reads one, else the judged ones.
    """
    if "positives" in job.inputs:
        return Ragged.open(*(job.input("positives", f"{name}.npy") for name in ("offsets", "passages")))
    return read_positives(job.inputs["collection"], split)


def read_answers(collection, split):
    """The answers of all queries of a split, from the Artefact of a collection stage: a list (maybe empty) each.

    Raises ValueError when the split has no answers at all.
    """
    if f"answers.{split}.parquet" not in collection.manifest["files"]:
        remedy = f"Add answers.{split}.jsonl to the collection, or leave answer coverage and answer rules out."
        raise ValueError(f"the split {split!r} has no answers, so no passage can be looked at for one. {remedy}")
    query_ids = pq.read_table(collection.path(f"queries.{split}.parquet"), columns=["query_id"])["query_id"]
    table = pq.read_table(collection.path(f"answers.{split}.parquet"))
    answers = dict(zip(table["query_id"].to_pylist(), table["answers"].to_pylist(), strict=True))
    return [answers.get(query_id, []) for query_id in query_ids.to_pylist()]
