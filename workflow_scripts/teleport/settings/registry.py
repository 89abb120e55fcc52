"""The names in a configuration for forms of a collection, sources, draws, filters and relabellings of negatives, losses
and masks.

Each is one module and one line here. A module may declare its own settings: the class `Settings`. No stage imports
these tables: the plan tells a stage what to load. So a new line changes no stage's code, and a module's settings are in
the keys and digests of the stages that load it, and of no others.
"""

import importlib
import re
from typing import Annotated, Literal, NamedTuple, Union

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    create_model,
    model_validator,
)

from teleport.refusal import Refusal
from teleport.settings.pool import PositiveScore
from teleport.settings.section import MINER, Chosen, Judge, Number, Section, Weighted, equals
from teleport.training.seen import names_seen, needed

# By the name that `collection.source` gives.
FORMS = {
    "apidocs": "teleport.collection.forms.apidocs",
    "cloud": "teleport.collection.forms.cloud",
    "folder": "teleport.collection.forms.folder",
    "beir": "teleport.collection.forms.beir",
    "tsv": "teleport.collection.forms.tsv",
    "judgments": "teleport.collection.forms.judgments",
    "ir_datasets": "teleport.collection.forms.ir_datasets",
    "downloads": "teleport.collection.forms.downloads",
}


class Source(NamedTuple):
    """The module that reads a source, and the attribute of `plan.mining.Mining` that it needs: stage or {role: stage}.

    has_settings: whether the module declares `Settings`; the others are not loaded for the plan
    scored: whether its input has the scores of the checkpoint that mines
    """

    module: str
    needs: str | None = None
    has_settings: bool = False
    scored: bool = False


# In the order in which a pool lists its negatives.
SOURCES = {
    "query": Source("teleport.negatives.sources.retrieval", "queries", scored=True),
    "lookahead": Source("teleport.negatives.sources.retrieval", "lookahead"),
    "momentum": Source("teleport.negatives.sources.momentum", "last_pool"),
    "neighbours": Source("teleport.negatives.sources.neighbours", "neighbours", has_settings=True),
    "bm25": Source("teleport.negatives.sources.retrieval", "bm25"),
    "random": Source("teleport.negatives.sources.random"),
    "file": Source("teleport.negatives.sources.file", "file"),
}
# Sources without a ranked list have no ranks to draw from.
WITHOUT_RANKS = (None, "last_pool")

CANDIDATES, POSITIVES, ANCHORS = "candidates", "positives", "anchors"


class Method(NamedTuple):
    """The module of a draw, a filter or a mask, and the pairs whose scores a draw or a filter compares.

    CANDIDATES: of the query and each candidate; POSITIVES: of the query and its positives; ANCHORS: of its first
    positive and each candidate. The arguments of a mask name what it reads (`training.seen`).
    """

    module: str
    scores: tuple = ()


DRAWS = {
    "uniform": Method("teleport.negatives.draws.uniform"),
    "top": Method("teleport.negatives.draws.top", (CANDIDATES,)),
    "around": Method("teleport.negatives.draws.around", (CANDIDATES, POSITIVES)),
    "triangle": Method("teleport.negatives.draws.triangle", (CANDIDATES, POSITIVES, ANCHORS)),
    "stratified": Method("teleport.negatives.draws.stratified", (CANDIDATES,)),
    "rank-decay": Method("teleport.negatives.draws.rank_decay"),
}
DRAWS_BY_RANK = {"rank-decay"}

FILTERS = {
    "skip_ranks": Method("teleport.negatives.filters.skip_ranks"),
    "relative_margin": Method("teleport.negatives.filters.relative_margin", (CANDIDATES, POSITIVES)),
    "absolute_margin": Method("teleport.negatives.filters.absolute_margin", (CANDIDATES, POSITIVES)),
    "above_positive": Method("teleport.negatives.filters.above_positive", (CANDIDATES, POSITIVES)),
    "percentage": Method("teleport.negatives.filters.percentage", (CANDIDATES, POSITIVES)),
    "max_score": Method("teleport.negatives.filters.max_score", (CANDIDATES,)),
    "min_score": Method("teleport.negatives.filters.min_score", (CANDIDATES,)),
    "nearer_to_positive": Method("teleport.negatives.filters.nearer_to_positive", (CANDIDATES, ANCHORS)),
}

