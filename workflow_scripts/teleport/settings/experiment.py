"""An experiment: an encoder, and episodes; an episode is negatives x loss x schedule x start x trained sides."""

from pathlib import Path
from typing import Literal, get_args

from pydantic import Field, field_validator, model_validator

from teleport.refusal import Refusal
from teleport.settings.encoder import Encoder
from teleport.settings.index import FrozenIndex, Index
from teleport.settings.measures import known_measures
from teleport.settings.negatives import Mining, Negatives, Start
from teleport.settings.registry import (
    LOSSES,
    MASKS,
    SOURCES,
    chosen,
    has_function,
    judges,
    losses,
    own_settings,
    seeing_function,
)
from teleport.settings.section import NAME, ConfigurationFile, Integer, Line, Natural, Number, Section, Unique, entries
from teleport.settings.teachers import Teacher
from teleport.settings.training import Dev, Side, Training
from teleport.training.seen import JUDGMENTS, SCORES, VECTORS, names_seen, needed

Losses, ChosenMask = losses(), chosen(MASKS, "mask", "masks")
# Arguments of a loss that compares texts of one side, or their vectors.
AMONG_TEXTS = {"query_query_QQ", "passage_passage_QP", "vectors"}
MINED = ("queries", "lookahead", "neighbours")  # needs of sources that draw from a checkpoint's retrieval
MOST_EPISODES = 255  # a pool stores first episodes as uint8


class EpisodeTraining(Training):
    """How an episode trains, and from where."""

    loss: Losses = Field(
        "softmax",
        validate_default=True,
        description="softmax: over all passages of the batch (ANCE-Tele, released); nll: pairs of positive and own "
        "negative (ANCE); ranknet: pairs with all passages of the batch (STAR); hardest: the "
        "highest-scored passage of the batch (NCE). With negatives.live: lambda, pairs weighed by ranks "
        "(ADORE), or ranknet-list, all weights 1. With a teacher: kl, m3-kd, margin-mse, "
        "margin-mse-batch, listmle, adr-mse, cl-drd, bixse, distill (`scores: judgments`: the grades of the training "
        "queries, divided by the highest one; not with distill and margin-mse-batch). Variants of softmax: hardness, "
        "focal, bidirectional, joint, qwen3, own-softmax. A list is a sum, such as [softmax, {kind: kl, weight: 0.5}]; "
        "a weight is 1 if not given.",
    )
    masks: Unique[ChosenMask] = Field(
        [],
        description="Which passages of the batch are no negatives of a query. known_positives: its positives "
        "(STAR; without it, a loss over the batch warns if more than 1 % of its first queries have some); "
        "above_positive, guide: those that the model, or a teacher, scores above the positive (Qwen3; GISTEmbed); "
        "other_negatives: the other queries' own negatives (EmbeddingGemma).",
    )
    start_from: Literal["previous", "pretrained"] | Start = Field(
        "pretrained",
        description="Where training starts (ANCE-Tele: pretrained). With {experiment: NAME} the first episode also "
        "mines with that checkpoint.",
    )

    dev: Dev = Field(Dev(), description="The dev set that evaluate_every ranks.")

    @field_validator("dev")
    @classmethod
    def dev_measure_is_computed(cls, dev):
        known_measures([dev.measure])  # here, not in `Dev`, which trainings load: ir-measures has no nDCG with rel
        return dev

    @field_validator("trains")
    @classmethod
    def sides_have_one_order(cls, trains):
        return [side for side in get_args(Side) if side in trains]

    @field_validator("learning_rate")
    @classmethod
    def rate_keeps_what_was_learnt(cls, rate):
        if rate > 10:  # here, not in `Training`: tests use a forbidden rate to overflow
            raise Refusal("input should be at most 10: a step moves every weight by about the rate")
        return rate


def masks_by_score(training):
    """The names of the masks of a training that compare scores (list)."""
    return [mask.kind for mask in training.masks if has_function(MASKS[mask.kind], "mask_scores")]


