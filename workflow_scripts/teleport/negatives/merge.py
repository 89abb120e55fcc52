"""Stage `merge`: the pool of negatives of an episode (ANCE-Tele, Eq. 4-6 and Appendix C), in three steps per source.

1. Candidates: the passages of the source for a query, without passages that are known to be relevant.
2. Scores of the candidates, if a draw or a filter compares them: from the source, or from a stage `score`.
3. The draw: the set number of the candidates that ranks and filters leave, without replacement; all if there are fewer.

The pool lists negatives source by source. With a `part` only its queries get negatives.

With `remove: answers` (released, NQ and TriviaQA) every passage whose text has an answer to the question is removed,
and nothing else: a judged passage without an answer can be a negative. Momentum negatives are drawn from the pool of
the last episode, so older episodes' negatives decay geometrically, unless the whole pool is taken (the released code).
Positives of this episode are removed from them: with `positives: answers` a positive may be new in this episode.
"""

from functools import cache, partial
from itertools import chain

import numpy as np

from teleport.negatives.budget import FIELDS
from teleport.negatives.candidates import blocks, open_sources
from teleport.negatives.draw import Candidates, draw_slots, hashes_of_job
from teleport.negatives.filters import chosen_filters
from teleport.negatives.known_positives import are_known, known_passages
from teleport.negatives.pool import Items, PoolWriter, count_duplicates, drop_duplicates, is_mined
from teleport.negatives.scores import FILES, PairTable, named_row, positive_scores, require_informative, require_scored
from teleport.reader import positives_of_job
from teleport.refusal import Refusal, Remedy
from teleport.running.log import log
from teleport.seed import derive_seed
from teleport.settings.pool import Pool as Settings  # noqa: F401
from teleport.settings.section import MINER, rows_of_part

BLOCK_SLOTS = 2**18  # candidates handled at once: 2 MB of draws and of each step between, which a cache holds
# The name in a source's seed, if it differs from the source's: with another one draws differ from published results.
SEED_NAMES = {"lookahead": "positive"}
PERCENTILES = {"min": 0, "p25": 25, "median": 50, "p75": 75, "p90": 90, "max": 100}
REMEDY = Remedy("a draw or a filter compares with them. Score these too, or name another judge.")
THEN = Remedy("what compares with s+ drops none of their candidates and weighs them alike")
NUM_EPISODES = np.iinfo(FIELDS["first_episodes"]).max + 1


def run(job):
    """Merge the sources of `job` into a pool. Facts: queries, negatives; wanted {source: n per query}; drawn and
    short_queries {source: n}; first_episodes {episode: n}; empty_queries; overlap (share of drawn slots that repeat a
    passage of the same query); filters, when one compares scores (see `Filters.facts`)."""
    known, part = known_passages(job), job.settings.part
    scores = Scores(job, len(known))
    filters = Filters(job, scores, len(known))
    sources, named = open_sources(job, known), partial(named_pair, job)
    mined = is_mined(job.inputs, job.settings.sources.values())
    refused = partial(never_negative, known, job.facts("corpus")["num_passages"])
    merge = Merge(job.settings, sources, hashes_of_job(job), draws_of(job), scores, filters, named, refused, mined)
    begin, end = rows_of_part(part, len(known))
    writer = PoolWriter(job.output, merge.names)
    writer.append(np.zeros(begin, np.int64))
    for first, last in blocks([source.widths_Q for source in merge.sources.values()], begin, end, BLOCK_SLOTS):
        writer.append(*merge.block(first, last))
        job.progress(last, end, "queries")
    writer.append(np.zeros(len(known) - end, np.int64))
    lengths = np.diff(writer.close())
    merge.require_weights()
    scores.require_different()
    for name, wanted in merge.wanted.items():
        if merge.drawn[name] < (end - begin) * wanted / 2:
            gives = f"gives {merge.drawn[name] / max(1, end - begin):.1f} negatives per query in the mean, not {wanted}"
            log.warning("%s %s: its lists are short, or filters, known passages or its draw leave little", name, gives)
    weightless = {row for pairs in merge.weightless.values() for row, _ in pairs if not lengths[row]}
    empty = int(np.count_nonzero(lengths[begin:end] == 0))
    if left := empty - len(weightless):
        log.warning(
            "%d of %d queries have no negative: their lists are empty, or filters and known passages leave none",
            left,
            end - begin,
        )
    return merge.facts() | {"queries": end - begin, "negatives": int(lengths.sum()), "empty_queries": empty}