# Each with its settings that name a judge of the pool's pairs; one may be null.
RELABELLINGS = {
    "rlhn": Method("teleport.negatives.relabelling.rlhn", ("scores",)),
    "arhn": Method("teleport.negatives.relabelling.arhn", ("scores", "answers")),
    "answers": Method("teleport.negatives.relabelling.answers"),
}

MASKS = {
    "known_positives": Method("teleport.training.masks.known_positives"),
    "above_positive": Method("teleport.training.masks.above_positive"),
    "guide": Method("teleport.training.masks.guide"),
    "other_negatives": Method("teleport.training.masks.other_negatives"),
}


class Loss(NamedTuple):
    """The module of a loss, and the scores that it takes.

    "batch": of all passages of a batch; "own": only of a query's own negatives, which must exist; "lists": of the
    results of a live search. Its arguments name what else it reads (`training.seen`). softmax: whether it takes their
    softmax, for which cosines are too small; contrasts: whether the passages of other queries are negatives for it, and
    not what a teacher says
    """

    module: str
    takes: str = "batch"
    softmax: bool = False
    contrasts: bool = True


LOSSES = {
    "softmax": Loss("teleport.training.losses.softmax", softmax=True),
    "nll": Loss("teleport.training.losses.nll", "own"),
    "ranknet": Loss("teleport.training.losses.ranknet"),
    "hardest": Loss("teleport.training.losses.hardest"),
    "lambda": Loss("teleport.training.losses.lambda_loss", "lists"),
    "ranknet-list": Loss("teleport.training.losses.ranknet_list", "lists"),
    "kl": Loss("teleport.training.losses.kl", "own", softmax=True),
    "margin-mse": Loss("teleport.training.losses.margin_mse", "own"),
    "margin-mse-batch": Loss("teleport.training.losses.margin_mse_batch", contrasts=False),
    "listmle": Loss("teleport.training.losses.listmle", "own", softmax=True),
    "adr-mse": Loss("teleport.training.losses.adr_mse", "own"),
    "cl-drd": Loss("teleport.training.losses.cl_drd", "own"),
    "m3-kd": Loss("teleport.training.losses.m3_kd", softmax=True),
    "bixse": Loss("teleport.training.losses.bixse"),
    "distill": Loss("teleport.training.losses.distill", contrasts=False),
    "hardness": Loss("teleport.training.losses.hardness", softmax=True),
    "focal": Loss("teleport.training.losses.focal", softmax=True),
    "bidirectional": Loss("teleport.training.losses.bidirectional", softmax=True),
    "joint": Loss("teleport.training.losses.joint", softmax=True),
    "qwen3": Loss("teleport.training.losses.qwen3", softmax=True),
    "own-softmax": Loss("teleport.training.losses.own_softmax", "own", softmax=True),
}

LIVE = "teleport.training.live"  # searches at every step, if negatives.live is set
DEV = "teleport.training.dev"  # ranks dev queries during training, if training.evaluate_every is set
UNMASKED = "teleport.training.unmasked"  # counts known positives in batches, if they are negatives of a loss there


def own_settings(module):
    """The class `Settings` that a module of the registry declares; else `Section`, which has no keys."""
    return getattr(importlib.import_module(module), "Settings", Section)


def has_function(entry, name):
    """Whether the module of an entry of the registry has a function of that name."""
    return hasattr(importlib.import_module(entry.module), name)


def form(name):
    """The module of a form of a collection."""
    return importlib.import_module(FORMS[name])


