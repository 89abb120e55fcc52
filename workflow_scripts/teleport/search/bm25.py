"""Stage `bm25`: the best passages of queries by BM25, Lucene's formula: a baseline, and a source of negatives."""

import time

import numpy as np
import pyarrow.parquet as pq

from teleport.runtime.arrays import save_array
from teleport.runtime.blocks import RowBlocks
from teleport.search.lexical import LexicalIndex
from teleport.search.terms import Terms
from teleport.settings.search import Bm25Settings as Settings  # noqa: F401
from teleport.settings.search import LexicalIndexSettings

BLOCK_QUERIES = 1024  # searched at a time, after which a killed run can go on


def run(job):
    """Rank the passages for the queries of one split with the index of the stage `lexical_index`.

    Writes ids.npy int32 and scores.npy float32 [num_queries, depth], rows.npy int32 (0, 1, …). Ties go to the smaller
    passage number. As in Lucene, a passage that shares no term with the query is not retrieved: where fewer than
    `depth` do, the rest of the line has id -1 and score 0.

    Facts: num_queries, depth, mean_retrieved (passages per query), queries_per_second of this run.
    """
    settings = job.settings
    path = job.input("collection", f"queries.{settings.split}.parquet")
    texts = pq.read_table(path, columns=["text"]).column("text").to_pylist()
    queries = query_terms(job, texts)
    index = LexicalIndex.open(job, "index")
    shape = (len(queries), settings.depth)
    blocks = RowBlocks(job, {"ids.npy": (np.int32, shape), "scores.npy": (np.float32, shape)}, BLOCK_QUERIES)
    todo, started = len(queries) - blocks.done, time.monotonic()
    for start, stop in blocks:
        ids_QK, scores_QK = index.search(queries[start:stop], settings.depth, job.threads)
        blocks["ids.npy"][start:stop], blocks["scores.npy"][start:stop] = ids_QK, scores_QK
        blocks.totals["retrieved"] += int((ids_QK >= 0).sum())
        job.progress(stop, len(queries), "queries")
    blocks.publish()
    save_array(job.output("rows.npy"), np.arange(len(queries), dtype=np.int32))
    mean, speed = blocks.totals["retrieved"] / max(len(queries), 1), todo / (time.monotonic() - started)
    counts = {"num_queries": len(queries), "depth": settings.depth}
    return counts | {"mean_retrieved": mean, "queries_per_second": round(speed, 1)}


def query_terms(job, texts):
    """The terms of the queries by the numbers of the index (a list of lists); those that it does not have are left out.

    Of the index's terms only those of the queries are kept in memory.
    """
    terms = Terms(LexicalIndexSettings.model_validate(job.inputs["index"].manifest["settings"]))
    queries = [terms.of(text) for text in texts]
    indexed, first = {}, 0
    for batch in pq.ParquetFile(job.input("index", "terms.parquet")).iter_batches(columns=["term"]):
        names = batch.column("term").to_pylist()
        indexed |= {terms.numbers[name]: first + place for place, name in enumerate(names) if name in terms.numbers}
        first += len(names)
    return [[indexed[number] for number in query if number in indexed] for query in queries]