def named_pair(job, row, passage):
    """A query and a passage by their ids and rows, for messages."""
    query, doc = named_row(job.inputs["split.train"], "query", row), named_row(job.inputs["corpus"], "passage", passage)
    return f"the query {query} with the passage {doc}"


def never_negative(known, num_passages, first, passages_QN):
    """bool [Q, N]: passages that no source may give the queries from row `first` on: known ones (Ragged), and numbers
    that are no passage's."""
    rows = np.arange(first, first + len(passages_QN))
    return (passages_QN < 0) | (passages_QN >= num_passages) | are_known(passages_QN, rows, known)


def draws_of(job):
    """{source: (scorer whose scores it compares, or None; function of (candidates, count))} of a merge job."""
    draws = {}
    for name, source in job.settings.sources.items():
        settings = source.draw.own
        whose = settings.pop("scores", None)
        draws[name] = whose, partial(job.load(f"draws.{source.draw.kind}").choose, **settings)
    return draws


class Merge:
    """Draws and joins the negatives of a block of queries, and counts the draws.

    sources: {name: object described in negatives/sources}; hashes_Q: uint64, of the queries' ids; draws: see
    `draws_of`; scores: `Scores`; filters: `Filters`; named: function of (query row, passage row), for messages;
    refused: `never_negative` of (first row, passages_QN); mined: `pool.is_mined`
    """

    def __init__(self, settings, sources, hashes_Q, draws, scores, filters, named, refused, mined=False):
        self.settings, self.sources, self.hashes_Q = settings, sources, hashes_Q
        self.draws, self.scores, self.filters, self.named, self.refused = draws, scores, filters, named, refused
        self.wanted = {name: settings.sources[name].count for name in sources}
        self.drawn, self.short = dict.fromkeys(sources, 0), dict.fromkeys(sources, 0)
        self.weightless = {name: [] for name in sources}  # (row, a candidate) of queries whose candidates all weigh 0
        self.duplicates, self.first_episodes = 0, np.zeros(NUM_EPISODES, np.int64)
        self.mined = mined
        earlier = (source.names for source in sources.values() if hasattr(source, "names"))
        self.names = list(dict.fromkeys([*sources, *chain.from_iterable(earlier)]))
        if len(self.names) > 8 * np.dtype(FIELDS["sources"]).itemsize:
            raise Refusal(
                f"negatives: a pool can have at most 16 sources, but has {', '.join(self.names)}. Take fewer."
            )

    def draw(self, name, first, last):
        """Negatives of one source: (`Items` [Q, N], filled_QN). Raises ValueError if it gives what is `refused`."""
        source, settings, (whose, choose) = self.sources[name], self.settings.sources[name], self.draws[name]
        block, count = source.block(first, last), settings.count
        scores = cache(partial(self.scores.of, first=first, block=block))
        available_QS, ranks_QS = self.filters.kept(name, settings, first, block, scores)
        given = self.scores.given_to(whose, first, last, scores) if whose else {}
        seed = derive_seed(self.settings.seed, "merge", SEED_NAMES.get(name, name), self.settings.episode)
        given["named"] = lambda row, slot: self.named(first + row, block.passages_QS[row, slot])
        candidates = Candidates(available_QS, self.hashes_Q[first:last], seed, ranks_QS, **given)
        slots_QN, filled_QN = draw_slots(choose, candidates, count)
        available_Q, drawn_Q = (np.count_nonzero(each, axis=1) for each in (available_QS, filled_QN))
        self.drawn[name] += int(drawn_Q.sum())
        self.short[name] += int(np.count_nonzero(available_Q < count))
        rows = np.flatnonzero((drawn_Q == 0) & (np.minimum(available_Q, count) > 0))
        if len(rows):
            passages = block.passages_QS[rows, np.argmax(available_QS[rows], axis=1)]
            self.weightless[name] += zip((first + rows).tolist(), passages.tolist(), strict=True)
        items = self.items(name, block, slots_QN, first, filled_QN)
        if (wrong_QN := filled_QN & self.refused(first, items.passages)).any():
            row, place = np.argwhere(wrong_QN)[0]
            pair = f"passage {items.passages[row, place]} to query {first + row} (rows)"
            raise ValueError(f"the source {name} gives {pair}, a known positive or no passage: see its `there_QS`")
        return items, filled_QN

    def require_weights(self):
        """Raise Refusal if a draw gives all candidates of a source weight 0 for every query; warn if for some."""
        for name in filter(self.weightless.get, self.sources):
            pairs, draw = self.weightless[name], f"negatives.draw {self.settings.sources[name].draw.kind}"
            if not self.drawn[name]:
                raise Refusal(
                    f"{draw}: the candidates of {name} have weight 0 for all {len(pairs):,} queries, the first is "
                    f"{self.named(*pairs[0])}. Change the settings of the draw, or take another one."
                )
            none = f"{len(pairs):,} queries get none of {name}, because all candidates have weight 0"
            log.warning("%s: %s; the first is %s", draw, none, self.named(*pairs[0]))

    def items(self, name, block, slots_QN, first, filled_QN):
        """The `Items` [Q, N] in the drawn slots of a source."""
        ranks_QN, sources_QN = block.positions(slots_QN), 1 << self.names.index(name)
        first_episodes_QN = self.settings.episode
        if block.sources_QS is not None:  # from an earlier pool: keeps its origin
            origin = block.sources_QS, block.first_episodes_QS, block.ranks_QS
            sources_QN, first_episodes_QN, ranks_QN = (np.take_along_axis(of, slots_QN, axis=1) for of in origin)
            sources_QN = renamed(sources_QN, self.sources[name].names, self.names)
        passages_QN = np.take_along_axis(block.passages_QS, slots_QN, axis=1)
        needs_scores = MINER in (self.draws[name][0], self.settings.filter_scores)
        scores_QN = self.scores.drawn(first, block, slots_QN, passages_QN, filled_QN & needs_scores)
        if block.given_QS is not None and not self.mined:
            scores_QN = np.take_along_axis(block.given_QS, slots_QN, axis=1)
        fields = np.broadcast_arrays(passages_QN, sources_QN, first_episodes_QN, ranks_QN, scores_QN)
        return Items(*(field.astype(dtype) for field, dtype in zip(fields, FIELDS.values(), strict=True)))

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
        """Return the facts of all blocks for the manifest (dict)."""
        facts = {"wanted": self.wanted, "drawn": self.drawn, "short_queries": self.short}
        facts["overlap"] = self.duplicates / max(1, sum(self.drawn.values()))
        counts = enumerate(self.first_episodes.tolist())
        facts["first_episodes"] = {str(n): count for n, count in counts if 1 <= n <= self.settings.episode or count}
        return facts | self.filters.facts()