def learns_grades(loss):
    """Whether a loss learns from the grades of judgments in the place of a teacher's scores."""
    return loss.own.get("scores") == JUDGMENTS and VECTORS not in needed(seeing_function(LOSSES[loss.kind]))


class About(Section):
    """The publication of an experiment's method, for docs/methods.md. It decides no result."""

    paper: Line = Field(description="Authors and place, or repository and file.")
    rule: Line = Field(description="The equation, table or line of code that the settings follow.")
    left_out: Line | None = Field(None, description="What of it the settings leave out, or do otherwise.")


class Override(Section):
    """One entry of `episodes`: what it does differently from the settings of the experiment."""

    repeat: Natural = Field(1, le=MOST_EPISODES, description="How many episodes in a row this entry stands for.")
    lag: Integer = Field(
        0,
        ge=0,
        description="Mine this many checkpoints back, within the entry and those that it `continues`; mining can "
        "overlap training (ANCE: 1).",
    )
    mining: dict = Field({}, description="Settings of `mining` for this episode.")
    negatives: dict = Field({}, description="Settings of `negatives` for this episode.")
    training: dict = Field({}, description="Settings of `training` for this episode.")


class Episode(Section):
    """One episode with all its settings. entry: the first episode of its entry in `episodes`, or of the entry whose
    training it continues; it bounds the lag"""

    mining: Mining
    negatives: Negatives
    training: EpisodeTraining
    lag: Integer = 0
    entry: Integer = 1

    @property
    def has_pool(self):
        """Whether the episode draws a pool of negatives."""
        return self.training.negatives_per_query > 0

    @property
    def mines(self):
        """Whether it draws from a checkpoint's retrieval."""
        return self.has_pool and any(SOURCES[name].needs in MINED for name in self.negatives.drawn)

    @property
    def judges(self):
        """[(key in the episode, judge named there)] of filters, draws, a relabelling, clusters, masks, losses and the
        source `neighbours`, without a loss that learns from judgments."""
        training, negatives = self.training, self.negatives
        chosen = {("negatives", "draw"): negatives.draw}
        for number, loss in enumerate(training.losses):
            chosen |= {} if learns_grades(loss) else {("training", "loss", number): loss}
        chosen |= {("negatives", "draws", name): draw for name, draw in negatives.draws.items()}
        chosen |= {("training", "masks", number): mask for number, mask in enumerate(training.masks)}
        named = [((*key, "scores"), each.own["scores"]) for key, each in chosen.items() if "scores" in each.own]
        named += [(("training", "clusters", "vectors"), training.clusters.vectors)] if training.clusters else []
        named += [(("negatives", "relabel", name), whose) for name, whose in judges(negatives.relabel).items()]
        named += [(("negatives", "counts", "neighbours", "by"), whose) for whose in negatives.miners]
        return [*named, (("negatives", "filters", "scores"), negatives.filters.scores)]

    @property
    def watched_by(self):
        """The `Dev` set that is ranked during its training; None if there is none."""
        return self.training.dev if self.training.evaluate_every else None

    @model_validator(mode="after")
    def losses_have_what_they_take(self):
        """Negatives of the kind that a loss compares."""
        training, live = self.training, self.negatives.live
        lists = sorted(name for name, loss in LOSSES.items() if loss.takes == "lists")
        for loss in training.losses:
            takes = LOSSES[loss.kind].takes
            if takes == "own" and not self.has_pool:
                raise Refusal(
                    f"training.loss {loss.kind} compares a positive with the query's own negatives, and "
                    "negatives_per_query is 0: set it to 1 or more, or take a loss over the batch (softmax, ranknet, "
                    "hardest)"
                )
            if training.triples and takes == "batch":
                raise Refusal(
                    f"training.triples goes with losses such as nll: {loss.kind} compares with the whole batch, in "
                    "which the positive of a query is repeated. Change one of them"
                )
            settings = own_settings(LOSSES[loss.kind].module).model_validate(loss.own)
            if hasattr(settings, "require"):
                settings.require(training, self.has_pool)
            if (takes == "lists") != (live is not None):
                others = ", ".join(name for name in LOSSES if name not in lists)
                raise Refusal(
                    f"training.loss {loss.kind} does not go with these negatives: with negatives.live take "
                    f"one of {', '.join(lists)}; without it one of {others}"
                )
        return self

    @model_validator(mode="after")
    def losses_go_with_the_rows_of_a_batch(self):
        """Several positives, several widths and the memory each need losses of some kind."""
        training, live = self.training, self.negatives.live
        own_alone = all(LOSSES[loss.kind].takes == "own" for loss in training.losses)
        for loss in training.losses:
            among = [name for name in names_seen(seeing_function(LOSSES[loss.kind])) if name in AMONG_TEXTS]
            if training.positive == "all" and (among or live):
                compares = "searches for its positives" if live else "compares texts of one side with each other"
                raise Refusal(
                    f"training.positive all repeats a query, and loss {loss.kind} {compares}: set positive to rotate, "
                    "or take another loss"
                )
            if training.widths and ("vectors" in among or live):
                compares = "searches with whole vectors" if live else "compares vectors with a teacher's of equal width"
                raise Refusal(
                    f"training.widths does not go with loss {loss.kind}, which {compares}: leave one of them out"
                )
            if training.memory and (among or live or own_alone):
                why = "compares texts of one side, or vectors, too" if among else "does not"
                raise Refusal(
                    "training.memory needs a loss that only compares a query with all passages of the batch, and "
                    f"{loss.kind} {why}: set it to 0, or take another loss"
                )
            pairs = has_function(LOSSES[loss.kind], "num_pairs")
            judged = SCORES in needed(seeing_function(LOSSES[loss.kind]))  # a mixture has no score
            graded = LOSSES[loss.kind].takes == "batch" and judged
            if training.mixed_negatives and (among or live or own_alone or pairs or graded):
                raise Refusal(
                    "training.mixed_negatives needs a loss that is a mean over queries and only compares each with all "
                    f"passages of the batch, such as softmax, but {loss.kind} is another: set it to 0, or take another "
                    "loss"
                )
        return self

    @model_validator(mode="after")
    def micro_batches_have_negatives(self):
        """A micro-batch is compared alone, and a mean over pairs needs their number beforehand."""
        training = self.training
        if training.batch_queries == training.accumulate and not (self.negatives.live or training.negatives_per_query):
            raise Refusal(
                "with training.negatives_per_query 0 a micro-batch of one query has no negative at all: lower "
                "training.accumulate, or raise training.batch_queries or training.negatives_per_query"
            )
        by_scores = masks_by_score(training)
        of_pairs = [loss.kind for loss in training.losses if has_function(LOSSES[loss.kind], "num_pairs")]
        if by_scores and training.accumulate > 1 and of_pairs:
            raise Refusal(
                f"training.masks: {by_scores[0]} drops pairs by score, but loss {of_pairs[0]} is a mean over pairs and "
                "needs their number in each micro-batch beforehand. Set training.accumulate to 1, or leave the mask out"
            )
        return self

    @model_validator(mode="after")
    def live_search_reads_what_is_given(self):
        if not self.negatives.live:
            return self
        if self.training.trains != ["query"]:
            raise Refusal(
                "negatives.live searches vectors of passages that no step changes: set training.trains to [query]"
            )
        if self.has_pool:
            raise Refusal("negatives.live replaces the pool: set training.negatives_per_query to 0")
        if self.training.triples:
            raise Refusal("negatives.live ranks a list for each query, which has no triples: set triples to false")
        if of_batch := [mask.kind for mask in self.training.masks if mask.kind != "known_positives"]:
            raise Refusal(
                f"training.masks: {of_batch[0]} is for the passages of a batch, and negatives.live ranks a list for "
                "each query: leave it out"
            )
        unread = {"remove answers": self.negatives.remove == "answers", "filters": self.negatives.filters.on}
        if unread := [name for name, given in unread.items() if given]:
            raise Refusal(
                "negatives.live tells negatives from positives by judgments alone and does not read negatives."
                f"{' or negatives.'.join(unread)}: set remove to judged, and each filter to its default, in this "
                "experiment"
            )
        return self

    @model_validator(mode="after")
    def negatives_are_used(self):
        negatives, names = self.negatives, self.negatives.drawn
        if self.mining.parts > 1 and self.has_pool and "momentum" in names:
            raise Refusal(
                f"mining.parts is {self.mining.parts} and momentum is a source: the last pool has other queries. Leave "
                "momentum out of negatives.sources or counts, or set mining.parts to 1"
            )
        if negatives.counts and not self.has_pool:
            raise Refusal(
                "negatives.counts has negatives, but training.negatives_per_query is 0: change one of them. If 0 is "
                "set by `episodes` in an earlier file, give this experiment its own `episodes`"
            )
        if negatives.relabel and not self.has_pool:
            raise Refusal(
                f"negatives.relabel {negatives.relabel.kind} judges the negatives of a pool, and there is none: set "
                "training.negatives_per_query to 1 or more, without negatives.live, or negatives.relabel to null"
            )
        if self.has_pool and not names:
            raise Refusal("negatives.counts is empty: set training.negatives_per_query to 0 to train without a pool")
        for name in set(names) & negatives.ranks.keys() if self.has_pool else ():
            last, depth = negatives.ranks[name][-1][1], self.mining.depth
            if last > depth and SOURCES[name].needs != "file":
                raise Refusal(
                    f"negatives.ranks of {name} go to {last}, and mining.depth is {depth}: set the depth to at least "
                    f"{last}, or end the ranks there"
                )
        return self


