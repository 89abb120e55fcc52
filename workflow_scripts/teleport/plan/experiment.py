"""The life of one experiment as stages: mine with the last checkpoint, train the next one, evaluate it."""

from dataclasses import dataclass

from teleport.plan.identity import identify_checkpoint
from teleport.plan.stage import Stage, score


@dataclass(frozen=True)
class Row:
    """A stage in the life of one experiment: where it is linked and what it is called."""

    stage: Stage
    seed: int
    episode: int
    link: str


class Trajectory:
    """The stages of one experiment under one seed, in order, and the evaluations of its checkpoints."""

    def __init__(self, collection, experiment, seed, evaluation):
        self.collection, self.experiment, self.seed, self.evaluation = collection, experiment, seed, evaluation
        self.rows = []
        self.runs = []  # per checkpoint (0 = pretrained, 1 = after Episode 1, …): {split: evaluate stage}
        self.pools = []  # per episode from 1: the merge stage, whose inputs are the retrievals that the episode mined
        self.last_search = None  # of the training queries with the last checkpoint, when it is asked for
        self.prefix = f"seed-{seed}/" if len(experiment.seeds) > 1 else ""
        self.build()

    def add(self, kind, settings, inputs, episode, link=None):
        """Append a stage, linked as `link` (its kind by default) in the folder of its episode; returns it."""
        stage = Stage(kind, settings, inputs)
        folder = f"episode-{episode}/" if episode else ""
        self.rows.append(Row(stage, self.seed, episode, f"{self.prefix}{folder}{link or kind}"))
        return stage

    def build(self):
        """Checkpoint 0, then per episode: mine with the last checkpoint, train the next one, evaluate it."""
        encoder = self.experiment.encoder
        head = {"seed": self.seed} if encoder.projection else {}
        architecture = encoder.model_dump(include={"pooling", "projection", "normalize", "tied"})
        for stage in (*self.collection.inputs.values(), self.collection):
            self.add_existing(stage, stage.kind)
        sources = {
            name: identify_checkpoint(source, f"encoder.{name}")
            for name, source in encoder.model_dump(include={"checkpoint", "query_checkpoint"}).items()
        }
        self.pretrained = self.add("pretrained", sources | architecture | head, {}, 0)
        text = encoder.model_dump(include={"title", "lower_case"})
        inputs = {"collection": self.collection, "pretrained": self.pretrained}
        self.tokens = self.add("tokens", text, inputs, 0)
        self.add_check()
        checkpoint, pool = self.pretrained, None
        encoded = self.encode(checkpoint, 0)
        self.evaluate(encoded, 0)
        for episode in range(1, len(self.experiment.episodes) + 1):
            pool = self.merge(encoded, pool, episode)
            self.pools.append(pool)
            checkpoint = self.train(checkpoint, pool, episode)
            encoded = self.encode(checkpoint, episode)
            self.evaluate(encoded, episode)
        if self.pools and self.evaluation.forgetting:
            searched = {"of": "queries", "split": "train", "depth": self.experiment.mining.depth}
            mined = self.mining_index(encoded, len(self.pools), "index-train")
            self.last_search = self.retrieve(mined, searched, len(self.pools), "search-train")

    def add_existing(self, stage, link):
        self.rows.append(Row(stage, self.seed, 0, f"{self.prefix}{link}"))

    def add_check(self):
        settings = {
            "mining_depth": self.experiment.mining.depth if self.experiment.episodes else 0,
            "evaluation_depth": self.evaluation.depth,
            "splits": list(self.evaluation.splits),
            "measures": every_measure(self.evaluation),
            "trains": bool(self.experiment.episodes),
        }
        if episodes := range(1, len(self.experiment.episodes) + 1):
            settings["batch_queries"] = max(self.experiment.training_of(n).batch_queries for n in episodes)
        if isinstance(self.evaluation.measures, dict):
            settings["measures_of"] = {split: self.evaluation.measures_of(split) for split in self.evaluation.splits}
        if self.experiment.episodes and self.experiment.negatives.remove != "judged":
            settings["remove"] = self.experiment.negatives.remove
        self.add("check", settings, {"collection": self.collection}, 0)

    def encode(self, checkpoint, episode):
        """Vectors of all passages and queries under `checkpoint`, and their index: (encode stage, index stage)."""
        settings = self.experiment.encoder.model_dump(include={"max_query_tokens", "max_passage_tokens"})
        settings["precision"] = self.experiment.training.precision
        inputs = {"collection": self.collection, "tokens": self.tokens, "checkpoint": checkpoint}
        encode = self.add("encode", settings, inputs, episode)
        return encode, self.add("index", {"kind": "flat"}, {"encode": encode}, episode)

    def mining_index(self, encoded, episode, link="index-mining"):
        """What negatives are mined with: the exact index, or another kind over the same vectors.

        Its recall is measured at the depth of mining, which therefore is among its settings.
        """
        encode, exact = encoded
        index = self.experiment.mining.index
        if index.kind == "flat":
            return encode, exact
        settings = index.model_dump() | {"depth": self.experiment.mining.depth}
        return encode, self.add("index", settings, {"encode": encode}, episode, link)

    def retrieve(self, encoded, settings, episode, link, relevant=None):
        encode, index = encoded
        inputs = {"index": index, "encode": encode, "collection": self.collection}
        return self.add("retrieve", settings, inputs | (relevant or {}), episode, link)

    @property
    def finds_positives(self):
        """Whether training queries without a judged positive get one by answer match, anew in every episode."""
        return self.collection.settings.get("positives") == "answers"

    def positives(self, queries, episode):
        """The positives of an episode, found in its retrieval `queries`, as the input role `relevant`."""
        return {"relevant": self.add("positives", {}, {"collection": self.collection, "queries": queries}, episode)}

    def merge(self, encoded, last_pool, episode):
        """The pool of negatives of an episode, mined with the checkpoint before it (Eq. 4-6, Appendix C)."""
        negatives, mining = self.experiment.negatives, self.experiment.mining
        available = ("query", "positive", "momentum") if last_pool else ("query", "positive")
        sources = [source for source in available if source in negatives.sources]
        settings = {"episode": episode, "mode": negatives.mode, "sources": sources, "seed": self.seed}
        settings["keep_duplicates"] = negatives.keep_duplicates
        if negatives.remove != "judged":
            settings["remove"] = negatives.remove
        if negatives.mode == "released":
            settings["per_source"] = negatives.per_source
        else:
            settings["pool"] = negatives.pool
            if "momentum" in sources:
                settings["alpha"] = negatives.alpha
            if "query" in sources and "positive" in sources:
                settings["beta"] = negatives.beta
        mined = {"split": "train", "depth": mining.depth}
        encoded = self.mining_index(encoded, episode)
        if "query" in sources or self.finds_positives:
            queries = self.retrieve(encoded, {"of": "queries"} | mined, episode, "retrieve-queries")
        inputs = {"collection": self.collection} | (self.positives(queries, episode) if self.finds_positives else {})
        if "positive" in sources:
            anchored = {"of": "positives", "anchor": mining.anchor} | mined
            relevant = {role: stage for role, stage in inputs.items() if role == "relevant"}
            inputs["positives"] = self.retrieve(encoded, anchored, episode, "retrieve-positives", relevant)
        if "query" in sources:
            inputs["queries"] = queries
        if "momentum" in sources:
            inputs["momentum"] = last_pool
        return self.add("merge", settings, inputs, episode)

    def train(self, last_checkpoint, pool, episode):
        """The checkpoint of an episode, from the pretrained model or from the last checkpoint."""
        training = self.experiment.training_of(episode)
        settings = {"training": training.model_dump(exclude={"start_from"}), "seed": self.seed, "episode": episode}
        architecture = {"pooling", "projection", "normalize", "tied", "scale", "max_query_tokens", "max_passage_tokens"}
        settings |= self.experiment.encoder.model_dump(include=architecture)
        start = last_checkpoint if training.start_from == "previous" else self.pretrained
        inputs = {"collection": self.collection, "tokens": self.tokens, "negatives": pool, "checkpoint": start}
        inputs |= {role: stage for role, stage in pool.inputs.items() if role == "relevant"}
        return self.add("train", settings, inputs | {"pretrained": self.pretrained}, episode)

    def evaluate(self, encoded, episode):
        """Search and score every evaluated split with the checkpoint of `episode`."""
        runs = {}
        for split in self.evaluation.splits:
            searched = {"of": "queries", "split": split, "depth": self.evaluation.depth}
            run = self.retrieve(encoded, searched, episode, f"search-{split}")
            runs[split] = self.add(*score(self.collection, run, split, self.evaluation), episode, f"evaluate-{split}")
        self.runs.append(runs)


def every_measure(evaluation):
    """The names of the measures of all splits, each once."""
    return list(dict.fromkeys(name for split in evaluation.splits for name in evaluation.measures_of(split)))
