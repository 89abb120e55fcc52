"""What is planned before an episode trains: who mines, what every source needs, what `merge` and `train` are told."""

from functools import cached_property

from teleport.plan.counts import resolve_draws
from teleport.plan.identity import identify_file
from teleport.plan.stage import Stage
from teleport.refusal import Refusal
from teleport.settings.pool import NegativesFileSettings, Pool
from teleport.settings.search import FlatIndex, IndexSettings, RetrieveSettings
from teleport.settings.section import NoSettings, Part
from teleport.settings.training import Training, TrainSettings


class Mining:
    """The retrievals of episode `number` (from 1), planned when asked for: a source `needs` one of its attributes.

    settings: the episode's; miner: the earlier `Episode` whose checkpoint mines; vectors: of that checkpoint; place:
    which episode it is, as messages begin
    """

    def __init__(self, trajectory, number, settings, miner):
        self.trajectory, self.experiment, self.seed = trajectory, trajectory.experiment, trajectory.seed
        self.number, self.settings, self.miner, self.vectors = number, settings, miner, miner.vectors
        self.place = f"experiment {trajectory.name}, episode {number}"

    @property
    def last_pool(self):
        """The last pool of an earlier episode; None before the first."""
        return next(reversed(self.trajectory.pools), None)

    @cached_property
    def part(self):
        """The part of the training queries that is mined, the next one in every episode; None: all of them."""
        parts = self.settings.mining.parts
        earlier = self.trajectory.experiment.method[: self.number - 1]
        refresh = sum(episode.mining.parts > 1 for episode in earlier)
        return Part(number=refresh % parts, of=parts) if parts > 1 else None

    @cached_property
    def index(self):
        """What negatives are mined with: the exact index, or another kind, whose recall at that depth is measured."""
        mining = self.settings.mining
        if isinstance(mining.index, FlatIndex):
            return self.vectors.index
        settings = IndexSettings(index=mining.index, depth=mining.depth)
        inputs = {"passages": self.vectors.passages, "queries": self.vectors.queries}
        return self.trajectory.link(Stage("index", settings, inputs), self.number, "index-mining")

    @cached_property
    def queries(self):
        """The retrieval of the training queries."""
        return self.retrieve("queries", "retrieve-queries")

    @cached_property
    def lookahead(self):
        """The retrieval of the positives of the training queries (ANCE-Tele §4, Eq. 6)."""
        return self.retrieve("positives", "retrieve-positives", self.positives, anchor=self.settings.mining.anchor)

    def retrieve(self, of, link, inputs=None, **anchor):
        settings = RetrieveSettings(of=of, split="train", depth=self.settings.mining.depth, part=self.part, **anchor)
        return self.trajectory.retrieve(self.vectors, self.index, settings, self.number, link, inputs)

    @cached_property
    def dev(self):
        """{"dev": stage}, the retrieval of the dev queries by the checkpoint that mines; {} where nobody looks at them.

        Also where an episode mines nothing. It searches exactly, to the depth of evaluation: where the split is
        evaluated so, that is the same stage.
        """
        if not self.settings.watched_by:
            return {}
        split, depth = self.settings.watched_by.split, self.trajectory.evaluation.depth
        settings = RetrieveSettings(of="queries", split=split, depth=depth)
        retrieve, vectors = self.trajectory.retrieve, self.vectors
        return {"dev": retrieve(vectors, vectors.index, settings, self.number, "retrieve-dev")}

    @cached_property
    def positives(self):
        """{"positives": stage} of positives by answer match, anew in every episode; {} where judged."""
        if self.trajectory.collection.settings.source.positives == "given":
            return {}
        inputs = {"collection": self.trajectory.collection, "queries": self.queries}
        return {"positives": self.trajectory.link(Stage("positives", NoSettings(), inputs), self.number)}

    @property
    def bm25(self):
        """The BM25 run of the training queries."""
        run = self.trajectory.plan.bm25("train", self.settings.mining.depth, self.experiment.encoder.title)
        return self.trajectory.link(run, self.number, "retrieve-bm25")

    @property
    def file(self):
        """The negatives of a file from elsewhere, in the form of a retrieval."""
        file, inputs = self.settings.negatives.file, {"collection": self.trajectory.collection}
        settings = NegativesFileSettings(**dict(file), sha256=identify_file(file.path, "negatives.file.path"))
        if file.form == "token-ids":
            inputs["tokens"] = self.trajectory.tokens
        return self.trajectory.link(Stage("negatives_file", settings, inputs), self.number, "negatives-file")

    def pool_settings(self):
        """The settings of a merge stage, from the episode's negatives and what the last pool has."""
        negatives, last = self.settings.negatives, self.last_pool
        last_size = sum(draw.count for draw in last.settings.sources.values()) if last else 0
        draws = resolve_draws(negatives, self.number, last_size)
        return Pool(episode=self.number, seed=self.seed, sources=draws, part=self.part, **negatives.of_pool)

    def train_settings(self, continued):
        """The settings of a train stage. continued: the train stage that it goes on with, or None."""
        negatives, training, encoder = self.settings.negatives, self.settings.training, self.experiment.encoder
        if negatives.live and encoder.chunks > 1:
            raise Refusal(
                f"{self.place}: negatives.live searches one vector a passage, and encoder.chunks is {encoder.chunks}. "
                "Set it to 1."
            )
        return TrainSettings(
            training=Training(**training.model_dump(exclude={"start_from", "dev"})),
            episode=self.number,
            run_episode=continued.settings.run_episode if continued and training.continues is True else self.number,
            part=self.part,
            seed=self.seed,
            relevant_grade=negatives.relevant_grade,
            live=negatives.live,
            dev=self.settings.watched_by,
            **encoder.model_dump(include=set(TrainSettings.model_fields)),
        )

    def continues(self, last):
        """Whether the episode goes on with the training of the last one (its settings.Episode; None at the start).

        Raises Refusal when it asks for that and cannot.
        """
        training = self.settings.training
        if not (last and last.training.continues and training.continues):
            return False
        one_schedule = ("steps", "cycle_steps") if training.continues is True else ()
        for name in ("start_from", "trains", "optimizer", *one_schedule):
            expected = "previous" if name == "start_from" else getattr(last.training, name)
            if getattr(training, name) != expected:
                raise Refusal(
                    f"{self.place}: training.continues goes on with episode {self.number - 1}, so training.{name} must "
                    f"be {expected}, not {getattr(training, name)}."
                )
        return True


def is_mined(pool):
    """Whether a merge stage draws from what a checkpoint has retrieved."""
    return any(stage.kind == "retrieve" for stage in pool.inputs.values())
