"""Stage `bm25`: the top passages of queries by BM25 (bm25s): a baseline, and a source of negatives.

bm25s adds the scores of all passages. Its own selection of the top ones breaks ties at random: it gave other passages
to a fifth of the queries at depth 100, and to two thirds at depth 1,000. So the selection is done here.
"""

import time

import bm25s
import numpy as np
import pyarrow.parquet as pq

from teleport.arrays import save_array
from teleport.running.blocks import RowBlocks
from teleport.running.launch import processes_apart
from teleport.running.log import log
from teleport.search.budget import LEAST_QUERIES
from teleport.search.lexical_index import subwords, tokenizer
from teleport.settings.search import Bm25Settings as Settings  # noqa: F401
from teleport.settings.search import LexicalIndexSettings

ARRAYS = ("offsets", "passages", "scores")  # of the index
TASK_QUERIES = 64  # per task of a process
BLOCK_QUERIES = 1024  # searched at a time; a killed run continues after the last block
MANY_WITHOUT_TERMS = 0.05  # of the queries
ADVICE = {
    "words": "The passages do not have their words. Set bm25.terms to characters, or to subwords, if the language has "
    "no spaces between words, such as Chinese, or vowel signs, such as Hindi.",
    "characters": "Are queries and passages in one language?",
    "subwords": "Are queries and passages in one language, and has the encoder's tokenizer their script? Else set "
    "bm25.terms to characters.",
}


def run(job):
    """Rank the passages for the queries of one split with the index of the stage `lexical_index`.

    Writes ids.npy int32 and scores.npy float32 [num_queries, depth], ties by the smaller passage number, and rows.npy
    int32 (0, 1, …). As in Lucene, a passage that shares no term with the query is not retrieved: such lines end with id
    -1 and score 0.

    Facts: num_queries, depth, mean_retrieved (passages per query), without_terms (the share of queries without a term
    in the index), earlier_seconds (before this process), queries_per_second of this run.
    """
    settings = job.settings
    path = job.input(f"split.{settings.split}", f"queries.{settings.split}.parquet")
    index = LexicalIndexSettings.model_validate(job.inputs["index"].manifest["settings"])
    queries = query_terms(job, index, pq.read_table(path, columns=["text"])["text"].to_pylist())
    without_terms = sum(not query for query in queries) / max(len(queries), 1)
    if without_terms > MANY_WITHOUT_TERMS:
        log.warning(
            "%.0f %% of the %s queries have no term that is in the index, so BM25 finds nothing for them. %s",
            *(100 * without_terms, settings.split, ADVICE[index.terms]),
        )
    shape = (len(queries), settings.depth)
    blocks = RowBlocks(job, {"ids.npy": (np.int32, shape), "scores.npy": (np.float32, shape)}, BLOCK_QUERIES)
    todo, started = len(queries) - blocks.done, time.monotonic()
    shared = [job.input("index", f"{name}.npy") for name in ARRAYS], job.facts("index")["num_passages"], settings.depth
    with processes_apart(max(1, min(job.threads, todo // LEAST_QUERIES)), shared) as parallel_map:
        for start, stop in blocks:
            tasks = [queries[first : min(first + TASK_QUERIES, stop)] for first in range(start, stop, TASK_QUERIES)]
            ids_QK, scores_QK = map(np.concatenate, zip(*parallel_map(search, tasks), strict=True))
            blocks["ids.npy"][start:stop], blocks["scores.npy"][start:stop] = ids_QK, scores_QK
            blocks.totals["retrieved"] += int((ids_QK >= 0).sum())
            job.progress(stop, len(queries), "queries")
    blocks.publish()
    save_array(job.output("rows.npy"), np.arange(len(queries), dtype=np.int32))
    return {
        "num_queries": len(queries),
        "depth": settings.depth,
        "without_terms": without_terms,
        "mean_retrieved": blocks.totals["retrieved"] / max(len(queries), 1),
        "earlier_seconds": round(blocks.earlier, 3),
        "queries_per_second": round(todo / (time.monotonic() - started), 1),
    }


def query_terms(job, index, texts):
    """The numbers of the queries' terms in the index (a list of lists), without terms that it does not have. index: its
    settings"""
    if index.terms == "subwords":
        has = np.diff(np.load(job.input("index", "offsets.npy"))) > 0
        lists, _ = subwords(job, f"queries.{job.settings.split}")
        return [[number for number in numbers if has[number]] for numbers in lists]
    splitter = tokenizer(index)
    names = pq.read_table(job.input("index", "terms.parquet"), columns=["term"])["term"].to_pylist()
    numbers = {name: number for number, name in enumerate(names)}
    splitter.stem_to_sid, splitter.word_to_id = (numbers, {}) if splitter.stemmer else ({}, numbers)
    return list(splitter.streaming_tokenize(texts, update_vocab=False, allow_empty=False))


def open_index(paths, num_passages):
    """bm25s over the arrays of a stage `lexical_index`, memory-mapped. paths: of ARRAYS"""
    offsets, passages, scores = (np.load(path, mmap_mode="r") for path in paths)
    index = bm25s.BM25(method="lucene")
    index.scores = {"indptr": offsets, "indices": passages, "data": scores, "num_docs": num_passages}
    index.nonoccurrence_array = None  # only other formulas score passages without a term
    return index


def search(shared, queries):
    """The passages with the highest scores for queries, given as lists of term numbers with repeats: ids int32 and
    scores float32 [Q, depth], ties by the smaller number. Where fewer passages share a term with the query: -1 and 0.
    shared: (paths of ARRAYS, num_passages, depth)"""
    paths, num_passages, depth = shared
    index, shape = open_index(paths, num_passages), (len(queries), depth)
    ids_QK, scores_QK = np.full(shape, -1, np.int32), np.zeros(shape, np.float32)
    for row, query in enumerate(queries):
        if query:
            scores_P = index.get_scores_from_ids(query)
            first = first_passages(scores_P, depth)
            ids_QK[row, : len(first)], scores_QK[row, : len(first)] = first, scores_P[first]
    return ids_QK, scores_QK


def first_passages(scores_P, depth):
    """The passages with the highest scores above 0 (int64, at most `depth`), ties by the smaller number."""
    matches = np.flatnonzero(scores_P > 0)
    if len(matches) > depth:
        last = np.partition(scores_P[matches], -depth)[-depth]
        matches = matches[scores_P[matches] >= last]
    return matches[np.argsort(-scores_P[matches], kind="stable")][:depth]
