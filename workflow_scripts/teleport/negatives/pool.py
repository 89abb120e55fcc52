"""The pool of negatives of an episode: what it holds for every query, and where each negative came from."""

from typing import NamedTuple

import numpy as np

# Bit flags of `sources`. A negative that came through momentum keeps the flag of the retrieval that found it.
QUERY, POSITIVE, MOMENTUM = 1, 2, 4

FIELDS = {
    "passages": np.int32,
    "sources": np.uint8,
    "first_episodes": np.uint8,
    "ranks": np.int16,
    "scores": np.float32,
}


class Items(NamedTuple):
    """Negatives with their origin; all fields have one shape, [Q, N] with padding or flat.

    passages: row numbers; sources: bit flags; first_episodes: 1, 2, ...; ranks: 1-based, in the retrieval that found
    the passage; scores: inner products of that retrieval.
    """

    passages: np.ndarray
    sources: np.ndarray
    first_episodes: np.ndarray
    ranks: np.ndarray
    scores: np.ndarray


class Pool(NamedTuple):
    """The negatives of all queries: those of query row q are items[offsets[q] : offsets[q + 1]]. offsets int64 [Q + 1]."""

    offsets: np.ndarray
    items: Items


def read_pool(path_of):
    """The `Pool` of a merge stage, memory-mapped; `path_of(name)` gives the path of an artefact."""
    items = Items(*(np.load(path_of(f"{name}.npy"), mmap_mode="r") for name in FIELDS))
    return Pool(np.load(path_of("offsets.npy")), items)


def write_pool(path_of, lengths_Q, blocks):
    """Write the artefacts of a merge stage from flat `Items` of consecutive queries; returns the `Pool`.

    `lengths_Q` is the number of negatives of each query.
    """
    offsets = np.concatenate([[0], np.cumsum(lengths_Q, dtype=np.int64)])
    columns = {"offsets": offsets}
    for name, dtype in FIELDS.items():
        columns[name] = np.concatenate([getattr(block, name) for block in blocks]).astype(dtype, copy=False)
    for name, column in columns.items():
        with open(path_of(f"{name}.npy"), "wb") as file:  # a file object: np.save adds .npy to a temporary name
            np.save(file, column, allow_pickle=False)
    return Pool(offsets, Items(*(columns[name] for name in FIELDS)))


def count_duplicates(passages_QN, filled_QN):
    """How many filled slots repeat a passage that the same query already has (int)."""
    sorted_QN = np.sort(np.where(filled_QN, passages_QN, -1), axis=1)
    return int(np.count_nonzero((sorted_QN[:, 1:] == sorted_QN[:, :-1]) & (sorted_QN[:, 1:] >= 0)))


def drop_duplicates(queries, items):
    """Keep the first occurrence of every passage of a query, in order.

    `queries` int [n] gives the query of each flat item. What stays unites the source flags of all its occurrences
    and has the earliest of their first episodes. Returns (queries, items).
    """
    keys = (queries.astype(np.int64) << 32) | items.passages
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    firsts = order[starts]
    sources, first_episodes = items.sources.copy(), items.first_episodes.copy()
    if len(starts):
        sources[firsts] = np.bitwise_or.reduceat(sources[order], starts)
        first_episodes[firsts] = np.minimum.reduceat(first_episodes[order], starts)
    kept = np.sort(firsts)
    items = items._replace(sources=sources, first_episodes=first_episodes)
    return queries[kept], Items(*(field[kept] for field in items))
