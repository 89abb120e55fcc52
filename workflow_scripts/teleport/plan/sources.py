"""What is planned before negatives can be drawn from a source: one function for every `needs` of the registry."""

from functools import cached_property

from teleport.plan.identity import identify_file
from teleport.plan.stage import Stage
from teleport.settings.negatives_file import NegativesFileSettings
from teleport.settings.search import RetrieveSettings


class Mining:
    """The retrievals of one episode, planned when a source asks for them.

    trajectory: the experiment's; number: of the episode, from 1; vectors: of the checkpoint that mines
    """

    def __init__(self, trajectory, number, vectors):
        self.trajectory, self.number = trajectory, number
        self.episode, self.vectors = trajectory.experiment.method[number - 1], vectors

    @cached_property
    def index(self):
        return self.trajectory.mining_index(self.vectors, self.episode.mining, self.number)

    @cached_property
    def queries(self):
        """The retrieval of the training queries."""
        return self.retrieve("queries", {})

    @cached_property
    def lookahead(self):
        """The retrieval of the positives of the training queries (ANCE-Tele §4, Eq. 6)."""
        return self.retrieve("positives", self.positives)

    def retrieve(self, of, inputs):
        mining = self.episode.mining
        anchor = {"anchor": mining.anchor} if of == "positives" else {}
        settings = RetrieveSettings(of=of, split="train", depth=mining.depth, **anchor)
        return self.trajectory.retrieve(self.vectors, self.index, settings, self.number, f"retrieve-{of}", inputs)

    @cached_property
    def positives(self):
        """{"positives": stage} where positives are found by answer match, anew in every episode; {} where judged."""
        if self.trajectory.collection.settings.source.positives == "given":
            return {}
        return {"positives": self.trajectory.add_positives(self.queries, self.number)}

    @property
    def last_pool(self):
        return self.trajectory.last_pool


def from_bm25(mining):
    trajectory = mining.trajectory
    run = trajectory.plan.bm25("train", mining.episode.mining.depth, trajectory.experiment.encoder.title)
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
    "last pool": lambda mining: mining.last_pool,
    "bm25": from_bm25,
    "file": from_file,
}
