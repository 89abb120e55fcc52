"""Queries of a split that are trained on, too: what is measured with them says little of new queries."""

import pyarrow.compute as pc
import pyarrow.parquet as pq


def trained_too(train, split):
    """How many queries of a split are training queries, by id and text: sets that number their queries anew share ids.

    train, split: the files queries.SPLIT.parquet of a collection
    """
    trained, queries = (pq.read_table(path, columns=["query_id", "text"]) for path in (train, split))
    rows = pc.index_in(queries["query_id"], value_set=trained["query_id"])
    return pc.sum(pc.equal(trained["text"].take(rows), queries["text"])).as_py() or 0