CollectionSource = Annotated[
    Union[tuple(form(name).Settings for name in FORMS)],  # noqa: UP007
    Field(discriminator="source"),
]


def chosen(table, noun, nouns, becomes=Chosen, **fields):
    """The type of an entry of a table, given as NAME or as {kind: NAME, and its settings}; it becomes a `Chosen` or
    another class. fields: settings that every entry has"""

    def by_name(given):
        given = {"kind": given} if isinstance(given, str) else given
        if not isinstance(given, dict) or given.get("kind") not in list(table):  # a list is in no dict
            raise Refusal(f"there is no such {noun}; {nouns} are {', '.join(table)}")
        return given

    kinds = []
    for name, entry in table.items():
        title = re.sub("[^A-Za-z]", "", f"{name} {noun}".replace("_", " ").title())
        kinds.append(create_model(title, __base__=own_settings(entry.module), kind=(Literal[name], ...), **fields))
    one = Annotated[Union[tuple(kinds)], Field(discriminator="kind")] if len(kinds) > 1 else kinds[0]  # noqa: UP007
    named = BeforeValidator(by_name, json_schema_input_type=Literal[tuple(table)] | one)
    as_chosen = AfterValidator(lambda settings: becomes(**settings.model_dump()))
    return Annotated[one, named, as_chosen, PlainSerializer(becomes.model_dump)]


def losses():
    """The type of a loss, or of a list of losses, whose weighted sum a step minimises; a list of one is that loss."""
    weight = Number, Field(1.0, gt=0, exclude_if=equals(1.0), description="Factor of the loss in a sum of several.")
    one = chosen(LOSSES, "loss", "losses", becomes=Weighted, weight=weight)
    alone = AfterValidator(lambda several: several if len(several) > 1 else several[0])
    several = Annotated[list[one], Field(min_length=1), alone]
    which = Discriminator(lambda given: "several" if isinstance(given, list) else "one")
    return Annotated[Annotated[one, Tag("one")] | Annotated[several, Tag("several")], which]


class FiltersOn(Section):
    """Passages that are probably positives without a judgment. All are off in the papers' configurations.

    Scores are inner products with the query, whatever the source; s+ is that of the positive.
    """

    scores: Judge = Field(
        MINER,
        description="Whose scores filters compare: miner (the checkpoint that mines), file (negatives.file) or a name "
        "in `teachers`.",
    )

    positive_score: PositiveScore = Field(
        "lowest",
        description="s+ of a query with several positives. lowest: a candidate must pass beside each of them; first: "
        "the one that `positive: first` trains on.",
    )

    @model_validator(mode="after")
    def something_is_left(self):
        if None not in (self.min_score, self.max_score) and self.min_score > self.max_score:
            raise Refusal(
                f"min_score {self.min_score:g} is above max_score {self.max_score:g}, which leaves no candidate: lower "
                "min_score, or raise max_score"
            )
        return self

    @property
    def on(self):
        """{name: setting} of the filters that are not null."""
        return {name: setting for name in FILTERS if (setting := getattr(self, name)) is not None}


def filters():
    """The pydantic model of all filters, with their own settings."""
    fields = {name: (own_settings(entry.module), None) for name, entry in FILTERS.items()}
    return create_model("Filters", __base__=FiltersOn, __doc__=FiltersOn.__doc__, **fields)


def roles_of(name, inputs):
    """The roles (list) of `inputs` in which a source is read: its name, or NAME.MINER of several miners."""
    return [role for role in inputs if role == name or role.startswith(f"{name}.")]


def settings_of_source(name, given):
    """The own settings of a source (dict) from those `given`. Raises pydantic's ValidationError."""
    source = SOURCES[name]
    return (own_settings(source.module) if source.has_settings else Section).model_validate(given).model_dump()


