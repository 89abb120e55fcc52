"""Stage `merge`: the pool of negatives of an episode (ANCE-Tele, Eq. 4-6 and Appendix C).

Per training query: neighbours of the query and of its positive (lookahead), known positives removed, sampled without
replacement, then joined with the momentum negatives, in the order query, positive, momentum. With `remove: answers`
(released, NQ and TriviaQA) every passage whose text has an answer of the question is removed, and nothing else: a
judged passage without an answer can be a negative. Known positives leave the momentum negatives too: with `positives:
answers` a positive may be one that an earlier episode did not know.

mode `mixture`: `pool` negatives per query, shared by alpha and beta; momentum negatives are sampled from the pool of
the last episode, so those of older episodes decay geometrically. mode `released`: what the released code does,
`per_source` negatives of each retrieval and the whole last pool, without decay. A list that is too short gives what
it has: nothing tops it up, the queries concerned are counted.
"""

import numpy as np
import pyarrow.parquet as pq

from teleport.collection.answers import find_answers
from teleport.collection.reader import positives_of_job, read_answers
from teleport.negatives.draw import draw_slots, hash_ids, mixture_counts
from teleport.negatives.pool import POSITIVE, QUERY, Items, PoolWriter, count_duplicates, drop_duplicates, read_pool
from teleport.negatives.sources import Momentum, Retrieval
from teleport.runtime.seed import derive_seed

RETRIEVALS = {"query": ("queries", QUERY), "positive": ("positives", POSITIVE)}
BLOCK_SLOTS = 2**18  # candidates handled at once: 2 MB of draws and of each step between, which a cache holds


def run(job):
    """Merge the sources of `job` into a pool; returns the facts.

    facts: negatives; drawn and short_queries {source: n}; first_episodes {episode: n}; empty_queries; overlap (share
    of drawn slots that repeat a passage of the same query); wanted {source: n per query}.
    Raises ValueError when no retrieval is among the sources.
    """
    if not {"query", "positive"} & set(job.settings.sources):
        raise ValueError(
            f"negatives.sources leaves episode {job.settings.episode} with {job.settings.sources}: a pool needs "
            "neighbours of the query or of its positive. Add `query` or `positive` to negatives.sources."
        )
    query_ids = pq.read_table(job.input("collection", "queries.train.parquet"), columns=["query_id"])["query_id"]
    merge = Merge(job.settings, open_sources(job), hash_ids(query_ids.to_pylist()))
    writer = PoolWriter(job.output)
    for first, last in merge.blocks():
        writer.append(*merge.block(first, last))
        job.progress(last, len(query_ids), "queries")
    offsets = writer.close()
    return merge.facts() | {
        "negatives": int(offsets[-1]),
        "empty_queries": int(np.count_nonzero(np.diff(offsets) == 0)),
    }


class Merge:
    """Draws and joins the negatives of a block of queries, and counts what happened."""

    def __init__(self, settings, sources, hashes_Q):
        self.settings, self.sources, self.hashes_Q = settings, sources, hashes_Q
        self.wanted = wanted_counts(settings)
        self.seeds = {name: derive_seed(settings.seed, "merge", name, settings.episode) for name in sources}
        self.drawn, self.short = dict.fromkeys(sources, 0), dict.fromkeys(self.wanted, 0)
        self.duplicates, self.first_episodes = 0, np.zeros(settings.episode + 1, np.int64)

    def blocks(self):
        """Yield (first, last) of consecutive query rows that go as one block: its rows have the length of its longest.

        So a query with very many anchors makes a small block of its own neighbourhood, and none of the others.
        """
        widths_Q, first = np.maximum.reduce([source.widths_Q for source in self.sources.values()]), 0
        while first < len(widths_Q):
            at_most = BLOCK_SLOTS // max(1, int(widths_Q[first]))
            widest = np.maximum.accumulate(widths_Q[first : first + at_most])
            fit = np.count_nonzero(widest * np.arange(1, len(widest) + 1) <= BLOCK_SLOTS)
            last = first + max(1, int(fit))
            yield first, last
            first = last

    def draw(self, name, first, last):
        """Negatives of one source: (`Items` [Q, N], filled_QN)."""
        source = self.sources[name]
        candidates_QS = source.candidates(first, last)
        count = self.wanted.get(name, candidates_QS.shape[1])
        slots_QN, filled_QN = draw_slots(candidates_QS, self.hashes_Q[first:last], self.seeds[name], count)
        self.drawn[name] += int(np.count_nonzero(filled_QN))
        if name in self.short:
            self.short[name] += int(np.count_nonzero(np.count_nonzero(candidates_QS, axis=1) < count))
        return source.take(first, last, slots_QN), filled_QN

    def block(self, first, last):
        """The pools of query rows first to last - 1: (their lengths int64 [Q], flat `Items`)."""
        parts, filled = zip(*(self.draw(name, first, last) for name in self.sources), strict=True)
        filled_QN = np.hstack(filled)
        padded = Items(*(np.hstack(fields) for fields in zip(*parts, strict=True)))
        self.duplicates += count_duplicates(padded.passages, filled_QN)
        items, queries = Items(*(field[filled_QN] for field in padded)), np.nonzero(filled_QN)[0]
        if not self.settings.keep_duplicates:
            queries, items = drop_duplicates(queries, items)
        self.first_episodes += np.bincount(items.first_episodes, minlength=len(self.first_episodes))
        return np.bincount(queries, minlength=last - first), items

    def facts(self):
        return {
            "wanted": self.wanted,
            "drawn": self.drawn,
            "short_queries": self.short,
            "overlap": self.duplicates / max(1, sum(self.drawn.values())),
            "first_episodes": {str(n): int(count) for n, count in enumerate(self.first_episodes) if n},
        }


def wanted_counts(settings):
    """{source: negatives per query}; in mode `released` without momentum, which is taken whole."""
    if settings.mode == "released":
        return {source: settings.per_source for source in settings.sources if source != "momentum"}
    alpha, beta = getattr(settings, "alpha", None), getattr(settings, "beta", None)
    return mixture_counts(settings.pool, settings.sources, alpha, beta)


def open_sources(job):
    """{source: `Retrieval` or `Momentum`} of the job's settings, in the order of the pool."""
    positives, sources = positives_of_job(job, "train"), {}
    by_answers = getattr(job.settings, "remove", "judged") == "answers"
    if by_answers:
        positives = np.zeros_like(positives[0]), positives[1][:0]  # none is removed as such
    for name in ("query", "positive"):
        if name in job.settings.sources:
            role, flag = RETRIEVALS[name]
            ids, scores, rows = (np.load(job.input(role, f"{n}.npy"), mmap_mode="r") for n in ("ids", "scores", "rows"))
            ids = without_answers(job, ids, rows) if by_answers else ids
            sources[name] = Retrieval(ids, scores, rows, positives, flag, job.settings.episode)
    if "momentum" in job.settings.sources:
        sources["momentum"] = Momentum(read_pool(lambda name: job.input("momentum", name)), positives)
    return sources


def without_answers(job, ids, rows):
    """The lists `ids` [L, D] of the query rows `rows` with -1 where a passage has an answer of the question."""
    answers_Q = read_answers(job.inputs["collection"], "train")
    corpus = job.input("collection", "corpus.parquet")
    return np.where(find_answers(corpus, ids, [answers_Q[row] for row in rows]), np.int32(-1), ids)
