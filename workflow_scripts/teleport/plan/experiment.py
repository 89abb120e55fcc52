"""The stages of one experiment: mine with an earlier checkpoint, merge a pool, train the next checkpoint, evaluate it.

`Trajectory.build` plans the stages, and its helpers follow in that order. `mining.py` plans an episode's mining and
training, `analyses.py` the stages that only compare and analyse. `Elsewhere` searches another collection with the
checkpoints; `Also` searches one that is also trained on.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from teleport.evaluation.check import DevPool, needed_splits
from teleport.evaluation.check import Settings as CheckSettings
from teleport.plan.about_key import AboutKey
from teleport.plan.analyses import analyse, rerank, reranked
from teleport.plan.encodings import Checkpoint, Reading, Vectors, encode_stage, tokens_stage, vectors_of_encoder
from teleport.plan.identity import pretrained_settings
from teleport.plan.mining import SIDES, Mining
from teleport.plan.stage import Stage, out_of_domain
from teleport.refusal import Refusal
from teleport.settings.experiment import Start
from teleport.settings.registry import looks_for_answers
from teleport.settings.search import IndexSettings, RetrieveSettings
from teleport.settings.section import FILE, MINER, Section, value_if_set
from teleport.settings.training import rows_per_query


class Row(NamedTuple):
    """A stage in an experiment, with its link. of: the name of the other collection that it is made from, "" for the
    configuration's own"""

    stage: Stage
    seed: int
    episode: int
    link: str
    of: str = ""


@dataclass
class Episode:
    """An episode from 1 on, or number 0, the start of the experiment: a checkpoint without settings, pool and training.

    settings: a settings.Episode; pool: the merge stage, None without negatives; train: the train stage; vectors: of the
    checkpoint; runs: {split: evaluate stage}, {"SPLIT (re-ranked)": evaluate stage} of re-ranked candidates, and
    {"SPLIT-of-NAME": evaluate stage} of the collections in evaluation.out_of_domain; analyses: {name: stage} of
    evaluation.analyses; train_search: the retrieval of the training queries with the checkpoint, if an analysis reads
    it; lookahead: the retrieval of the positives by the checkpoint that mined, with evaluation.analyses.lookahead;
    since: as `Mining.since`
    """

    number: int
    checkpoint: Checkpoint
    vectors: Vectors
    settings: Section | None = None
    pool: Stage | None = None
    train: Stage | None = None
    runs: dict = field(default_factory=dict)
    analyses: dict = field(default_factory=dict)
    train_search: Stage | None = None
    lookahead: Stage | None = None
    since: list | None = None


