"""Stage `bm25`: the first passages of queries by BM25, Lucene's formula: a baseline, and a source of negatives. Every
posting is added, none skipped by a bound, in float32 and in the order of the query's terms: so both bm25s and this have
the same bits."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numba import njit

from teleport.arrays import save_array
from teleport.running.blocks import RowBlocks
from teleport.search.lexical_index import Terms
from teleport.settings.search import Bm25Settings as Settings  # noqa: F401
from teleport.settings.search import LexicalIndexSettings

WINDOW = 1 << 14  # passages whose sums are in the processor's cache at a time
QUERIES = 64  # that a thread takes at a time
BLOCK_QUERIES = 1024  # searched at a time, after which a killed run can go on


def run(job):
    """Rank the passages for the queries of one split with the index of the stage `lexical_index`.

    Writes ids.npy int32 and scores.npy float32 [num_queries, depth], ties by the smaller passage number, and rows.npy
    int32 (0, 1, …). As in Lucene, a passage that shares no term with the query is not retrieved: such lines end with id
    -1 and score 0.

    Facts: num_queries, depth, mean_retrieved (passages per query), queries_per_second of this run.
    """
    settings = job.settings
    path = job.input("collection", f"queries.{settings.split}.parquet")
    queries = query_terms(job, pq.read_table(path, columns=["text"])["text"].to_pylist())
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
    return {
        "num_queries": len(queries),
        "depth": settings.depth,
        "mean_retrieved": blocks.totals["retrieved"] / max(len(queries), 1),
        "queries_per_second": round(todo / (time.monotonic() - started), 1),
    }


def query_terms(job, texts):
    """The numbers of the queries' terms in the index (a list of lists), which alone are kept in memory; others are left
    out."""
    terms = Terms(LexicalIndexSettings.model_validate(job.inputs["index"].manifest["settings"]))
    queries = [terms.of(text) for text in texts]
    batches = pq.ParquetFile(job.input("index", "terms.parquet")).iter_batches(columns=["term"])
    names = (name for batch in batches for name in batch.column("term").to_pylist())
    indexed = {terms.numbers[name]: row for row, name in enumerate(names) if name in terms.numbers}
    return [[indexed[number] for number in query if number in indexed] for query in queries]


class LexicalIndex(NamedTuple):
    """The postings of term t are offsets[t] to offsets[t + 1]: its passages in rising order, and its score in each.
    offsets int64 [terms + 1]; passages int32 [postings]; scores float32 [postings], all above 0; memory maps"""

    offsets: np.ndarray
    passages: np.ndarray
    scores: np.ndarray
    num_passages: int

    @classmethod
    def open(cls, job, role):
        """The index that the stage in `role` made, memory-mapped."""
        arrays = (np.load(job.input(role, f"{name}.npy"), mmap_mode="r") for name in cls._fields[:3])
        return cls(*map(np.asarray, arrays), job.facts(role)["num_passages"])

    def search(self, queries, depth, threads):
        """The passages of highest score for queries, lists of term numbers with repeats: ids int32 and scores float32
        [Q, depth], ties by the smaller passage number; -1 and 0 where fewer passages have a term of the query."""
        ids_QK = np.full((len(queries), depth), -1, np.int32)
        scores_QK = np.zeros((len(queries), depth), np.float32)

        def search_block(first):
            block = slice(first, first + QUERIES)
            ends = np.cumsum([0, *map(len, queries[block])])
            terms = np.array([term for query in queries[block] for term in query], np.int64)
            keep_highest(ends, terms, *self, ids_QK[block], scores_QK[block])

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(search_block, range(0, len(queries), QUERIES)))
        order_QK = np.lexsort((ids_QK, -scores_QK))
        return np.take_along_axis(ids_QK, order_QK, 1), np.take_along_axis(scores_QK, order_QK, 1)


@njit(nogil=True)
def keep_highest(ends, terms, offsets, passages, scores, num_passages, ids_QK, scores_QK):
    """Put the first passages of queries terms[ends[q] : ends[q + 1]] into ids_QK and scores_QK: heaps, worst first.
    Windows of passages keep their sums in the cache: a pass over the postings adds, a second reads and resets each
    sum."""
    sums, one = np.zeros(WINDOW, np.float32), np.uint64(1)  # unsigned: no test for indexes from the end
    for query in range(len(ends) - 1):
        query_terms, ids_K, scores_K = terms[ends[query] : ends[query + 1]], ids_QK[query], scores_QK[query]
        firsts, limits = offsets[query_terms].astype(np.uint64), offsets[query_terms + 1].astype(np.uint64)
        stops, worst = firsts.copy(), np.float32(0)
        for window in range(0, num_passages, WINDOW):
            for term in range(len(query_terms)):
                posting, end = firsts[term], limits[term]
                while posting < end and passages[posting] < window + WINDOW:
                    sums[np.uint32(passages[posting] - window)] += scores[posting]
                    posting += one
                stops[term] = posting
            for term in range(len(query_terms)):
                posting, stop = firsts[term], stops[term]
                while posting < stop:
                    cell = np.uint32(passages[posting] - window)
                    score = sums[cell]
                    sums[cell] = 0
                    if score >= worst and score > 0 and (score > worst or passages[posting] < ids_K[0]):
                        replace_worst(ids_K, scores_K, passages[posting], score)
                        worst = scores_K[0]
                    posting += one
                firsts[term] = stop


@njit(nogil=True)
def replace_worst(ids_K, scores_K, passage, score):
    """Replace the root of a heap, its worst passage: the lowest score, then the largest number."""
    node, child = 0, 1
    while child < len(ids_K):
        other = child + 1
        if other < len(ids_K) and worse(scores_K[other], ids_K[other], scores_K[child], ids_K[child]):
            child = other
        if not worse(scores_K[child], ids_K[child], score, passage):
            break
        ids_K[node], scores_K[node] = ids_K[child], scores_K[child]
        node, child = child, 2 * child + 1
    ids_K[node], scores_K[node] = passage, score


@njit(nogil=True)
def worse(score, passage, other_score, other_passage):
    """Whether a passage (score, number) comes after another: a lower score, or an equal one and a higher number."""
    return score < other_score or (score == other_score and passage > other_passage)
