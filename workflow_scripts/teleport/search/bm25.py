"""Stage `bm25`: lexical search, Lucene's formula as bm25s implements it: a baseline, and a source of negatives."""

from functools import partial

import bm25s
import numpy as np
import pyarrow.parquet as pq
import Stemmer

from teleport.runtime.arrays import Run
from teleport.settings.search import Bm25Settings as Settings  # noqa: F401


def run(job):
    """Rank the passages for the queries of one split by BM25 over "title text" (the text alone: title "none").

    Writes ids.npy int32 and scores.npy float32 [num_queries, depth], rows.npy int32 (0, 1, …). Ties go to the smaller
    passage number. As in Lucene, a passage that shares no term with the query is not retrieved: where fewer than
    `depth` do, the rest of the line has id -1 and score 0.

    Facts: num_queries, depth, vocabulary, mean_retrieved (passages per query).
    """
    settings = job.settings
    tokenise = tokeniser(settings)
    passages = tokenise(passage_texts(job.input("collection", "corpus.parquet"), settings.title))
    bm25 = bm25s.BM25(method="lucene", k1=settings.k1, b=settings.b)
    bm25.index(passages, show_progress=False)
    queries = pq.read_table(job.input("collection", f"queries.{settings.split}.parquet"), columns=["text"])
    terms = tokenise(queries.column("text").to_pylist(), return_ids=False)
    ids_QK = np.full((len(terms), settings.depth), -1, np.int32)
    scores_QK = np.zeros((len(terms), settings.depth), np.float32)
    for row, query in enumerate(terms):
        if query:  # bm25s refuses one without terms
            scores_P = bm25.get_scores(query)
            ids = best(scores_P, settings.depth)
            ids_QK[row, : len(ids)], scores_QK[row, : len(ids)] = ids, scores_P[ids]
        job.progress(row + 1, len(terms), "queries")
    Run(ids_QK, scores_QK, np.arange(len(terms))).write(job)
    counts = {"num_queries": len(terms), "depth": settings.depth, "vocabulary": len(passages.vocab)}
    return counts | {"mean_retrieved": float((ids_QK >= 0).sum(axis=1).mean()) if len(terms) else 0.0}


def tokeniser(settings):
    """A function of texts: lower-cased words of two letters or more, without stop words, stemmed.

    Raises ValueError for an unknown stemmer (and bm25s does for an unknown stop word list).
    """
    if settings.stemmer and settings.stemmer not in Stemmer.algorithms():
        names = ", ".join(Stemmer.algorithms())
        raise ValueError(f"bm25.stemmer is {settings.stemmer!r}; Snowball has {names}. Choose one of them, or null.")
    stemmer = Stemmer.Stemmer(settings.stemmer) if settings.stemmer else None
    return partial(bm25s.tokenize, stopwords=settings.stopwords or [], stemmer=stemmer, show_progress=False)


def passage_texts(path, title):
    """What BM25 reads of each passage, in order: title and text, or the text alone when `title` is "none"."""
    columns = ["text"] if title == "none" else ["title", "text"]
    texts = [column.to_pylist() for column in pq.read_table(path, columns=columns).columns]
    return [" ".join(parts) for parts in zip(*texts, strict=True)]


def best(scores_P, depth):
    """Numbers of at most `depth` passages with the highest scores above 0, best first, ties by the smaller number."""
    matches = np.flatnonzero(scores_P > 0)
    if len(matches) > depth:
        last = np.partition(scores_P[matches], -depth)[-depth]
        matches = matches[scores_P[matches] >= last]
    return matches[np.argsort(-scores_P[matches], kind="stable")][:depth]
