"""Mining, and the pool of training negatives."""

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, ValidationError, WithJsonSchema, field_validator, model_validator

from teleport.refusal import Refusal
from teleport.settings.encoder import Encoder
from teleport.settings.index import Index
from teleport.settings.pool import Draw, FileForm, Pool, RanksAfter, Removal
from teleport.settings.registry import (
    DRAWS,
    DRAWS_BY_RANK,
    FILTERS,
    POSITIVES,
    RELABELLINGS,
    SOURCES,
    WITHOUT_RANKS,
    chosen,
    compared,
    filters,
    has_function,
    settings_of_source,
)
from teleport.settings.section import (
    Depth,
    Integer,
    LocalPath,
    Natural,
    Number,
    PerQuery,
    Section,
    exactly_one,
    mistakes_of,
)
from teleport.settings.training import Live

MIXED = ("query", "lookahead", "momentum")  # the sources of the modes mixture and released_code
SourceName = Annotated[str, WithJsonSchema({"type": "string", "enum": list(SOURCES)})]
ChosenDraw, Filters = chosen(DRAWS, "draw", "draws"), filters()
Relabelling = chosen(RELABELLINGS, "relabelling", "relabellings")
# Settings that may decide how many negatives a pool has of each source, and those read only for a pool.
OF_MIXTURE = {"alpha", "beta", "pool"}
OF_COUNTS = OF_MIXTURE | {"mode", "sources", "per_source"}
OF_A_POOL = OF_COUNTS | {"ranks", "draw", "draws", "filters"}


class Start(Section):
    """A checkpoint of an experiment of the configuration, under the same seed."""

    experiment: str = Field(description="Name of the experiment.")
    episode: Integer | Literal["last"] = Field(
        "last", description="The checkpoint after this episode; 0: before the first."
    )


class MinedBy(Section):
    """A checkpoint that mines: exactly one of experiment, external, encoder."""

    experiment: str | None = Field(None, description="An experiment of the configuration, under the same seed.")
    episode: Integer | Literal["last"] = Field(
        "last", description="Its checkpoint after this episode; 0: before the first."
    )
    external: str | None = Field(None, description="An entry of `external` with an encoder.")
    encoder: Encoder | None = Field(None, description="Another dual encoder, with the keys of `encoder`.")

    one_kind = exactly_one("experiment", "external", "encoder")

    @model_validator(mode="after")
    def episodes_are_of_experiments(self):
        if "episode" in self.model_fields_set and self.experiment is None:
            raise Refusal("episode goes with experiment: a checkpoint from elsewhere has none. Leave it out")
        return self


class Mining(Section):
    """Retrieval of negative candidates."""

    checkpoint: Literal["previous", "pretrained"] | MinedBy = Field(
        "previous",
        description="Which checkpoint mines: the previous episode's, the pretrained one, or another one: an "
        "experiment's, an `external` one, or an encoder's of its own, of any width and tokenizer.",
    )
    depth: Depth = Field(
        200,
        description="Neighbours per anchor (Table 5: 200). If set, a smaller corpus is an error; if not, it is cut "
        "to the corpus.",
    )
    anchor: Literal["first", "all"] = Field(
        "first", description="Lookahead anchors: a query's first positive (released), or all."
    )
    parts: Natural = Field(
        1, description="Number of parts of the queries; each episode mines and trains on the next part (ANCE: 5)."
    )
    index: Index = Field(Index(), description="Index that mining searches: Flat, or a faiss index text.")


class NegativesFile(Section):
    """A file of negatives made elsewhere."""

    path: LocalPath = Field(description="JSON lines or JSON, plain or .gz.")
    form: FileForm = Field(
        "tevatron",
        description="tevatron: lines of query_id and negative_passages with docid, or with text if ids are missing. "
        "pos-neg to triples: as `teleport export` writes them. origin: the .origin.jsonl that `teleport mine` writes "
        "beside any form. dpr: hard_negative_ctxs. token-ids: ANCE-Tele's released lines of query, positives and "
        "negatives as token ids.",
    )


class OfSource(Section):
    """How many negatives of a source, and all of the source's own settings."""

    model_config = ConfigDict(extra="allow")

    count: Integer = Field(description="Negatives per query.")