def renamed(sources, names, new_names):
    """Convert bits of sources (uint16) from the places of `names` to the places of `new_names`."""
    renamed = np.zeros_like(sources)
    for place, name in enumerate(names):
        renamed |= (sources >> place & 1) << new_names.index(name)
    return renamed


class Scores:
    """Scores of candidates by each scorer: from a source, else from the tables in the roles `scores.NAME` and, with the
    first positive in place of the query, `anchors.NAME`.

    A file may lack positives: s+ is of those that it scores. If it scores none of a query's, filters that compare with
    s+ drop none of its candidates, and draws weigh them alike. Raises Refusal if it scores none of any query, and
    something compares with its s+, and if all of its scores are the same.
    """

    def __init__(self, job, num_queries):
        roles = [role for role in job.inputs if role.startswith(("scores.", "anchors."))]
        self.tables = {role: PairTable.open(job, role) for role in roles}
        for table in (table for role, table in self.tables.items() if job.inputs[role].manifest["kind"] in FILES):
            require_informative(table.scores, table.name)
        self.positive_scores = {}
        self.lowest, self.highest, self.queries = np.inf, -np.inf, 0  # of the retrieved scores that were compared
        if rule := job.settings.positive_score:
            positives, part = positives_of_job(job, "train"), job.settings.part
            begin, end = rows_of_part(part, num_queries)
            scored = (positives.rows >= begin) & (positives.rows < end)
            rows, passages = positives.rows[scored], positives.values[scored]
            for whose in job.settings.positive_judges:
                table = self.tables[role := f"scores.{whose}"]
                by_file = job.inputs[role].manifest["kind"] in FILES
                scores_Q = positive_scores(rows, table.score(rows, passages, by_file), num_queries, rule)
                self.positive_scores[whose] = scores_Q
                if by_file:
                    require_scored(table.name, scores_Q[np.unique(rows)], "training queries", REMEDY, THEN)

    def of(self, whose, first, block, role="scores"):
        """float32 [Q, S]: scores of the candidates of a source, for the queries from row `first` on; NaN in a slot
        without a candidate."""
        if role == "scores" and whose == MINER and block.scores_QS is not None:
            retrieved = block.scores_QS[block.there_QS]
            self.lowest = min(self.lowest, retrieved.min(initial=np.inf))
            self.highest = max(self.highest, retrieved.max(initial=-np.inf))
            self.queries += np.count_nonzero(block.there_QS.any(axis=1))
            return np.where(block.there_QS, block.scores_QS, np.float32(np.nan))
        rows, slots = np.nonzero(block.there_QS)
        scores_QS = np.full(block.there_QS.shape, np.nan, np.float32)
        scores_QS[rows, slots] = self.tables[f"{role}.{whose}"].score(first + rows, block.passages_QS[rows, slots])
        return scores_QS

    def require_different(self):
        """Raise Refusal if all candidates of several queries have one retrieved score: whoever mined has collapsed."""
        if self.queries > 1 and self.lowest == self.highest:
            raise Refusal(
                f"negatives: the checkpoint that mines scores all candidates of all {self.queries:,} queries "
                f"{self.lowest:g}, and a draw or a filter compares these scores. Set mining.checkpoint to another one, "
                "or train this one with a lower learning rate."
            )

    def of_positives(self, whose, first, last):
        """float32 [Q]: s+ of each query; None if nothing compares with it."""
        scores_Q = self.positive_scores.get(whose)
        return None if scores_Q is None else scores_Q[first:last]

    def given_to(self, whose, first, last, scores):
        """Return the fields of `draw.Candidates` (dict) with the scores that a draw compares."""
        given = {"scores_QS": scores(whose), "positive_scores_Q": self.of_positives(whose, first, last)}
        anchored = f"anchors.{whose}" in self.tables
        return given | ({"anchor_scores_QS": scores(whose, role="anchors")} if anchored else {})

    def drawn(self, first, block, slots_QN, passages_QN, filled_QN):
        """float32 [Q, N]: the miner's scores of the drawn slots, NaN if nothing needs them."""
        if block.scores_QS is not None:
            return np.take_along_axis(block.scores_QS, slots_QN, axis=1)
        scores_QN = np.full(slots_QN.shape, np.nan, np.float32)
        if table := self.tables.get(f"scores.{MINER}"):
            rows, places = np.nonzero(filled_QN)
            scores_QN[rows, places] = table.score(first + rows, passages_QN[rows, places])
        return scores_QN


