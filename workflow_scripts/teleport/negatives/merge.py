"""Stage `merge`: the pool of negatives of an episode (ANCE-Tele, Eq. 4-6 and Appendix C).

Per training query, as many candidates of each source as the settings say, sampled without replacement from what it has
without passages that are known to be relevant or that a filter takes for relevant; fewer where it has fewer. The pool
lists them source by source in the order of their flags. With a `part` its queries alone get negatives.

With `remove: answers` (released, NQ and TriviaQA) every passage whose text has an answer of the question is removed,
and nothing else: a judged passage without an answer can be a negative. Momentum negatives are sampled from the pool of
the last episode, so those of older ones decay geometrically, unless the whole pool is wanted (the released code).
They lose what this episode knows: with `positives: answers` a positive may be one that earlier episodes did not know.
"""

from functools import partial

import numpy as np

from teleport.negatives.draw import Candidates, draw_slots, hashes_of_job
from teleport.negatives.known_positives import known_passages
from teleport.negatives.pool import Items, PoolWriter, count_duplicates, drop_duplicates
from teleport.negatives.scores import MinerScores
from teleport.running.log import log
from teleport.seed import derive_seed
from teleport.settings.pool import Pool as Settings  # noqa: F401

BLOCK_SLOTS = 2**18  # candidates handled at once: 2 MB of draws and of each step between, which a cache holds
# The name in a source's seed, where it is not its own: another one would draw other negatives than published results.
SEED_NAMES = {"lookahead": "positive"}


def run(job):
    """Merge the sources of `job` into a pool. Facts: queries, negatives; wanted {source: n per query}; drawn and
    short_queries {source: n}; first_episodes {episode: n}; empty_queries; overlap (share of drawn slots that repeat a
    passage of the same query); filters, when one looks at scores (see `MinerScores.facts`)."""
    known = known_passages(job)
    sources = {name: job.load(name).open_source(job, name, known) for name in job.settings.sources}
    choose = partial(job.load("draw").choose, **job.settings.draw.own)
    scores = MinerScores(job) if "queries" in job.inputs else None  # the plan gives vectors where scores are looked at
    merge = Merge(job.settings, sources, hashes_of_job(job), choose, scores)
    begin, end = job.settings.part.rows(len(known)) if job.settings.part else (0, len(known))
    writer = PoolWriter(job.output)
    writer.append(np.zeros(begin, np.int64))
    for first, last in merge.blocks(begin, end):
        writer.append(*merge.block(first, last))
        job.progress(last, end, "queries")
    writer.append(np.zeros(len(known) - end, np.int64))
    lengths = np.diff(writer.close())
    for name, wanted in merge.wanted.items():
        if merge.drawn[name] < (end - begin) * wanted / 2:
            gives = f"gives {merge.drawn[name] / max(1, end - begin):.1f} negatives per query in the mean, not {wanted}"
            log.warning("%s %s: its lists are short, or filters and known passages leave little", name, gives)
    if empty := int(np.count_nonzero(lengths[begin:end] == 0)):
        log.warning("%d of %d queries have no negative: filters and known passages leave none", empty, end - begin)
    return merge.facts() | {"queries": end - begin, "negatives": int(lengths.sum()), "empty_queries": empty}


class Merge:
    """Draws and joins the negatives of a block of queries, and counts what happened.

    sources: {name: object as negatives/sources describes it}; hashes_Q: uint64, of the queries' ids; choose: function
    of a draw, as negatives/draws describes it; scores: `MinerScores`, where the draw or a filter looks at them
    """

    def __init__(self, settings, sources, hashes_Q, choose, scores=None):
        self.settings, self.sources, self.hashes_Q = settings, sources, hashes_Q
        self.choose, self.scores = choose, scores
        self.wanted = {name: settings.sources[name].count for name in sources}
        self.drawn, self.short = dict.fromkeys(sources, 0), dict.fromkeys(sources, 0)
        self.duplicates, self.first_episodes = 0, np.zeros(settings.episode + 1, np.int64)

    def blocks(self, first, end):
        """Yield (first, last) of the query rows of each block of rows `first` to `end` - 1.

        All rows of a block take as many slots as its longest, so a query with very many anchors makes its own block
        small, and no other.
        """
        widths_Q = np.maximum.reduce([source.widths_Q for source in self.sources.values()])
        while first < end:
            at_most = BLOCK_SLOTS // max(1, int(widths_Q[first]))
            widest = np.maximum.accumulate(widths_Q[first : min(end, first + at_most)])
            fit = np.count_nonzero(widest * np.arange(1, len(widest) + 1) <= BLOCK_SLOTS)
            last = first + max(1, int(fit))
            yield first, last
            first = last

    def draw(self, name, first, last):
        """Negatives of one source: (`Items` [Q, N], filled_QN)."""
        source, count = self.sources[name], self.wanted[name]
        available_QS, scores = source.candidates(first, last), ()
        if self.scores:
            scores_QS = self.scores.of(first, source.passages(first, last), available_QS)
            scores = scores_QS, self.scores.positive_scores_Q[first:last]
            available_QS = self.scores.kept(name, first, scores_QS, available_QS, count)
        seed = derive_seed(self.settings.seed, "merge", SEED_NAMES.get(name, name), self.settings.episode)
        candidates = Candidates(available_QS, self.hashes_Q[first:last], seed, *scores)
        slots_QN, filled_QN = draw_slots(self.choose, candidates, count)
        self.drawn[name] += int(np.count_nonzero(filled_QN))
        self.short[name] += int(np.count_nonzero(np.count_nonzero(available_QS, axis=1) < count))
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
        """What the manifest keeps of all blocks (dict)."""
        facts = {"wanted": self.wanted, "drawn": self.drawn, "short_queries": self.short}
        facts["overlap"] = self.duplicates / max(1, sum(self.drawn.values()))
        facts["first_episodes"] = {str(n): int(count) for n, count in enumerate(self.first_episodes) if n}
        return facts | ({"filters": self.scores.facts()} if self.scores and self.scores.filters else {})
