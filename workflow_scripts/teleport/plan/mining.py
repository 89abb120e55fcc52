"""The plan of an episode up to its training: the miner, the inputs of every source, `merge` and `train`."""

from functools import cache, cached_property, partial
from itertools import chain

from teleport.plan.about_key import AboutKey
from teleport.plan.identity import identify_file
from teleport.plan.pool_warnings import pool_warnings
from teleport.plan.stage import Stage, draws_from_retrieval, mined_by_others
from teleport.plan.teachers import require_comparable, scores_of_cross_encoder, scores_of_file, vectors_of_teacher
from teleport.refusal import Refusal
from teleport.settings.negatives import keys_read, resolve_draws
from teleport.settings.pool import Draw, NegativesFileSettings, RelabelSettings, Removal, ScoreSettings
from teleport.settings.registry import (
    ANCHORS,
    CANDIDATES,
    POSITIVES,
    RELABELLINGS,
    SOURCES,
    compared,
    comparing,
    judges,
    merge_loads,
    roles_of,
    score_loads,
    train_loads,
    train_needs,
)
from teleport.settings.search import IndexSettings, RetrieveSettings
from teleport.settings.section import FILE, MINER, NoSettings, Part
from teleport.settings.training import ALSO, DEV_NEIGHBOURS, Training, TrainSettings, never_at_its_rate, reads_judgments
from teleport.training.seen import JUDGMENTS, SCORES, VECTORS

DRAWING = {"count", "draw", "ranks", "scored"}  # settings of a source that choose among its candidates
LISTS = {"queries", "lookahead", "neighbours", "bm25", "file"}  # needs of sources whose candidates depend on no draw
# The settings of judgments for a training that reads none: whatever they are, it is the same training.
UNREAD = {name: Removal.model_fields[name].default for name in ("relevant_grade", "same_text")}
SIDES = {"query": "queries", "passage": "passages"}  # side → the role of its vectors, read if it is frozen
OF_SIDE = {"query": "queries.train", "passage": "passages"}  # side → its texts in training