class Negatives(Removal):
    """The training negatives of an episode: a pool, or what every step searches for."""

    sources: list[Literal["query", "lookahead", "momentum"]] = Field(
        list(MIXED),
        min_length=1,
        description="Neighbours of the query, neighbours of its positive (lookahead), and the last pool (momentum).",
    )
    mode: Literal["mixture", "released_code"] = Field(
        "mixture", description="mixture: counts per source by alpha and beta (Appendix C); released_code: equal counts."
    )
    alpha: Number = Field(0.5, ge=0, le=1, description="mixture: share of momentum negatives (ANCE-Tele Table 5: 0.5).")
    beta: Number = Field(0.5, ge=0, le=1, description="mixture: share of lookahead among the new ones (Table 5: 0.5).")
    pool: PerQuery = Field(
        60, description="mixture: negatives per query; all are held in memory (released Episode 1: 30 + 30)."
    )
    per_source: PerQuery = Field(
        30,
        description="released_code: new negatives per source (30 MARCO, 80 QA); a single source gives twice as many. "
        "Without momentum, as many more as the last pool had.",
    )
    counts: dict[SourceName, Integer | OfSource] | None = Field(
        None,
        description="Source → negatives per query, instead of a mode; {}: only those of the batch. With a source's "
        "own settings: {count: 10, ...}, as in neighbours: {count: 20, by: [miner, NAME]}, the lists of the miner and "
        "of the named `teachers`.",
    )
    ranks: dict[SourceName, list[tuple[Integer, Integer]]] = Field(
        {}, description="Source → ranks to draw from, such as [[1, 20], [181, 200]], counted as ranks_after says."
    )
    file: NegativesFile | None = Field(None, description="What the source `file` reads.")
    live: Live | None = Field(
        None, description="Every step searches for its negatives (ADORE); null: they come from a pool."
    )
    filters: Filters = Field(Filters(), description="Leave out probable false negatives.")
    ranks_after: RanksAfter = Field(
        "removals",
        description="What is removed before ranks are counted (for ranks, skip_ranks, rank-decay). removals: known "
        "positives; filters: also what filters by score drop.",
    )
    draw: ChosenDraw = Field(
        "uniform",
        validate_default=True,
        description="How negatives are chosen. uniform: with equal chances; top: the highest scores; around: near "
        "s+ (SimANS); triangle: TriSampler; stratified: equally from all strata of scores; rank-decay: "
        "first ranks more often.",
    )
    draws: dict[SourceName, ChosenDraw] = Field({}, description="Source → another draw for this source.")

    relabel: Relabelling | None = Field(
        None,
        description="What happens to the pool's probable positives; null: nothing. rlhn: a judge's scores or "
        "verdicts make them positives or drop them; arhn: a judge's order and answers decide; answers: "
        "a passage with an answer becomes a positive.",
    )

    @field_validator("counts", "ranks", "draws")
    @classmethod
    def sources_are_known(cls, by_source):
        for name in by_source or ():
            if name not in SOURCES:
                raise Refusal(f"there is no source {name!r}; sources are {', '.join(SOURCES)}")
        return by_source

    @field_validator("counts")
    @classmethod
    def counts_are_possible(cls, counts):
        for name, given in (counts or {}).items():
            count, settings = (given.count, given.model_extra) if isinstance(given, OfSource) else (given, {})
            if count < 0:
                raise Refusal("a count cannot be below 0")
            if count > 100_000:
                raise Refusal(f"a count of {count} is more than 100,000: all are held in memory")
            try:
                settings = settings_of_source(name, settings)
            except ValidationError as error:
                mistake = mistakes_of(error)[0]
                key, unknown = ".".join(map(str, mistake["loc"])), mistake["type"] == "extra_forbidden"
                message = mistake["msg"].removeprefix("Value error, ")
                problem = f" has no setting {key!r}" if unknown else f".{key}: {message}"
                raise Refusal(f"{name}{problem}") from None
            counts = counts | ({name: OfSource.model_construct(count=count, **settings)} if settings else {})
        return counts

    @field_validator("ranks")
    @classmethod
    def ranks_rise(cls, ranks):
        for name, ranges in ranks.items():
            ordered = all(a <= b for a, b in ranges) and all(before[1] < after[0] for before, after in pairwise(ranges))
            if not ranges or ranges[0][0] < 1 or not ordered:
                raise Refusal(f"ranks of {name} must be ascending ranges from 1 on, such as [[1, 20], [181, 200]]")
            if SOURCES[name].needs in WITHOUT_RANKS:
                raise Refusal(f"{name} has no ranks: it is not a retrieval")
        return ranks

    @model_validator(mode="after")
    def something_is_mined(self):
        if self.counts is None and not {"query", "lookahead"} & set(self.sources):
            raise Refusal("sources needs query or lookahead: momentum alone has nothing to start from")
        if self.count_of("file") and self.file is None:
            raise Refusal("counts has the source file: name what it reads in `file`")
        return self

    @model_validator(mode="after")
    def draws_by_rank_have_ranks(self):
        for name in self.drawn:
            if (kind := self.draw_of(name).kind) in DRAWS_BY_RANK and SOURCES[name].needs in WITHOUT_RANKS:
                raise Refusal(
                    f"draw {kind} needs ranks, but {name} is not a retrieval: give it another draw, such as "
                    f"draws: {{{name}: uniform}}"
                )
        return self

    @property
    def drawn(self):
        """The names of the sources with a count, or among which a mode divides the pool (list)."""
        return self.sources if self.counts is None else list(filter(self.count_of, self.counts))

    def count_of(self, name):
        """How many negatives of a source `counts` gives."""
        given = (self.counts or {}).get(name, 0)
        return given.count if isinstance(given, OfSource) else given

    def settings_of(self, name):
        """The source's own settings (dict), with their defaults."""
        given = (self.counts or {}).get(name)
        return given.model_extra if isinstance(given, OfSource) else {}

    @property
    def miners(self):
        """The names (list) of those whose lists the source `neighbours` unites."""
        return self.settings_of("neighbours").get("by", []) if self.count_of("neighbours") else []

    def draw_of(self, name):
        """How the negatives of a source are drawn (settings.section.Chosen)."""
        return self.draws.get(name, self.draw)

    def of_pool(self, **others):
        """The settings.Pool of a merge stage: those of these settings that it takes, and `others`."""
        filters = self.filters.on
        whose = self.filters.scores if any(FILTERS[name].scores for name in filters) else None
        ranked = ranks_count(others["sources"], filters)
        after = self.ranks_after if ranked and (whose or self.ranks_after == "nothing") else "removals"
        pool = Pool.taken_from(self, filters=filters, filter_scores=whose, ranks_after=after, **others)
        judges = sorted(whose for whose, pairs in compared(pool).items() if POSITIVES in pairs)
        update = {"positive_score": self.filters.positive_score, "positive_judges": judges} if judges else {}
        if self.remove == "answers":  # then no judgment removes anything
            update["relevant_grade"] = Removal.model_fields["relevant_grade"].default
        return pool.model_copy(update=update)