class Trajectory:
    """The stages of one experiment under one seed, once they are planned by `build`.

    episodes: [Episode] from the start, number 0; rows: every stage with its link, in order; from_pretrained: whether
    the start is the pretrained checkpoint; warnings: for a person, before anything runs; keys_read: the union of
    `keys_read` for its pools; also: {name: `Also`} of the other collections that it is trained on
    """

    of = ""

    def __init__(self, plan, name, seed):
        self.plan, self.name, self.seed = plan, name, seed
        self.experiment, self.evaluation = plan.experiments[name], plan.config.evaluation
        self.method = self.experiment.method
        self.rows, self.episodes, self.warnings, self.keys_read, self.tokenised = [], [], [], set(), {}
        self.prefix = f"seed-{seed}/" if len(self.experiment.seeds) > 1 else ""

    def build(self):
        """Evaluate the start, then in every episode: mine, merge, train, evaluate."""
        encoder, method = self.experiment.encoder, self.method
        check = check_settings(self.evaluation, method)
        splits = needed_splits(check.splits, check.dev_splits, check.trains)
        self.link_collection(splits)
        self.pretrained = self.link(Stage("pretrained", pretrained_settings(encoder, self.seed), {}), 0)
        # Tokens do not depend on the seed: if each seed draws a projection, all read the tokenizer of seed 0.
        self.tokenizer = Stage("pretrained", pretrained_settings(encoder, 0), {})
        if self.tokenizer.name != self.pretrained.name:
            self.link(self.tokenizer, 0, "pretrained-tokenizer")
        inputs = self.plan.parts(*splits)
        if method and encoder.lora and encoder.lora.targets:
            check = check.model_copy(update={"lora_targets": encoder.lora.targets})
            inputs |= {"pretrained": self.pretrained}
        self.link(Stage("check", check, inputs), 0)
        start_from = method[0].training.start_from if method else "pretrained"
        self.from_pretrained = not isinstance(start_from, Start)
        start = self.start(start_from)
        self.evaluate(Episode(0, start, Vectors(self, start, 0)))
        others = [self.plan.other(each.config, f"experiments.{self.name}: also") for each in self.experiment.also]
        self.also = {name: Also(self, plan, name, start) for name, plan in others}
        for number, settings in enumerate(method, 1):
            start = self.start(settings.training.start_from)
            mining = Mining(self, number, settings, self.miner(number, settings), start)
            pool = mining.pool
            looks_ahead = pool and self.evaluation.analyses and self.evaluation.analyses.lookahead
            near = mining.lookahead if looks_ahead else None
            train = mining.train()
            kept = {side: getattr(start, side) for side in SIDES if side not in settings.training.trains}
            checkpoint = Checkpoint(train, **dict.fromkeys(SIDES, train) | kept)
            vectors = Vectors(self, checkpoint, number)
            episode = Episode(number, checkpoint, vectors, settings, pool, train, lookahead=near, since=mining.since)
            self.evaluate(episode)
            for also in self.also.values():
                also.add(number, checkpoint, settings, train)
        for name, plan in self.plan.out_of_domain.items():
            elsewhere = self.also.get(name) or Elsewhere(self, plan, name)
            for episode in self.episodes:
                if episode is self.episodes[-1] or (self.from_pretrained and not episode.number):
                    runs = elsewhere.runs(episode.number, episode.checkpoint)
                    episode.runs |= {out_of_domain(name, split): stage for split, stage in runs.items()}

    def link(self, stage, episode, name=None):
        """Append a stage, linked by a name (by default its kind) in the folder of an episode (number); returns it."""
        folder = f"episode-{episode}/" if episode else ""
        link = out_of_domain(self.of, name or stage.kind) if self.of else name or stage.kind
        self.rows.append(Row(stage, self.seed, episode, f"{self.prefix}{folder}{link}", self.of))
        return stage

    def link_collection(self, splits):
        """Link the corpus, the splits with these names, and their downloads."""
        parts = {"corpus": self.plan.corpus} | {f"split-{name}": self.plan.split(name) for name in splits}
        for name, stage in parts.items():
            for role, read in stage.inputs.items():
                if read.kind == "download":
                    self.link(read, 0, role.replace(".", "-", 1))
            self.link(stage, 0, name)

    def start(self, start_from):
        """The `Checkpoint` that the next episode starts from; start_from: as in the settings of training"""
        if start_from == "previous" and self.episodes:
            return self.episodes[-1].checkpoint
        if isinstance(start_from, Start):
            return self.plan.checkpoint_of(start_from, self)
        return Checkpoint(self.pretrained, self.pretrained, self.pretrained)

    def miner(self, number, settings):
        """The `Episode` whose checkpoint mines for an episode; it has no number if it is no earlier one of this
        trajectory. Raises Refusal if there is no such checkpoint yet."""
        named, key = settings.mining.checkpoint, "mining.checkpoint"
        place = f"experiments.{self.name}, episode {number}: {key}"
        if named == "previous":
            return self.episodes[max(settings.entry - 1, number - 1 - settings.lag)]
        if settings.lag:
            lags = "names a checkpoint, but lag counts back from the last one"
            raise AboutKey(f"{place} {lags}. Set lag to 0, or this to previous.", key)
        if named == "pretrained":
            checkpoint, reading = Checkpoint(self.pretrained, self.pretrained, self.pretrained), None
        elif named.encoder:
            vectors = vectors_of_encoder(self, named.encoder, number, MINER, "mining.checkpoint.encoder")
            return Episode(None, vectors.checkpoint, vectors)
        else:
            checkpoint, reading = self.plan.miner_of(named, self, place)
        same = [each for each in self.episodes if each.checkpoint == checkpoint and reading is None]
        return same[0] if same else Episode(None, checkpoint, Vectors(self, checkpoint, number, f"-{MINER}", reading))

    def tokens(self, *texts):
        """{role: tokens stage} of "passages" or "queries.SPLIT", each linked once."""
        return {f"tokens.{of}": self.tokens_of(of) for of in texts}

    def tokens_of(self, texts):
        if texts not in self.tokenised:
            stage = tokens_stage(self.plan, self.experiment.encoder, texts, self.tokenizer)
            self.tokenised[texts] = self.link(stage, 0, f"tokens-{texts}")
        return self.tokenised[texts]

    @property
    def reading(self):
        """The `Reading` of its encoder."""
        encoder, training = self.experiment.encoder, self.experiment.training
        precision = encoder.precision or (training.precision if training else "auto")
        return Reading(encoder, precision, self.tokenizer)

    def encoding_of(self, stage, texts):
        """The encode stage of "passages" or "queries.SPLIT" under a checkpoint's stage."""
        encoder, precision, _ = self.reading
        return encode_stage(encoder, texts, precision, self.tokens_of(texts), stage)

    def evaluate(self, episode):
        """Append an episode whose checkpoint is encoded: search and evaluate every split, and analyse the episode."""
        self.episodes.append(episode)
        number, vectors, index, scores = episode.number, episode.vectors, episode.vectors.index, "full"
        if self.method:
            vectors.queries("train")  # the report compares them for what is learned and forgotten
        if self.experiment.search_index.kind != "flat":
            settings, scores = IndexSettings(index=self.experiment.search_index), "compressed"
            index = self.link(Stage("index", settings, {"passages": vectors.passages}), number, "index-search")
        for split in self.evaluation.splits:
            settings = RetrieveSettings(of="queries", split=split, depth=self.evaluation.searched, scores=scores)
            run = self.retrieve(vectors, index, settings, number, f"search-{split}")
            episode.runs[split] = self.link(self.plan.score(run, split), number, f"evaluate-{split}")
        for split in self.evaluation.rerank:
            episode.runs[reranked(split)] = rerank(self, episode, split)
        episode.analyses = analyse(self, episode)

    def retrieve(self, vectors, index, settings, episode, name, inputs=None):
        """A retrieve stage over an index. inputs: read besides the index and the vectors"""
        inputs = {"index": index} | vectors.of_split(settings.split) | (inputs or {})
        return self.link(Stage("retrieve", settings, inputs), episode, name)

    @property
    def trains(self):
        return [episode.train for episode in self.episodes[1:]]

    @property
    def pools(self):
        return [episode.pool for episode in self.episodes if episode.pool]