class Mining:
    """The retrievals of episode `number` (from 1), planned when needed: a source `needs` one of its attributes.

    settings: the episode's; miner: the `Episode` whose checkpoint mines, without a number if it is no earlier episode
    of this trajectory; vectors: of that checkpoint; start: the `Checkpoint` that training starts from; place: the
    episode, as messages begin
    """

    def __init__(self, trajectory, number, settings, miner, start):
        self.trajectory, self.experiment, self.seed = trajectory, trajectory.experiment, trajectory.seed
        self.number, self.settings, self.miner, self.vectors = number, settings, miner, miner.vectors
        self.start, self.place = start, f"experiment {trajectory.name}, episode {number}"
        self.score_of_pool = cache(self.score_pool)  # for a relabelling, a loss or a mask
        self.vectors_of_teacher = cache(partial(vectors_of_teacher, self))

    @property
    def last_pool(self):
        """The last pool of an earlier episode; None before the first."""
        return next(reversed(self.trajectory.pools), None)

    @cached_property
    def part(self):
        """The part of the training queries that is mined, in each episode the next one; None: all of them."""
        parts = self.settings.mining.parts
        refresh = sum(episode.mining.parts > 1 for episode in self.experiment.method[: self.number - 1])
        return Part(number=refresh % parts, of=parts) if parts > 1 else None

    @cached_property
    def index(self):
        return self.index_of(self.vectors)

    def index_of(self, vectors, suffix=""):
        """The index that mining with some `Vectors` searches: the exact one, or another kind."""
        index = self.settings.mining.index
        if index.kind == "flat":
            return vectors.index
        stage = Stage("index", IndexSettings(index=index.built), {"passages": vectors.passages})
        return self.trajectory.link(stage, self.number, f"index-mining{suffix}")

    @cached_property
    def queries(self):
        return self.retrieve("queries", "retrieve-queries")

    @cached_property
    def lookahead(self):
        """The retrieval of the positives of the training queries (ANCE-Tele §4, Eq. 6)."""
        inputs = {"split.train": self.trajectory.plan.split("train")} | self.positives
        return self.retrieve("positives", "retrieve-positives", inputs, anchor=self.settings.mining.anchor)

    @cached_property
    def neighbours(self):
        """{role: the retrieval of the queries} by each of several miners, which the source names (`by`)."""
        by = self.settings.negatives.settings_of("neighbours")["by"]
        return {f"neighbours.{whose}": self.neighbours_by(whose) for whose in by}

    def neighbours_by(self, whose):
        if whose == MINER:
            return self.queries
        vectors = self.vectors_of(whose)
        searched = vectors, self.index_of(vectors, f"-{whose}")
        return self.retrieve("queries", f"retrieve-queries-{whose}", searched=searched)

    def retrieve(self, of, link, inputs=None, searched=None, **anchor):
        """The retrieve stage of neighbours of queries or positives (`of`), linked as `link`; inputs: see
        Trajectory.retrieve; searched: (`Vectors`, index) of another checkpoint than the one that mines"""
        mining = self.settings.mining
        searched_by = {"depth": mining.depth, "parameters": mining.index.parameters_of(building=False)}
        settings = RetrieveSettings(of=of, split="train", part=self.part, **searched_by, **anchor)
        vectors, index = searched or (self.vectors, self.index)
        return self.trajectory.retrieve(vectors, index, settings, self.number, link, inputs)

    @cached_property
    def dev(self):
        """{"dev": stage}, the retrieval of the dev queries by BM25, by the checkpoint that mines or by the start; {} if
        training has no dev set. It searches exactly, to a depth of its own: no training depends on the depth of
        evaluation."""
        if not (dev := self.settings.watched_by):
            return {}
        trajectory = self.trajectory
        if dev.neighbours == "bm25":
            run = trajectory.plan.bm25(dev.split, DEV_NEIGHBOURS, self.experiment.encoder)
            return {"dev": trajectory.link(run, self.number, "retrieve-dev")}
        vectors = trajectory.episodes[0].vectors if dev.neighbours == "start" else self.vectors
        settings = RetrieveSettings(of="queries", split=dev.split, depth=DEV_NEIGHBOURS)
        return {"dev": trajectory.retrieve(vectors, vectors.index, settings, self.number, "retrieve-dev")}

    @cached_property
    def positives(self):
        """{"positives": stage} of positives by answer match, again in every episode; {} if positives are judged."""
        if self.trajectory.plan.config.collection.positives == "given":
            return {}
        inputs = self.trajectory.plan.parts("train") | {"queries": self.queries}
        return {"positives": self.trajectory.link(Stage("positives", NoSettings(), inputs), self.number)}

    @property
    def bm25(self):
        run = self.trajectory.plan.bm25("train", self.settings.mining.depth, self.experiment.encoder)
        return self.trajectory.link(run, self.number, "retrieve-bm25")

    @cached_property
    def file(self):
        """The negatives of an external file, in the form of a retrieval."""
        file, inputs = self.settings.negatives.file, self.trajectory.plan.parts("train")
        settings = NegativesFileSettings.taken_from(file, sha256=identify_file(file.path, "negatives.file.path"))
        if file.form == "token-ids":
            inputs |= self.trajectory.tokens("passages", "queries.train")
        return self.trajectory.link(Stage("negatives_file", settings, inputs), self.number, "negatives-file")

    @cached_property
    def pool(self):
        """The merge stage of the episode's pool of negatives (ANCE-Tele, Eq. 4-6 and Appendix C); None without a
        pool."""
        if not self.settings.has_pool:
            return None
        negatives, last = self.settings.negatives, self.last_pool
        last_size = sum(draw.count for draw in last.settings.sources.values()) if last else 0
        draws = resolve_draws(negatives, last_size)
        self.trajectory.keys_read |= keys_read(negatives, last_size if "momentum" in negatives.sources else 0)
        if not draws:
            problem = "momentum needs an earlier pool to draw from"
            remedy = "Add another source, or an episode before it."
            raise AboutKey(f"{self.place}: negatives.counts: {problem}. {remedy}", "negatives.counts")
        self.trajectory.warnings += pool_warnings(draws, self.settings, self.place)
        if "momentum" in draws and last.settings.part:
            problem = "momentum draws from the last pool, which has only a part of the queries (mining.parts)"
            raise Refusal(f"{self.place}: {problem}. Leave momentum out, or set mining.parts to 1.")
        settings = negatives.of_pool(episode=self.number, seed=self.seed, sources=draws, part=self.part)
        inputs = self.trajectory.plan.parts("train") | self.positives
        for name in draws:
            if needs := SOURCES[name].needs:
                made = getattr(self, needs)
                inputs |= made if isinstance(made, dict) else {name: made}
        inputs |= self.scores_of_candidates(settings, inputs)
        return self.trajectory.link(Stage("merge", settings, inputs, merge_loads(settings)), self.number)

    @cached_property
    def relabelled(self):
        """The relabel stage of the episode's pool, whose negatives and positives are trained on; None if there is
        none."""
        if not (relabel := self.settings.negatives.relabel):
            return None
        inputs = self.trajectory.plan.parts("train") | {"negatives": self.pool} | self.positives
        inputs |= {f"scores.{whose}": self.score_of_pool(whose) for whose in judges(relabel).values()}
        loads = {"relabel": RELABELLINGS[relabel.kind].module}
        return self.trajectory.link(Stage("relabel", RelabelSettings(relabel=relabel), inputs, loads), self.number)

    def score_pool(self, whose):
        """The stage with the scores by `whose` of the positives and of the pool's negatives."""
        return self.score(whose, self.pool.settings, {"negatives": self.pool} | self.positives)

    def scores_of_candidates(self, settings, inputs):
        """{role: score stage} of the scores that draws and filters compare and no retrieval has. settings: the pool's;
        inputs: of its merge stage"""
        stages = {}
        for whose, pairs in compared(settings).items():
            sources = {name: draw for name, draw in settings.sources.items() if name in pairs.get(CANDIDATES, ())}
            unknown = [name for name, draw in sources.items() if not (whose == MINER and draw.scored)]
            if unknown or POSITIVES in pairs:
                stages[f"scores.{whose}"] = self.score(whose, settings, inputs, unknown)
            if ANCHORS in pairs:
                stage = self.score(whose, settings, inputs, list(sources), of="positives")
                if (chunks := stage.inputs["passages"].settings.chunks) > 1:
                    keys = (k for k, by, method, _ in comparing(settings) if by == whose and ANCHORS in method.scores)
                    several = f"compares vectors of passages, and those of {whose} are {chunks} per passage"
                    raise Refusal(
                        f"{self.place}: {next(keys)} {several}. Set encoder.chunks to 1 there, or take another draw "
                        "or filter."
                    )
                stages[f"anchors.{whose}"] = stage
        return stages

    def score(self, whose, settings, inputs, names=(), of="queries"):
        """The stage with the scores, by the checkpoint or file of `whose`, of the positives and of the candidates of
        some sources of a settings.Pool. inputs: the stages that these sources read, or the pool (`negatives`) whose
        pairs are scored"""
        if of == "queries" and whose == FILE:
            return self.file
        if of == "queries" and whose != MINER and self.experiment.teachers[whose].file:
            return scores_of_file(self, whose)
        # Settings that do not decide the candidates are dropped: they would only score the same pairs again. Other
        # sources decide the place of one in the pool, but not its place in the registry.
        sources = {
            name: Draw(
                **draw.model_dump(exclude=DRAWING)
                | {"count": 0 if roles_of(name, inputs) else draw.count, "place": list(SOURCES).index(name)}
            )
            for name, draw in settings.sources.items()
            if name in names
        }
        roles = chain.from_iterable(roles_of(name, inputs) for name in ("negatives", "positives", *names))
        read = {role: inputs[role] for role in roles}
        read |= self.trajectory.plan.parts("train")
        random = "negatives" in inputs or any(SOURCES[name].needs not in LISTS for name in sources)
        drawn = {} if random else {"seed": 0, "episode": 1}  # one stage for all seeds and episodes
        settings = ScoreSettings.taken_from(settings, keep_duplicates=True, sources=sources, of=of, **drawn)
        link = "score" if of == "queries" and "negatives" not in inputs else f"score-{'pool' if names == () else of}"
        link += "" if whose == MINER else f"-{whose}"
        if of == "queries" and whose != MINER and self.experiment.teachers[whose].cross_encoder:
            return scores_of_cross_encoder(self, whose, settings, read, link)
        read |= self.vectors_of(whose).of_split("train")
        return self.trajectory.link(Stage("score", settings, read, score_loads(settings)), self.number, link)

    def vectors_of(self, whose):
        """The `Vectors` of the checkpoint that a name in `scores` refers to."""
        return self.vectors if whose == MINER else self.vectors_of_teacher(whose)

    def train(self):
        """The train stage; the caller knows which checkpoint has which side."""
        trajectory, live = self.trajectory, self.settings.negatives.live
        training = self.settings.training
        settings, continued = self.train_settings(), self.continued
        if trajectory.also and (live or training.memory or not training.steps):
            why = "training.memory keeps passages of one" if training.memory else "negatives.live searches one"
            if not training.steps:
                why = "training.epochs counts passes over one; set training.steps"
            raise Refusal(f"{self.place}: `also` trains on several collections, and {why}.")
        if (steps := training.steps) and (stop := training.stop_after_steps or 0) > steps:
            trajectory.warnings.append(f"{self.place}: training.stop_after_steps {stop} exceeds the {steps} steps.")
        if steps and (never := never_at_its_rate(training, steps)):
            trajectory.warnings.append(f"{self.place}: {never}")
        inputs = self.read_in_training
        inputs |= {
            "checkpoint": self.start.stage,
            "pretrained": trajectory.pretrained,
            "continued": continued,
        } | self.dev
        if dev := self.settings.watched_by:
            inputs |= {f"split.{dev.split}": trajectory.plan.split(dev.split)}
            inputs |= trajectory.tokens(f"queries.{dev.split}")
        if "query" not in training.trains and dev:
            inputs["dev_queries"] = self.frozen("query", f"queries.{dev.split}")
        for number, also in enumerate(trajectory.also.values(), 1):
            read = also.mining(self).read_in_training
            inputs |= {f"{ALSO.format(number)}{role}": stage for role, stage in read.items()}
        if continued and training.continues is True:
            now, before = (each["clusters"].name if "clusters" in each else None for each in (inputs, continued.inputs))
            if now != before:
                why = f"training.continues keeps the batches of episode {trajectory.episodes[-1].number}"
                raise Refusal(
                    f"{self.place}: {why}, so training.clusters must go by the same vectors of queries, and not by a "
                    "checkpoint that changes. Name another teacher, or set continues to moments."
                )
        if live:
            index = Stage("index", IndexSettings(index=live.index), {"passages": inputs["passages"]})
            inputs["index"] = trajectory.link(index, self.number, "index-live")
        inputs, loads = {role: stage for role, stage in inputs.items() if stage}, train_loads(settings)
        if not reads_judgments(settings, loads):
            settings = settings.model_copy(update=UNREAD)
        return trajectory.link(Stage("train", settings, inputs, loads), self.number)

    @property
    def since(self):
        """The trainings (list of stages) since the checkpoint that mined the episode's negatives; None if no checkpoint
        of this trajectory mined them."""
        mined = self.pool and draws_from_retrieval(self.pool) and not mined_by_others(self.pool)
        if not mined or self.miner.number is None:
            return None
        return [episode.train for episode in self.trajectory.episodes[self.miner.number + 1 :]]

    @property
    def read_in_training(self):
        """{role: stage} that a training reads from the collection: texts, negatives, positives, teachers' scores and
        vectors, and the vectors of a frozen side."""
        training, trajectory = self.settings.training, self.trajectory
        inputs = trajectory.plan.parts("train") | trajectory.tokens("passages", "queries.train")
        inputs |= ({"negatives": self.pool} if self.pool else {}) | self.positives
        if relabelled := self.relabelled:
            inputs |= {"negatives": relabelled, "positives": relabelled}
        inputs |= self.teaching(training, self.pool)
        if training.clusters:
            inputs["clusters"] = self.vectors_of(training.clusters.vectors).queries("train")
        return inputs | {SIDES[side]: self.frozen(side, OF_SIDE[side]) for side in set(SIDES) - set(training.trains)}

    def frozen(self, side, texts):
        """The encode stage of a frozen side's texts, under the checkpoint that training starts from."""
        made = getattr(self.start, side)
        return self.trajectory.link(self.trajectory.encoding_of(made, texts), self.number, f"frozen-{texts}")

    def teaching(self, training, pool):
        """{role: stage} of the scores and vectors that an episode's loss and masks read. pool: its merge stage, or
        None"""
        inputs, (needs, compared) = {}, train_needs(training)
        if needs.pop(JUDGMENTS, None) and (self.positives or self.relabelled):
            unjudged = "negatives.relabel" if self.relabelled else "collection.positives: answers"
            raise Refusal(
                f"{self.place}: training.loss learns from the grades of judgments, and {unjudged} makes positives of "
                "passages without a judgment. Leave it out, or name a teacher in the loss's `scores`."
            )
        for whose, needed in sorted(needs.items()):
            if SCORES in needed and not pool:
                several = "training compares scores of a pool's pairs, but negatives_per_query is 0"
                raise Refusal(f"{self.place}: {several}. Raise it, or take another loss or mask.")
            if SCORES in needed:
                inputs[f"scores.{whose}"] = self.score_of_pool(whose)
            if VECTORS in needed:
                roles = f"vectors.{whose}.queries", f"vectors.{whose}.passages"
                vectors = self.vectors_of(whose)
                inputs |= dict(zip(roles, vectors.of_split("train").values(), strict=True))
            if whose in compared:
                other = vectors.reading.encoder if vectors.reading else vectors.trajectory.experiment.encoder
                require_comparable(self.place, whose, self.experiment.encoder, other)
        return inputs

    def train_settings(self):
        """The settings of the train stage. Raises Refusal for live search or mixed negatives with several chunks, and
        for averaging adapters."""
        negatives, training, encoder = self.settings.negatives, self.settings.training, self.experiment.encoder
        if negatives.live and encoder.chunks > 1:
            several = f"negatives.live searches one vector per passage, but encoder.chunks is {encoder.chunks}"
            raise Refusal(f"{self.place}: {several}. Set it to 1.")
        if training.mixed_negatives and encoder.chunks > 1:
            several = f"training.mixed_negatives mixes one vector per passage, but encoder.chunks is {encoder.chunks}"
            raise Refusal(f"{self.place}: {several}. Set it to 1, or the other to 0.")
        if encoder.lora and training.average_with_start:
            why = "training.average_with_start averages whole weights, but encoder.lora trains adapters"
            raise Refusal(f"{self.place}: {why}. Set it to 0, or encoder.lora to null.")
        one_run = self.continued and training.continues is True
        return TrainSettings.taken_from(
            encoder,
            training=Training.taken_from(training),
            episode=self.number,
            run_episode=self.continued.settings.run_episode if one_run else self.number,
            part=self.part,
            seed=self.seed,
            relevant_grade=negatives.relevant_grade,
            same_text=negatives.same_text,
            live=negatives.live,
            dev=self.settings.watched_by,
            ignore_own_text=bool(self.settings.watched_by and self.trajectory.evaluation.ignore_own_text),
            also=[also.weight for also in self.experiment.also],
        )

    @cached_property
    def continued(self):
        """The train stage of the last episode, if this one continues it, else None."""
        training, before = self.settings.training, self.trajectory.episodes[-1]
        if not (before.train and before.settings.training.continues and training.continues):
            return None
        one_schedule = ("steps", "cycle_steps") if training.continues is True else ()
        for name in ("start_from", "trains", "optimizer", *one_schedule):
            expected = "previous" if name == "start_from" else getattr(before.settings.training, name)
            if getattr(training, name) != expected:
                why = f"training.continues goes on with episode {before.number}"
                raise Refusal(
                    f"{self.place}: {why}, so training.{name} must be {expected}, not {getattr(training, name)}."
                )
        done = [train.settings for train in self.trajectory.trains]
        done = [each.training for each in done if each.run_episode == before.train.settings.run_episode]
        done = sum(each.stop_after_steps or each.steps or 0 for each in done)  # of the training that is continued
        if training.continues is True and training.steps and done >= training.steps:
            problem = f"training.steps is {training.steps}, and the episodes that this one continues take {done}"
            raise Refusal(f"{self.place}: {problem}. Raise it, stop earlier episodes sooner, or remove this one.")
        return before.train
