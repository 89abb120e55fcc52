"""The pool of negatives of an episode: the negatives of every query, and the origin of each."""

import json
from collections import namedtuple
from pathlib import Path
from typing import NamedTuple

import numpy as np

from teleport.arrays import GrowingArray, offsets_of, pair_keys, save_array
from teleport.negatives.budget import FIELDS
from teleport.running.files import write_json

MINERS = ("query", "lookahead", "neighbours.miner")  # roles of a pool: retrievals whose vectors score its negatives
NAMES = "sources.json"  # beside the arrays: the names of the sources, whose places are the bits of `sources`


def is_mined(roles, sources):
    """Whether a checkpoint mined for a pool, so that its scores are that checkpoint's q·d. roles: of its inputs;
    sources: the `settings.pool.Source` of each (iterable)"""
    return not {"scores.miner", *MINERS}.isdisjoint(roles) or any(source.scored for source in sources)


class Items(namedtuple("Items", FIELDS)):
    """Negatives with their origin: arrays of one shape, [Q, N] with padding or flat. passages: row numbers; sources: a
    bit for each source that gave the negative, by its place in the pool's list of names; a negative through momentum
    keeps the bits of its earlier sources; first_episodes: 1, 2, ...; ranks: 1-based, in the list that the passage first
    came from, 0 without one; scores: q·d under the checkpoint that mined for this pool, NaN if nothing needed it; if
    none mined, as the file of negatives gives it. Other scores of a list (d+·d, BM25) are in its own stage, at that
    rank."""


class Pool(NamedTuple):
    """The negatives of all queries: row q has items[offsets[q] : offsets[q + 1]]. names: of the sources (list of str);
    offsets: int64 [Q + 1]; items: flat"""

    names: list
    offsets: np.ndarray
    items: Items

    @property
    def bits(self):
        """{name of a source: its bit in items.sources}."""
        return {name: 1 << place for place, name in enumerate(self.names)}


def read_pool(path_of):
    """The `Pool` of a merge stage, memory-mapped; `path_of(name)` gives the path of an artefact."""
    items = Items(*(np.load(path_of(f"{name}.npy"), mmap_mode="r") for name in FIELDS))
    names = json.loads(Path(path_of(NAMES)).read_text(encoding="utf-8"))
    return Pool(names, np.load(path_of("offsets.npy")), items)


class PoolWriter:
    """Writes the artefacts of a merge stage block by block: a pool may be larger than memory. names: of its sources"""

    def __init__(self, path_of, names):
        write_json(path_of(NAMES), list(names))
        self.offsets_path, self.lengths = path_of("offsets.npy"), []
        self.arrays = [GrowingArray(path_of(f"{name}.npy"), dtype) for name, dtype in FIELDS.items()]

    def append(self, lengths_Q, items=()):
        """Add the next queries: the number of negatives of each, and their flat `Items`, if any."""
        self.lengths.append(lengths_Q)
        for array, field in zip(self.arrays, items, strict=bool(items)):
            array.append(field)

    def close(self):
        """Finish all files; returns offsets, int64 [Q + 1]."""
        for array in self.arrays:
            array.close()
        offsets = offsets_of(np.concatenate(self.lengths))
        save_array(self.offsets_path, offsets)
        return offsets


def count_duplicates(passages_QN, filled_QN):
    """How many filled slots repeat a passage that the same query already has (int)."""
    sorted_QN = np.sort(np.where(filled_QN, passages_QN, -1), axis=1)
    return int(np.count_nonzero((sorted_QN[:, 1:] == sorted_QN[:, :-1]) & (sorted_QN[:, 1:] >= 0)))


def drop_duplicates(queries, items):
    """Keep the first occurrence of every passage of a query (int [n], one of each flat item), in order: (queries,
    items). It unites the sources of all occurrences and has the earliest of their first episodes."""
    keys = pair_keys(queries, items.passages)
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    firsts = order[starts]
    sources, first_episodes = items.sources.copy(), items.first_episodes.copy()
    sources[firsts] = np.bitwise_or.reduceat(sources[order], starts)
    first_episodes[firsts] = np.minimum.reduceat(first_episodes[order], starts)
    items, kept = items._replace(sources=sources, first_episodes=first_episodes), np.sort(firsts)
    return queries[kept], Items(*(field[kept] for field in items))
