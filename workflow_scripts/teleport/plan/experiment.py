"""The life of one experiment as stages: mine with the last checkpoint, train the next one, evaluate it."""

from typing import NamedTuple

from teleport.plan.analyses import analyse, rerank, reranked
from teleport.plan.counts import pool_warnings, resolve_draws
from teleport.plan.identity import identify_checkpoint
from teleport.plan.sources import NEEDS, Mining
from teleport.plan.stage import Stage
from teleport.settings.checkpoint import PretrainedSettings, TokensSettings
from teleport.settings.encoding import EncodeSettings
from teleport.settings.experiment import Start
from teleport.settings.pool import Pool
from teleport.settings.registry import DEV, LIVE, LOSSES, SOURCES
from teleport.settings.scoring import CheckSettings
from teleport.settings.search import FlatIndex, IndexSettings, RetrieveSettings
from teleport.settings.section import stated
from teleport.settings.training import Training, TrainSettings

SIDES = {"query": "queries", "passage": "passages"}  # side → the role of its vectors, read where it is frozen


class Row(NamedTuple):
    """A stage in the life of one experiment: where it is linked and what it is called."""

    stage: Stage
    seed: int
    episode: int
    link: str


class Checkpoint(NamedTuple):
    """A dual encoder. stage: whose folder has it; query, passage: the stages, perhaps earlier, that made each."""

    stage: Stage
    query: Stage
    passage: Stage


class Vectors(NamedTuple):
    """Where the vectors of queries and passages under a checkpoint are (encode stages), and the exact index."""

    queries: Stage
    passages: Stage
    index: Stage


def is_mined(pool):
    """Whether a merge stage draws from what a checkpoint has retrieved."""
    return any(stage.kind == "retrieve" for stage in pool.inputs.values())