def merge_loads(settings):
    """{name: module} that a merge stage loads, by its settings.Pool."""
    draws = {draw.draw.kind for draw in settings.sources.values()}
    loads = score_loads(settings) | {f"draws.{kind}": DRAWS[kind].module for kind in sorted(draws)}
    return loads | {f"filters.{name}": FILTERS[name].module for name in settings.filters}


def judges(relabel):
    """{setting: judge whose scores of a pool's pairs it names} of a relabelling (`Chosen`, or None)."""
    named = {name: relabel.own[name] for name in RELABELLINGS[relabel.kind].scores} if relabel else {}
    return {name: whose for name, whose in named.items() if whose is not None}


def looks_for_answers(relabel):
    """Whether a relabelling (`Chosen`, or None) searches passages for the collection's answers, without a judge."""
    names = (relabel.kind, *RELABELLINGS[relabel.kind].scores) if relabel else ()
    return "answers" in names and "answers" not in judges(relabel)


def score_loads(settings):
    """{name: module} that a score stage loads, by its settings.ScoreSettings."""
    return {name: SOURCES[name].module for name in settings.sources}


def comparing(settings):
    """[(its key, scorer, its `Method`, names of sources)] of the draws and filters of a settings.Pool. A draw
    compares scores of its source, a filter those of all sources."""
    draws = {name: draw.draw for name, draw in settings.sources.items()}
    of_draws = [(f"negatives.draw {d.kind}", d.own.get("scores"), DRAWS[d.kind], {name}) for name, d in draws.items()]
    every, whose = set(settings.sources), settings.filter_scores
    return of_draws + [(f"negatives.filters.{name}", whose, FILTERS[name], every) for name in settings.filters]


def compared(settings):
    """{scorer: {CANDIDATES, POSITIVES or ANCHORS: names of sources}} of the scores that the draws and filters of a
    settings.Pool compare."""
    pairs = {}
    for _, whose, method, names in comparing(settings):
        for each in method.scores:
            pairs.setdefault(whose, {}).setdefault(each, set()).update(names)
    return pairs


def train_loads(settings):
    """{name: module} that a train stage loads, by its settings.TrainSettings."""
    training = settings.training
    loads = {f"losses.{loss.kind}": LOSSES[loss.kind].module for loss in training.losses}
    loads |= {f"masks.{mask.kind}": MASKS[mask.kind].module for mask in training.masks}
    losses = [LOSSES[loss.kind] for loss in training.losses]
    if any(loss.takes == "batch" and loss.contrasts for loss in losses) and "masks.known_positives" not in loads:
        loads["unmasked"] = UNMASKED
    return loads | ({"live": LIVE} if settings.live else {}) | ({"dev": DEV} if settings.dev else {})


def train_needs(training):
    """({teacher: `seen.SCORES` of pairs, `seen.VECTORS` or both, which the losses and the masks of a settings.Training
    read (set)}; the teachers whose vectors are compared with the model's (set))."""
    needs, compared = {}, set()
    of_losses = [(loss, LOSSES[loss.kind]) for loss in training.losses]
    for chosen, entry in of_losses + [(mask, MASKS[mask.kind]) for mask in training.masks]:
        function = seeing_function(entry)
        if needed(function):
            whose = chosen.own["scores"]
            needs.setdefault(whose, set()).update(needed(function))
            compared |= {whose} if "vectors" in names_seen(function) else set()
    return needs, compared


def seeing_function(entry):
    """The function of a loss's or a mask's module whose arguments name what it reads."""
    module = importlib.import_module(entry.module)
    return next(getattr(module, name) for name in ("loss", "mask_scores", "mask") if hasattr(module, name))


def registered_modules():
    """The names of all library modules that a stage may load by name (set of str)."""
    tables = (SOURCES, DRAWS, FILTERS, RELABELLINGS, MASKS, LOSSES)
    return {entry.module for table in tables for entry in table.values()} | {DEV, LIVE, UNMASKED} | set(FORMS.values())