def ranks_count(draws, filters):
    """Whether ranks decide what a pool takes. draws: {source: Draw}; filters: names of those that are on"""
    by_rank = any(has_function(FILTERS[name], "drops_ranks") for name in filters)
    listed = [draw for name, draw in draws.items() if SOURCES[name].needs not in WITHOUT_RANKS]
    return any(by_rank or draw.ranks or draw.draw.kind in DRAWS_BY_RANK for draw in listed)


# ---- Negatives per source. Modes become counts here, so no stage knows about modes.


def mixture_counts(pool, sources, alpha, beta):
    """{source: negatives per query} of mode `mixture`; the counts sum to `pool` (ANCE-Tele, Appendix C).

    Shares: momentum alpha, lookahead (1 - alpha) * beta, query (1 - alpha) * (1 - beta); the share of a source that is
    not in `sources` goes to the others. Rounding by largest remainder, ties to the first of query, lookahead, momentum.
    """
    new = 1 - alpha if "momentum" in sources else 1
    lookahead = beta if {"query", "lookahead"} <= set(sources) else float("lookahead" in sources)
    shares = {"query": new * (1 - lookahead), "lookahead": new * lookahead, "momentum": 1 - new}
    exact = {source: round(pool * shares[source], 9) for source in shares if source in sources}
    counts = {source: int(share) for source, share in exact.items()}
    by_remainder = sorted(counts, key=lambda source: counts[source] - exact[source])
    for source in by_remainder[: pool - sum(counts.values())]:
        counts[source] += 1
    return counts


def released_counts(per_source, sources, last_size):
    """{source: negatives per query} of mode `released_code`: 2 * per_source more than the last pool had, whatever the
    sources.

    With momentum the last pool is taken whole and 2 * per_source negatives are new; otherwise all are new. Query and
    lookahead share the new ones equally (released code). For fewer sources nothing was released; pools of equal size
    make them comparable.
    """
    retrievals = [source for source in ("query", "lookahead") if source in sources]
    new = 2 * per_source + (0 if "momentum" in sources else last_size)
    counts = {source: new // len(retrievals) for source in retrievals}
    return counts | ({"momentum": last_size} if "momentum" in sources and last_size else {})


def resolve_draws(negatives, last_size):
    """{source: Draw} of an episode by its settings.Negatives, in registry order. last_size: of the last pool, or 0"""
    if negatives.counts is not None:
        available = [name for name in negatives.counts if last_size or SOURCES[name].needs != "last_pool"]
        counts = {name: negatives.count_of(name) for name in available}
    elif negatives.mode == "released_code":
        counts = released_counts(negatives.per_source, negatives.sources, last_size)
    else:
        available = [name for name in negatives.sources if name != "momentum" or last_size]
        counts = mixture_counts(negatives.pool, available, negatives.alpha, negatives.beta)
    draws = {}
    for name, source in SOURCES.items():
        if count := counts.get(name):
            how = {"draw": negatives.draw_of(name), "ranks": negatives.ranks.get(name), "scored": source.scored}
            draws[name] = Draw(count=count, place=len(draws), **how, **negatives.settings_of(name))
    return draws


def keys_read(negatives, last_size):
    """Return the names (set) of the settings of `negatives` that decide how many negatives a pool has of each
    source."""
    if negatives.counts is not None:
        return {"counts"}
    if negatives.mode == "released_code":
        return {"mode", "sources", "per_source"}
    both = {"query", "lookahead"} <= set(negatives.sources)
    return {"mode", "sources", "pool", *(["alpha"] if last_size else []), *(["beta"] if both else [])}