class Filters:
    """Decides by ranks and scores which candidates may be drawn, and counts what filters by scores drop. A filter that
    compares with the positive drops no candidate of a query without s+. scores: `Scores`; num_queries: of all"""

    def __init__(self, job, scores, num_queries):
        self.settings, self.scores = job.settings, scores
        functions = ("drops_ranks", "drops_scores", "drops_anchors")
        self.by_rank, self.by_score, self.by_anchor = (chosen_filters(job, of) for of in functions)
        by_scores = [*self.by_score, *self.by_anchor]
        self.dropped = {name: dict.fromkeys(by_scores, 0) for name in job.settings.sources}
        self.left_short = dict.fromkeys(job.settings.sources, 0)
        self.dropped_Q = np.zeros(num_queries, np.int64)

    def kept(self, name, settings, first, block, scores):
        """(bool [Q, S]: the candidates of source `name` that may be drawn, int32 [Q, S]: their ranks, or None without
        lists or if nothing reads them). settings: its settings.pool.Draw; scores: function of a scorer's name, the
        scores of the candidates"""
        kept_QS, ranks_QS, after = block.there_QS, None, self.settings.ranks_after
        if after == "filters":
            kept_QS = self.kept_by_score(name, settings.count, first, kept_QS, scores)
        read = self.by_rank or settings.ranks or settings.draw.kind != "uniform"  # else nothing reads ranks
        if block.depth is not None and read:
            ranks_QS = block.counted(np.ones_like(kept_QS) if after == "nothing" else kept_QS)
            for drops, setting in self.by_rank.values():
                kept_QS = kept_QS & ~drops(ranks_QS, setting)
            if settings.ranks:
                ranges = ((ranks_QS >= low) & (ranks_QS <= high) for low, high in settings.ranks)
                kept_QS = kept_QS & np.logical_or.reduce(list(ranges))
        if after != "filters":
            kept_QS = self.kept_by_score(name, settings.count, first, kept_QS, scores)
        return kept_QS, ranks_QS

    def kept_by_score(self, name, count, first, candidates_QS, scores):
        """bool [Q, S]: candidates of source `name` that no filter drops; count: how many of them are wanted"""
        if not (self.by_score or self.by_anchor):
            return candidates_QS
        last, whose = first + len(candidates_QS), self.settings.filter_scores
        scores_QS = np.where(candidates_QS, scores(whose), np.float32(np.nan))
        positives_Q = self.scores.of_positives(whose, first, last)
        compared = [(self.by_score, None if positives_Q is None else positives_Q[:, None])]
        compared += [(self.by_anchor, scores(whose, role="anchors"))] if self.by_anchor else []
        kept_QS = candidates_QS.copy()
        for filters, others in compared:
            for rule, (drops, setting) in filters.items():
                dropped_QS = drops(scores_QS, others, setting)
                self.dropped[name][rule] += int(np.count_nonzero(dropped_QS))
                kept_QS &= ~dropped_QS
        before_Q, after_Q = (np.count_nonzero(each_QS, axis=1) for each_QS in (candidates_QS, kept_QS))
        self.dropped_Q[first:last] += before_Q - after_Q
        self.left_short[name] += int(np.count_nonzero((before_Q >= count) & (after_Q < count)))
        return kept_QS

    def facts(self):
        """filters, if one compares scores: dropped {source: {filter: candidates}}; dropped_per_query: percentiles of
        the number of candidates of a query that any filter dropped; left_short {source: queries that had enough
        candidates before and no longer have}."""
        if not (self.by_score or self.by_anchor):
            return {}
        dropped_Q = self.dropped_Q[slice(*rows_of_part(self.settings.part, len(self.dropped_Q)))]
        percentiles = {name: float(np.percentile(dropped_Q, p)) for name, p in PERCENTILES.items()}
        facts = {"dropped": self.dropped, "dropped_per_query": percentiles, "left_short": self.left_short}
        return {"filters": facts}