class Also(Section):
    """Another collection that is trained on, too."""

    config: ConfigurationFile = Field(
        description="A configuration file. Its collection is also mined and trained on, then searched and evaluated "
        "as that file says, in the table also-FILE."
    )
    weight: Number = Field(gt=0, lt=1, description="Share of the batches; this file's own collection has the rest.")


class Defaults(Section):
    """The settings that experiments share, and that each may override."""

    mining: Mining = Field(Mining(), description="How candidates are retrieved.")
    negatives: Negatives = Field(Negatives(), description="How the pool of an episode is made.")
    training: EpisodeTraining | None = Field(None, description="How an episode trains; needed for experiments.")
    teachers: entries(Teacher, NAME) = Field(
        {}, description="Name → a teacher, whose scores draws, filters, masks and losses may use (`scores: NAME`)."
    )
    also: list[Also] = Field(
        [], description="Other collections in the same training; each batch has queries of one collection."
    )
    search_index: FrozenIndex = Field(Index(), description="Index that evaluation searches: Flat (exact) or PQ48.")
    seeds: Unique[Integer] = Field([42], min_length=1, description="Root seeds; tables give means and deviations.")


class WrittenExperiment(Defaults):
    """An experiment as it is written, with the configuration's settings where it has none of its own."""

    label: Line | None = Field(None, description="Name of the row in tables; default: the experiment's name.")
    about: About | None = Field(None, description="Where the method is published (config/methods).")
    encoder: Encoder
    episodes: list[Override] = Field(description="One entry per episode; an empty list is the zero-shot system.")

    @model_validator(mode="after")
    def few_enough(self):
        if sum(override.repeat for override in self.episodes) > MOST_EPISODES:
            raise Refusal(f"there are more than {MOST_EPISODES} episodes: repeat fewer")
        return self

    @model_validator(mode="after")
    def other_collections_are_possible(self):
        if (given := sum(each.weight for each in self.also)) >= 1:
            raise Refusal(f"also: the weights sum to {given:g}, which leaves nothing for this collection: lower them")
        names = [Path(each.config).stem for each in self.also]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise Refusal(f"also: two files are called {twice}, and tables are named after the files: rename one")
        if self.also and self.teachers:
            raise Refusal("also: teachers judge pairs of one collection: leave one of the two out")
        return self


class Experiment(WrittenExperiment):
    """One system: everything that may differ between rows of a table. method: every episode, in order"""

    method: list[Episode] = Field(exclude=True)
