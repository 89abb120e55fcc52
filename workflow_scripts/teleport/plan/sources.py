"""What is planned before negatives can be drawn from a source: one function for every `needs` of the registry."""

from functools import cached_property

from teleport.plan.identity import identify_file
from teleport.plan.stage import Stage
from teleport.settings.negatives_file import NegativesFileSettings
from teleport.settings.search import FlatIndex, IndexSettings, RetrieveSettings
from teleport.settings.section import NoSettings, Part


class Mining:
    """The retrievals of episode `number` (from 1), planned when asked for; checkpoint: that which mines, by number."""

    def __init__(self, trajectory, number, checkpoint):
        self.trajectory, self.number, self.checkpoint = trajectory, number, checkpoint
        self.episode, self.vectors = trajectory.experiment.method[number - 1], trajectory.vectors[checkpoint]

    @cached_property
    def part(self):
        """The part of the training queries that is mined, the next one in every episode; None: all of them."""
        parts = self.episode.mining.parts
        earlier = self.trajectory.experiment.method[: self.number - 1]
        refresh = sum(episode.mining.parts > 1 for episode in earlier)
        return Part(number=refresh % parts, of=parts) if parts > 1 else None

    @cached_property
    def index(self):
        """What negatives are mined with: the exact index, or another kind, whose recall at that depth is measured."""
        mining = self.episode.mining
        if isinstance(mining.index, FlatIndex):
            return self.vectors.index
        settings = IndexSettings(index=mining.index, depth=mining.depth)
        inputs = {"passages": self.vectors.passages, "queries": self.vectors.queries}
        return self.trajectory.add("index", settings, inputs, self.number, "index-mining")

    @cached_property
    def queries(self):
        """The retrieval of the training queries."""
        return self.retrieve("queries", "retrieve-queries")

    @cached_property
    def lookahead(self):
        """The retrieval of the positives of the training queries (ANCE-Tele §4, Eq. 6)."""
        return self.retrieve("positives", "retrieve-positives", self.positives, anchor=self.episode.mining.anchor)

    def retrieve(self, of, link, inputs=None, **anchor):
        settings = RetrieveSettings(of=of, split="train", depth=self.episode.mining.depth, part=self.part, **anchor)
        return self.trajectory.retrieve(self.vectors, self.index, settings, self.number, link, inputs)

    @cached_property
    def dev(self):
        """{"dev": stage}, the retrieval of the dev queries by the checkpoint that mines; {} where nobody looks at them.

        Also where an episode mines nothing. It searches exactly, to the depth of evaluation: where the split is
        evaluated so, that is the same stage.
        """
        if not self.episode.watched_by:
            return {}
        split, depth = self.episode.watched_by.split, self.trajectory.evaluation.depth
        settings = RetrieveSettings(of="queries", split=split, depth=depth)
        retrieve, vectors = self.trajectory.retrieve, self.vectors
        return {"dev": retrieve(vectors, vectors.index, settings, self.number, "retrieve-dev")}

    @cached_property
    def positives(self):
        """{"positives": stage} where positives are found by answer match, anew in every episode; {} where judged."""
        if self.trajectory.collection.settings.source.positives == "given":
            return {}
        inputs = {"collection": self.trajectory.collection, "queries": self.queries}
        return {"positives": self.trajectory.add("positives", NoSettings(), inputs, self.number)}


def from_bm25(mining):
    trajectory, plan = mining.trajectory, mining.trajectory.plan
    run = plan.bm25("train", mining.episode.mining.depth, trajectory.experiment.encoder.title)
    return trajectory.add_existing(run, mining.number, "retrieve-bm25")


def from_file(mining):
    trajectory, file = mining.trajectory, mining.episode.negatives.file
    digest = identify_file(file.path, "negatives.file.path")
    settings = NegativesFileSettings(path=file.path, sha256=digest, form=file.form)
    inputs = {"collection": trajectory.collection}
    if file.form == "token-ids":
        inputs["tokens"] = trajectory.tokens
    return trajectory.add_existing(Stage("negatives_file", settings, inputs), mining.number, "negatives-file")


NEEDS = {
    "query neighbours": lambda mining: mining.queries,
    "positive neighbours": lambda mining: mining.lookahead,
    "last pool": lambda mining: mining.trajectory.last_pool,
    "bm25": from_bm25,
    "file": from_file,
}
