"""Queries of a split that are trained on, too: what is measured with them says little of new queries."""

import pyarrow.compute as pc
import pyarrow.parquet as pq


def trained_too(files):
    """Sentences (list of str) on the splits with queries that are training queries, by id and text: sets that number
    their queries anew share ids.

    files: {split: its queries.SPLIT.parquet}; without train there are none
    """
    if "train" not in files:
        return []
    tables = {split: pq.read_table(path, columns=["query_id", "text"]) for split, path in files.items()}
    trained = tables.pop("train")
    numbers = {split: shared(trained, queries) for split, queries in tables.items()}
    return [
        f"Of the {split} queries {number:,} are training queries, too." for split, number in numbers.items() if number
    ]


def shared(trained, queries):
    """How many queries of a table (query_id, text) are in another one."""
    rows = pc.index_in(queries["query_id"], value_set=trained["query_id"])
    return pc.sum(pc.equal(trained["text"].take(rows), queries["text"])).as_py() or 0