def queries_of_a_batch(episode):
    """How many training queries there must be at least to fill a batch of an `Episode`."""
    training = episode.training
    copies = training.negatives_per_query if training.triples else 1
    return -(-training.batch_queries // copies) * episode.mining.parts


class Trajectory:
    """The stages of one experiment under one seed, in order, and the evaluations of its checkpoints.

    rows: every stage with its link; checkpoints: from 0, where the experiment starts; runs: per checkpoint {split:
    evaluate stage}, and {"SPLIT (re-ranked)": evaluate stage} of re-ranked candidates; analyses: per checkpoint {name:
    stage} of what evaluation.analyses asks for; pools, trains: per episode from 1 the merge (None without negatives)
    and the train stage; train_searches: per checkpoint the retrieval of the training queries that an analysis asks for;
    from_pretrained: whether checkpoint 0 is the pretrained one; warnings: what a person should know before anything
    runs
    """

    def __init__(self, plan, name, seed):
        self.plan, self.name, self.seed = plan, name, seed
        self.experiment, self.collection = plan.experiments[name], plan.collection
        self.evaluation = plan.config.evaluation
        self.rows, self.checkpoints, self.vectors, self.runs, self.pools, self.trains = [], [], [], [], [], []
        self.analyses, self.train_searches, self.warnings = [], {}, []
        self.prefix = f"seed-{seed}/" if len(self.experiment.seeds) > 1 else ""
        self.build()

    def add(self, kind, settings, inputs, episode, link=None, loads=None):
        """Append a stage, linked as `link` (its kind by default) in the folder of its episode; returns it."""
        return self.add_existing(Stage(kind, settings, inputs, loads or {}), episode, link or kind)

    def add_existing(self, stage, episode, link):
        folder = f"episode-{episode}/" if episode else ""
        self.rows.append(Row(stage, self.seed, episode, f"{self.prefix}{folder}{link}"))
        return stage

    def build(self):
        """Checkpoint 0, then per episode: mine with the last checkpoint, train the next one, evaluate it."""
        for stage in (*self.collection.inputs.values(), self.collection):
            self.add_existing(stage, 0, stage.kind)
        self.pretrained = self.add("pretrained", self.pretrained_settings(), {}, 0)
        text = TokensSettings(**self.experiment.encoder.model_dump(include=set(TokensSettings.model_fields)))
        self.tokens = self.add("tokens", text, {"collection": self.collection, "pretrained": self.pretrained}, 0)
        self.add_check()
        start = self.experiment.method[0].training.start_from if self.experiment.method else "pretrained"
        self.from_pretrained = not isinstance(start, Start)
        self.reach(self.start(start), 0)
        for number, episode in enumerate(self.experiment.method, 1):
            mining = Mining(self, number, max(episode.entry - 1, number - 1 - episode.lag))
            self.pools.append(self.merge(mining) if episode.counts else None)
            self.reach(self.train(mining), number)

    def reach(self, checkpoint, episode):
        """Go on with a checkpoint: encode, index and evaluate it. A frozen side was encoded in an earlier episode."""
        queries, passages = (self.encoding_of(stage) for stage in (checkpoint.query, checkpoint.passage))
        for stage in {stage.name: stage for stage in (queries, passages)}.values():
            sides = stage.settings.sides
            self.add_existing(stage, episode, "encode" if len(sides) > 1 else f"encode-{sides[0]}")
        index = searched = self.add("index", IndexSettings(), {"passages": passages}, episode)
        kind, scores = self.experiment.search_index, "full"
        if not isinstance(kind, FlatIndex):
            searched = self.add("index", IndexSettings(index=kind), {"passages": passages}, episode, "index-search")
            scores = "compressed"
        self.checkpoints.append(checkpoint)
        self.vectors.append(Vectors(queries, passages, index))
        self.runs.append({})
        for split in self.evaluation.splits:
            settings = RetrieveSettings(of="queries", split=split, depth=self.evaluation.depth, scores=scores)
            run = self.retrieve(self.vectors[-1], searched, settings, episode, f"search-{split}")
            self.runs[-1][split] = self.add_existing(self.plan.score(run, split), episode, f"evaluate-{split}")
        for split in self.evaluation.rerank:
            self.runs[-1][reranked(split)] = rerank(self, split, episode)
        self.analyses.append(analyse(self, episode))

    def pretrained_settings(self):
        encoder = self.experiment.encoder
        checkpoint = identify_checkpoint(encoder.checkpoint, "encoder.checkpoint")
        own = encoder.query_checkpoint and identify_checkpoint(encoder.query_checkpoint, "encoder.query_checkpoint")
        architecture = encoder.model_dump(include={"pooling", "projection", "normalize", "tied"})
        seed = self.seed if encoder.projection else None
        return PretrainedSettings(checkpoint=checkpoint, query_checkpoint=own, seed=seed, **architecture)

    def add_check(self):
        evaluation, method = self.evaluation, self.experiment.method
        by_split = {split: evaluation.measures_of(split) for split in evaluation.splits}
        settings = CheckSettings(
            mining_depth=max((stated(episode.mining, "depth") for episode in method if episode.counts), default=0),
            live_depth=max((episode.negatives.live.depth for episode in method if episode.negatives.live), default=0),
            evaluation_depth=stated(evaluation, "depth"),
            splits=evaluation.splits,
            measures=list(dict.fromkeys(measure for measures in by_split.values() for measure in measures)),
            measures_of=by_split if isinstance(evaluation.measures, dict) else None,
            trains=bool(method),
            batch_queries=max(map(queries_of_a_batch, method), default=None),
            remove="answers" if any(episode.negatives.remove == "answers" for episode in method) else "judged",
            dev_splits=sorted({episode.watched_by.split for episode in method if episode.watched_by}),
        )
        self.add("check", settings, {"collection": self.collection}, 0)

    def start(self, start_from):
        """The `Checkpoint` that an episode starts from. Raises ValueError when there is none of that name."""
        if start_from == "previous" and self.checkpoints:
            return self.checkpoints[-1]
        if isinstance(start_from, Start):
            return self.plan.checkpoint_of(start_from, self)
        return Checkpoint(self.pretrained, self.pretrained, self.pretrained)

    def encoding_of(self, stage):
        """The encode stage of the sides that a checkpoint's stage has made."""
        sides = stage.settings.training.trains if stage.kind == "train" else SIDES
        told = self.experiment.encoder.model_dump(include=set(EncodeSettings.model_fields))
        if self.experiment.training:  # else the usual one
            told["precision"] = self.experiment.training.precision
        settings = EncodeSettings(sides=[side for side in SIDES if side in sides], **told)
        inputs = {"collection": self.collection, "tokens": self.tokens, "checkpoint": stage}
        return Stage("encode", settings, inputs)

    def retrieve(self, vectors, index, settings, episode, link, inputs=None):
        searched = {"index": index, "passages": vectors.passages, "queries": vectors.queries}
        inputs = searched | {"collection": self.collection} | (inputs or {})
        return self.add("retrieve", settings, inputs, episode, link)

    @property
    def last_pool(self):
        """The last pool of an earlier episode; None before the first."""
        return next((pool for pool in reversed(self.pools) if pool), None)

    def merge(self, mining):
        """The pool of negatives of an episode (ANCE-Tele, Eq. 4-6 and Appendix C)."""
        negatives, last = mining.episode.negatives, self.last_pool
        last_size = sum(draw.count for draw in last.settings.sources.values()) if last else 0
        draws = resolve_draws(negatives, mining.number, last_size)
        self.warnings += pool_warnings(draws, mining.episode, f"experiment {self.name}, episode {mining.number}")
        shared = negatives.model_dump(include={"keep_duplicates", "remove", "relevant_grade"})
        shared |= {"filters": negatives.filters, "part": mining.part}
        settings = Pool(episode=mining.number, seed=self.seed, sources=draws, **shared)
        inputs = {"collection": self.collection}
        for name in draws:
            if needs := SOURCES[name].needs:
                inputs["momentum" if needs == "last pool" else name] = NEEDS[needs](mining)
        if negatives.filters.by_score:
            inputs |= {"queries": mining.vectors.queries, "passages": mining.vectors.passages}
        loads = {name: SOURCES[name].module for name in draws}
        return self.add("merge", settings, inputs | mining.positives, mining.number, loads=loads)

    def train(self, mining):
        """The `Checkpoint` of an episode."""
        training, live, number = mining.episode.training, mining.episode.negatives.live, mining.number
        if live and self.experiment.encoder.chunks > 1:
            raise ValueError(
                f"experiment {self.name}, episode {number}: negatives.live searches one vector a passage, and "
                f"encoder.chunks is {self.experiment.encoder.chunks}. Set it to 1."
            )
        start, before = self.start(training.start_from), self.continued(number)
        if training.steps and (training.stop_after_steps or 0) > training.steps:
            stop, place = training.stop_after_steps, f"experiment {self.name}, episode {number}"
            self.warnings.append(f"{place}: training.stop_after_steps {stop} is after all {training.steps} steps.")
        architecture = {"pooling", "projection", "normalize", "tied", "scale"}
        lengths = {"max_query_tokens", "max_passage_tokens", "chunks"}
        settings = TrainSettings(
            training=Training(**training.model_dump(exclude={"start_from", "dev"})),
            episode=number,
            run_episode=before.settings.run_episode if before and training.continues is True else number,
            part=mining.part,
            seed=self.seed,
            relevant_grade=mining.episode.negatives.relevant_grade,
            live=live,
            dev=mining.episode.watched_by,
            **self.experiment.encoder.model_dump(include=architecture | lengths),
        )
        inputs = {"collection": self.collection, "tokens": self.tokens, "checkpoint": start.stage}
        inputs |= {"pretrained": self.pretrained, "negatives": self.pools[-1], "continued": before}
        inputs |= mining.positives | mining.dev
        if self.pools[-1] and is_mined(self.pools[-1]):  # what was trained since: the gap is counted in its steps
            since = self.trains[mining.checkpoint : number - 1]
            inputs |= {f"since-{place}": stage for place, stage in enumerate(since, 1)}
        for side in set(SIDES) - set(training.trains):
            vectors = self.encoding_of(getattr(start, side))
            inputs[SIDES[side]] = self.add_existing(vectors, number, f"frozen-{SIDES[side]}")
        if live:
            vectors = {"passages": inputs["passages"]}
            inputs["index"] = self.add("index", IndexSettings(index=live.index), vectors, number, "index-live")
        inputs = {role: stage for role, stage in inputs.items() if stage}
        loads = (
            {"loss": LOSSES[training.loss].module}
            | ({"live": LIVE} if live else {})
            | ({"dev": DEV} if mining.dev else {})
        )
        stage = self.add("train", settings, inputs, number, loads=loads)
        self.trains.append(stage)
        made = {side: stage if side in training.trains else getattr(start, side) for side in SIDES}
        return Checkpoint(stage, **made)

    def continued(self, number):
        """The train stage that an episode goes on with, or None. Raises ValueError when it cannot go on with it."""
        if number == 1:
            return None
        before, now = (self.experiment.method[n].training for n in (number - 2, number - 1))
        if not (before.continues and now.continues):
            return None
        one_schedule = ("steps", "cycle_steps") if now.continues is True else ()
        for name in ("start_from", "trains", "optimizer", *one_schedule):
            expected = "previous" if name == "start_from" else getattr(before, name)
            if getattr(now, name) != expected:
                raise ValueError(
                    f"experiment {self.name}, episode {number}: training.continues goes on with episode {number - 1}, "
                    f"so training.{name} must be {expected}, not {getattr(now, name)}."
                )
        return self.trains[-1]
