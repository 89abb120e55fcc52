"""Lexical search: an inverted index on disk, and the best passages of a query by the sums of its terms' scores.

Every posting is added: no passage is skipped by a bound. The sums are float32 and in the order of the query's terms, as
bm25s adds them, so both have the same bits.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numba import njit

WINDOW = 1 << 14  # passages whose sums are in the processor's cache at a time
QUERIES = 64  # that a thread takes at a time


class LexicalIndex(NamedTuple):
    """The postings of term t are offsets[t] to offsets[t + 1]: its passages in rising order, and its score in each.

    offsets int64 [terms + 1]; passages int32 [postings]; scores float32 [postings], all above 0; memory maps
    """

    offsets: np.ndarray
    passages: np.ndarray
    scores: np.ndarray
    num_passages: int

    @classmethod
    def open(cls, job, role):
        """The index that the stage in `role` made."""
        arrays = (np.load(job.input(role, f"{name}.npy"), mmap_mode="r") for name in cls._fields[:3])
        return cls(*map(np.asarray, arrays), job.facts(role)["num_passages"])

    def search(self, queries, depth, threads):
        """The best passages of each query, a list of term numbers, repeats included.

        returns: ids int32 and scores float32 [Q, depth], best first, ties by the smaller passage number; -1 and 0
        where fewer passages than `depth` have a term of the query
        """
        ids_QK = np.full((len(queries), depth), -1, np.int32)
        scores_QK = np.zeros((len(queries), depth), np.float32)

        def search_part(first):
            part = slice(first, first + QUERIES)
            ends = np.cumsum([0, *map(len, queries[part])])
            terms = np.array([term for query in queries[part] for term in query], np.int64)
            keep_best(ends, terms, *self, ids_QK[part], scores_QK[part])

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(search_part, range(0, len(queries), QUERIES)))
        order_QK = np.lexsort((ids_QK, -scores_QK))
        return np.take_along_axis(ids_QK, order_QK, 1), np.take_along_axis(scores_QK, order_QK, 1)


@njit(nogil=True)
def keep_best(ends, terms, offsets, passages, scores, num_passages, ids_QK, scores_QK):
    """Put the best passages of queries terms[ends[q] : ends[q + 1]] into ids_QK and scores_QK: heaps, worst first.

    Passages are taken window by window, so that the sums of a window stay in the cache: a first pass over the postings
    adds, a second reads each sum and sets it back to 0.
    """
    sums_W, one = np.zeros(WINDOW, np.float32), np.uint64(1)  # unsigned: no test for indexes from the end
    for query in range(len(ends) - 1):
        query_terms, ids_K, scores_K = terms[ends[query] : ends[query + 1]], ids_QK[query], scores_QK[query]
        first_T, end_T = offsets[query_terms].astype(np.uint64), offsets[query_terms + 1].astype(np.uint64)
        stop_T, worst = first_T.copy(), np.float32(0)
        for window in range(0, num_passages, WINDOW):
            for place in range(len(query_terms)):
                posting, end = first_T[place], end_T[place]
                while posting < end and passages[posting] < window + WINDOW:
                    sums_W[np.uint32(passages[posting] - window)] += scores[posting]
                    posting += one
                stop_T[place] = posting
            for place in range(len(query_terms)):
                posting, stop = first_T[place], stop_T[place]
                while posting < stop:
                    cell = np.uint32(passages[posting] - window)
                    score = sums_W[cell]
                    sums_W[cell] = 0
                    if score >= worst and score > 0 and (score > worst or passages[posting] < ids_K[0]):
                        replace_worst(ids_K, scores_K, passages[posting], score)
                        worst = scores_K[0]
                    posting += one
                first_T[place] = stop


@njit(nogil=True)
def replace_worst(ids_K, scores_K, passage, score):
    """Put a passage in the place of the worst one of a heap: the lowest score, then the largest number."""
    place, child = 0, 1
    while child < len(ids_K):
        other = child + 1
        if other < len(ids_K) and worse(scores_K[other], ids_K[other], scores_K[child], ids_K[child]):
            child = other
        if not worse(scores_K[child], ids_K[child], score, passage):
            break
        ids_K[place], scores_K[place] = ids_K[child], scores_K[child]
        place, child = child, 2 * child + 1
    ids_K[place], scores_K[place] = passage, score


@njit(nogil=True)
def worse(score, passage, other_score, other_passage):
    return score < other_score or (score == other_score and passage > other_passage)