class Elsewhere(Trajectory):
    """The searches of an experiment's checkpoints in another collection. main: the experiment's `Trajectory`; plan: the
    other collection's `Plan`; of: the name in its links; method: the episodes that mine there"""

    def __init__(self, main, plan, of, method=()):
        self.plan, self.of, self.name, self.seed, self.method = plan, of, main.name, main.seed, method
        self.experiment, self.evaluation, self.prefix = main.experiment, plan.config.evaluation, main.prefix
        self.rows, self.warnings, self.keys_read = main.rows, main.warnings, main.keys_read
        self.pretrained, self.tokenizer, self.from_pretrained = main.pretrained, main.tokenizer, main.from_pretrained
        self.episodes, self.tokenised, self.also = [], {}, {}
        splits = needed_splits(self.evaluation.splits, (), bool(method))
        if method and "train" not in plan.config.collection.split_names():
            missing = f"{of} has no split 'train' to train on"
            raise AboutKey(f"experiments.{self.name}: also: {missing}. Leave it out.", "also")
        self.link_collection(splits)
        check = check_settings(self.evaluation, method).model_copy(update={"dev_splits": [], "dev_pools": []})
        self.link(Stage("check", check, plan.parts(*splits)), 0)

    def runs(self, number, checkpoint):
        """{split: evaluate stage} of the checkpoint of episode `number`."""
        if all(episode.number != number for episode in self.episodes):
            self.evaluate(Episode(number, checkpoint, Vectors(self, checkpoint, number)))
        return next(episode.runs for episode in self.episodes if episode.number == number)


class Also(Elsewhere):
    """The mining and searches of an experiment's checkpoints in another collection that it trains on."""

    def __init__(self, main, plan, of, start):
        super().__init__(main, plan, of, main.method)
        self.mined = None
        self.evaluate(Episode(0, start, Vectors(self, start, 0)))

    def mining(self, main):
        """The `Mining` in this collection of the episode of `main`, another `Mining`, by the same checkpoints."""
        place = f"experiments.{self.name}: also"
        judges = (whose for _, whose in main.settings.judges)
        if main.settings.has_pool and FILE in (*main.settings.negatives.drawn, *judges):
            raise Refusal(
                f"{place}: negatives.file belongs to one collection. Leave the source `file` and `scores: file` out."
            )
        number, miner = main.miner.number, main.miner.checkpoint
        vectors = Vectors(self, miner, main.number, f"-{MINER}", main.vectors.reading)
        miner = Episode(None, miner, vectors) if number is None else self.episodes[number]
        self.mined = Mining(self, main.number, main.settings, miner, main.start)
        return self.mined

    def add(self, number, checkpoint, settings, train):
        """Append a trained episode."""
        vectors = Vectors(self, checkpoint, number)
        self.evaluate(Episode(number, checkpoint, vectors, settings, self.mined.pool, train))


def check_settings(evaluation, method):
    """The settings of a check stage: what evaluation and the episodes (settings.Episode) need from the collection."""
    measures = {split: evaluation.measures_of(split) for split in evaluation.splits}
    measures |= {split: measures[split] + (named.measures or []) for split, named in evaluation.rerank.items()}
    if compared := evaluation.contrast_split:
        measures[compared] = [*measures[compared], evaluation.contrast_measure]
    watched = [episode.watched_by for episode in method if episode.watched_by]
    return CheckSettings(
        mining_depth=max((value_if_set(episode.mining, "depth") for episode in method if episode.has_pool), default=0),
        live_depth=max((episode.negatives.live.depth for episode in method if episode.negatives.live), default=0),
        evaluation_depth=value_if_set(evaluation, "depth"),
        splits=evaluation.splits,
        measures={split: list(dict.fromkeys(of_split)) for split, of_split in measures.items()},
        trains=bool(method),
        batch_queries=max(map(queries_of_a_batch, method), default=None),
        remove="answers" if any(episode.negatives.remove == "answers" for episode in method) else "judged",
        answers=any(looks_for_answers(episode.negatives.relabel) for episode in method),
        dev_splits=sorted({dev.split for dev in watched}),
        dev_pools=list(dict.fromkeys(map(DevPool.taken_from, watched))),
    )


def queries_of_a_batch(episode):
    """The least number of training queries that fills a batch of a settings.Episode."""
    training = episode.training
    return -(-training.batch_queries // rows_per_query(training)) * episode.mining.parts
