"""The plan of a configuration: its stages, their keys, and who uses them."""

import math
from functools import cached_property
from itertools import chain
from pathlib import Path

from teleport.encoder.completed import completed, read_files, replaced
from teleport.evaluation.check import needed_splits
from teleport.plan.about_key import AboutKey, about, of_experiment
from teleport.plan.analyses import contrast
from teleport.plan.dev_split import require_dev
from teleport.plan.encoder_warnings import longer_texts, small_scores
from teleport.plan.encodings import tokens_stage
from teleport.plan.experiment import Trajectory
from teleport.plan.identity import (
    fetched_elsewhere,
    identify_corpus,
    identify_download,
    identify_file,
    identify_split,
    pretrained_settings,
)
from teleport.plan.key_lines import with_line
from teleport.plan.pool_warnings import unread_warnings
from teleport.plan.revisions import revision_warnings
from teleport.plan.stage import Stage, out_of_domain
from teleport.plan.teachers import unused_warnings
from teleport.refusal import Refusal
from teleport.running.places import require_place
from teleport.settings.collection import Fetched
from teleport.settings.measures import Collapse, EvaluateSettings, ExternalSettings
from teleport.settings.read import load_files
from teleport.settings.registry import FORMS
from teleport.settings.search import Bm25, Bm25Settings, LexicalIndexSettings

# Settings of `encoder` that may differ between a checkpoint and one that starts from it: how much of a text is read,
# and its prefix (STAR starts from ANCE's warm-up, and its tokenizer puts a space before each text).
MAY_CHANGE = {"max_query_tokens", "max_passage_tokens", "max_characters", "chunks", "vectors"}
MAY_CHANGE |= {"query_prefix", "passage_prefix"}

# Keys of the configuration, and of an experiment.
OUT_OF_DOMAIN = "evaluation.out_of_domain"
DEV, START, MINED_BY = "training.dev", "training.start_from", "mining.checkpoint"


def alike(one, two):
    """Whether two encoders (settings.Encoder) differ at most in MAY_CHANGE."""
    return one.model_dump(exclude=MAY_CHANGE) == two.model_dump(exclude=MAY_CHANGE)


def require_splits(config, experiments):
    """Raise Refusal if the collection has no split of a name that is evaluated, watched, or trained on, or if a
    reported split chooses checkpoints."""
    episodes = [(name, *each) for name, experiment in experiments.items() for each in enumerate(experiment.method, 1)]
    names = config.collection.split_names()
    for split, reason in needed_splits(config.evaluation.splits, (), bool(episodes)).items():
        if split not in names:
            have = f"the collection has no such split; it has {', '.join(names)}"
            remedy = "Add its queries and judgments to the collection, or change the configuration."
            key = "evaluation.splits" if split in config.evaluation.splits else "collection"
            raise AboutKey(f"{reason}, but {have}. {remedy}", key)
    for name, number, episode in episodes:
        if episode.watched_by:
            require_dev(config, episode.watched_by, episode.training, f"experiment {name}", DEV, (name, number))


def require_counts(config, stages):
    """Raise Refusal if `counts` of the configuration has too few training queries for a batch, or fewer vectors than
    k-means has centroids: passages of an index, or training queries. Without `counts` the stages refuse."""
    counts = config.expected
    trained = counts.queries.get("train", math.inf) if counts else math.inf
    key = "counts.queries.train" if counts is config.counts else "collection.train_queries.count"
    for stage in stages if counts else ():
        if stage.kind == "check" and (needed := stage.settings.batch_queries or 0) > trained:
            raise AboutKey(
                f"training.batch_queries: a batch (from one of mining.parts) needs {needed} training queries, and "
                f"{key} is {trained}. Lower the batch, or raise {key}.",
                key,
            )
        if stage.kind == "index" and (centroids := stage.settings.index.centroids) > counts.passages:
            index = stage.settings.index
            raise AboutKey(
                f"{index.keys} {index}: {centroids} centroids are more than the {counts.passages} passages of "
                "`counts`. Name another index, such as Flat, or correct counts.",
                "counts.passages",
            )
        clusters = stage.settings.training.clusters if stage.kind == "train" else None
        if clusters and clusters.number > trained:
            raise AboutKey(
                f"training.clusters.number: {clusters.number} clusters are more than the {trained} training queries of "
                f"{key}. Take fewer clusters, or raise {key}.",
                key,
            )


def require_out_of_domain(plan):
    """Raise Refusal for a file in evaluation.out_of_domain whose queries are evaluated already, whose name is taken in
    tables, or which has evaluation.out_of_domain itself."""
    known, key = {plan.split(split).name: "evaluation.splits" for split in plan.config.evaluation.splits}, OUT_OF_DOMAIN
    for name, other in plan.out_of_domain.items():
        path, written = plan.written[name]
        for split in other.config.evaluation.splits:
            if (owner := known.setdefault(other.split(split).name, path)) != path:
                same = f"{path} evaluates the same {split} queries as {owner}"
                raise AboutKey(f"{key}: {same}. Leave one of them out.", key)
            if taken := {name, out_of_domain(name, split)} & set(plan.config.evaluation.splits):
                both = f"{path} and a split of evaluation.splits are both called {taken.pop()} in tables"
                raise AboutKey(f"{key}: {both}. Rename the file.", key)
        if written.evaluation.out_of_domain:
            nested = f"{path} has evaluation.out_of_domain itself"
            raise AboutKey(f"{key}: {nested}. Name a configuration without it.", key)


def warnings_of(plan, trajectories):
    """The sentences (list) on what a person may not have meant, each once."""
    methods = [trajectory.experiment.method for trajectory in trajectories]
    given = {key for method in methods for episode in method for key in episode.negatives.model_fields_set}
    warnings = list(chain.from_iterable(trajectory.warnings for trajectory in trajectories))
    warnings += unread_warnings(given, set().union(*(trajectory.keys_read for trajectory in trajectories)))
    warnings += unused_warnings(trajectories) + longer_texts(plan) + small_scores(plan)
    for each in (plan, *plan.others.values()):
        warnings += fetched_elsewhere(each.config.collection)
    warnings += revision_warnings(plan.config, plan.stages.values())
    return list(dict.fromkeys(warnings))


class Plan:
    """All stages of a configuration, shared by experiments as far as they agree.

    `stages`: {"kind/key": Stage}; `trajectories`: {experiment name: [Trajectory per seed]}; `bm25_runs`: {split:
    evaluate stage}, empty without a BM25 row, which needs texts; `external_runs`: {name in `external`: {split: evaluate
    stage}} of external run files; `contrasts`: {"BM25" or name in `external`: contrast stage} of these, with
    `evaluation.analyses.against`; `others`: {name: `Plan`} of other collections, with the trajectories of the
    experiments that also train on them; `written`: {name: (file, its `Config`)} of these; `out_of_domain`: {name:
    `Plan`} of those in evaluation.out_of_domain; `elsewhere`: {stage's name: name in `others`} of stages of another
    collection; `replaced`: {experiment name: `completed.replaced`}; `warnings`: sentences for a person.
    """

    @classmethod
    def of_files(cls, files):
        """The plan of YAML files, merged in order as `--configfile` does. Raises Refusal."""
        return cls(*load_files(files))

    @with_line
    def __init__(self, config, experiments):
        self.config, self.experiments, self.splits = config, dict(experiments), {}
        with about("artefacts"):
            for place in config.artefacts:
                require_place(place, "artefacts: ")
        self.loads = {"form": FORMS[config.collection.source]}
        settings = identify_corpus(config.collection)
        self.corpus = Stage("corpus", settings, self.downloads(settings.source), self.loads)
        require_splits(config, experiments)
        self.replaced = {}
        for name, experiment in experiments.items():  # encoders completed with the settings in checkpoints' files
            with of_experiment(name, key="encoder"):
                pretrained_settings(experiment.encoder, None)  # refuses a missing checkpoint
                files = read_files(experiment.encoder)
                encoder = completed(experiment.encoder, files)
            self.experiments[name] = experiment.model_copy(update={"encoder": encoder})
            self.replaced[name] = replaced(experiment.encoder, files)
        self.planned, self.contrasts, self.others, self.written = {}, {}, {}, {}
        self.stages, self.users, self.labels, self.seeds = {}, {}, {}, {}
        self.out_of_domain = dict(self.other(path, OUT_OF_DOMAIN) for path in config.evaluation.out_of_domain)
        require_out_of_domain(self)
        self.trajectories = {
            name: [self.trajectory(name, seed) for seed in experiment.seeds]
            for name, experiment in self.experiments.items()
        }
        for name, other in self.others.items():
            trained = {each: seeds for each, seeds in self.trajectories.items() if name in seeds[0].also}
            other.trajectories = {each: [of_seed.also[name] for of_seed in seeds] for each, seeds in trained.items()}
            other.experiments = {each: self.experiments[each] for each in trained or self.trajectories}
            external = {each: config.external[each] for each in trained if each in config.external}
            other.config = other.config.model_copy(update={"external": external})
            for stage in other.stages.values():
                self.add(stage, f"BM25 of {name}", other.labels[stage.name])
        every = list(chain.from_iterable(self.trajectories.values()))
        for name, row in ((trajectory.name, row) for trajectory in every for row in trajectory.rows):
            episode = f", episode {row.episode}" if row.episode else ""
            self.add(row.stage, name, row.link.split("/")[-1] + episode)
            self.seeds.setdefault(row.stage.name, set()).add(row.seed)
            if row.of:
                self.others[row.of].stages[row.stage.name] = row.stage
        self.elsewhere = {stage: name for name, other in self.others.items() for stage in other.stages}
        self.warnings = warnings_of(self, every)
        self.bm25_runs, self.external_runs = {}, {}
        if config.bm25 and config.collection.has_texts:
            depth, splits = config.evaluation.searched, config.evaluation.splits
            self.bm25_runs = self.add_runs({split: self.bm25(split, depth) for split in splits}, "BM25")
            for name, other in self.out_of_domain.items():
                runs = other.bm25_runs.items()
                self.bm25_runs |= {out_of_domain(name, split): evaluated for split, evaluated in runs}
        for name, external in config.external.items():
            if external.runs:
                runs = {split: self.external(name, split) for split in external.runs}
                self.external_runs[name] = self.add_runs(runs, name)
        stages = [stage for name, stage in self.stages.items() if name not in self.elsewhere]
        require_counts(config, stages)

    def other(self, path, place):
        """(name, `Plan` of its collection with BM25 alone) of another configuration file, by its path. place: the key
        that names it, for a refusal"""
        name, key = Path(path).stem, place.rpartition(" ")[2]
        if name not in self.others:
            try:
                config, _ = load_files([path])
                self.written[name], self.others[name] = (path, config), Plan(self.of_collection(config), {})
            except Refusal as error:
                there = place if path in str(error) else f"{place}: {path}"
                raise AboutKey(f"{there}: {error}", key) from None
        file, config = self.written[name]
        if file != path:
            both = f"{path} and {file} are both called {name}, which names their stages"
            raise AboutKey(f"{place}: {both}. Rename one.", key)
        if not config.collection.has_texts:
            raise AboutKey(f"{place}: {path} has judgments alone, no texts to encode. Leave it out.", key)
        return name, self.others[name]

    def of_collection(self, config):
        """Another `Config` reduced to its collection and evaluation; with BM25 only if this configuration has it."""
        evaluation = {"analyses": None, "rerank": {}, "out_of_domain": []}
        evaluation |= {key: getattr(self.config.evaluation, key) for key in ("significance", "every_episode")}
        evaluation = config.evaluation.model_copy(update=evaluation)
        shared = {key: getattr(self.config, key) for key in ("name", "encoder", "search_index")}
        none = {"experiments": {}, "ablations": {}, "external": {}, "artefacts": []}
        none |= {} if self.config.bm25 else {"bm25": None}
        return config.model_copy(update=shared | none | {"evaluation": evaluation})

    def downloads(self, source):
        """{role: download stage} of the files that a part of the source names, one stage per file."""
        names = source.files if isinstance(source, Fetched) else ()
        made = {name: identify_download(self.config.collection, name) for name in names}
        return {f"download.{n}": Stage("download", settings, {}, origins=of) for n, (settings, of) in made.items()}

    def split(self, name):
        """The stage of a split."""
        if name not in self.splits:
            settings = identify_split(self.config.collection, name)
            inputs = {"corpus": self.corpus} | self.downloads(settings.source)
            self.splits[name] = Stage("split", settings, inputs, self.loads)
        return self.splits[name]

    def parts(self, *splits):
        """{role: stage} of the corpus and of splits by their names."""
        return {"corpus": self.corpus} | {f"split.{name}": self.split(name) for name in splits}

    @property
    def collection(self):
        """The corpus and the splits that are planned: {"corpus": Stage, "splits": {name: Stage}}."""
        return {"corpus": self.corpus, "splits": dict(self.splits)}

    @cached_property
    def deleted_vectors(self):
        """{encode stage's name: itself and the stages that read it} of encode stages whose vectors are deleted after
        these (keep_vectors)."""
        if (keep := self.config.keep_vectors) == "all":
            return {}
        trajectories = chain.from_iterable(self.trajectories.values()) if keep == "last" else []
        # Also of other collections (`also`, out_of_domain), which the same checkpoint encodes.
        encoded = {name: stage for name, stage in self.stages.items() if stage.kind == "encode"}
        of_last = [stage for t in trajectories for stage in t.episodes[-1].vectors.stages if stage.name in encoded]
        last = {stage.inputs["checkpoint"].name for stage in of_last}
        readers = {name: [stage] for name, stage in encoded.items() if stage.inputs["checkpoint"].name not in last}
        for stage in self.stages.values():
            for name in {read.name for read in stage.inputs.values()} & readers.keys():
                readers[name].append(stage)
        return readers

    def trajectory(self, name, seed):
        """The `Trajectory` of an experiment under a seed, planned once; of an entry of `external` under its only seed.
        Raises Refusal for circular starts, miners and teachers."""
        seed = self.experiments[name].seeds[0] if name in self.config.external else seed
        if (name, seed) not in self.planned:
            self.planned[name, seed] = None  # until it is planned
            trajectory = Trajectory(self, name, seed)
            with of_experiment(name, trajectory.episodes):
                trajectory.build()
            self.planned[name, seed] = trajectory
        if self.planned[name, seed] is None:
            names = [other for (other, _), trajectory in self.planned.items() if trajectory is None]
            circle = " → ".join([*names[names.index(name) :], name])
            raise Refusal(
                f"experiments.{name}: start_from, mining.checkpoint or teachers are circular ({circle}). Let one of "
                "them use another checkpoint."
            )
        return self.planned[name, seed]

    def checkpoint_of(self, start, trajectory):
        """The `Checkpoint` that a `settings.Start` under training.start_from names. Raises Refusal for a missing
        experiment or episode, or other encoder settings."""
        where = f"experiments.{trajectory.name}: {START}"
        other, episode = self.episode_of(trajectory, start, where, START)
        if not alike(other.experiment.encoder, trajectory.experiment.encoder):
            remedy = "Make them equal; only lengths, prefixes, chunks and vectors may differ."
            raise AboutKey(f"{where}: {start.experiment} has other `encoder` settings. {remedy}", START)
        return episode.checkpoint

    def miner_of(self, named, trajectory, where):
        """(`Checkpoint`, `Reading` or None) of a `settings.MinedBy`, which names an experiment or an entry of
        `external`; where: the beginning of a refusal. The reading is None if the two encoders are `alike`: then the
        trajectory's encoder reads the texts, and the checkpoint mines with the lengths and prefixes that are
        trained."""
        if named.external and not (named.external in self.config.external and named.external in self.experiments):
            missing = f"external has no encoder called {named.external!r}"
            raise AboutKey(f"{where}: {missing}. Add it, or name another one.", MINED_BY)
        other, episode = self.episode_of(trajectory, named, where, MINED_BY)
        same_reading = not named.external and alike(other.experiment.encoder, trajectory.experiment.encoder)
        return episode.checkpoint, None if same_reading else other.reading

    def episode_of(self, trajectory, named, where, key):
        """The (`Trajectory`, `Episode`) that `named` refers to by experiment (or external) and episode.

        It has the seed of `trajectory`, which may be the one referred to: then only its episodes planned so far exist.
        Raises Refusal about the `key`; `where` is the beginning of the sentence.
        """
        name = getattr(named, "external", None) or named.experiment
        own = name == trajectory.name and bool(trajectory.episodes)
        if not own and name not in self.experiments:
            raise AboutKey(f"{where}: no experiment is called {name!r}. Add it, or name another one.", key)
        other = trajectory if own else self.trajectory(name, trajectory.seed)
        number = len(other.episodes) - 1 if named.episode == "last" else named.episode
        if not 0 <= number < len(other.episodes):
            missing = f"{name} has no checkpoint of episode {number} yet, only up to {len(other.episodes) - 1}"
            raise AboutKey(f"{where}: {missing}. Name one of those.", key)
        return other, other.episodes[number]

    def add(self, stage, user, label):
        """Add a stage, its user and its label; also its inputs, if no row has them."""
        for read in stage.inputs.values():
            if read.name not in self.stages:
                self.add(read, user, read.kind)
        self.stages[stage.name] = stage
        self.labels.setdefault(stage.name, label)
        users = self.users.setdefault(stage.name, [])
        if user not in users:
            users.append(user)

    def bm25(self, split, depth, encoder=None):
        """The BM25 run of a split, with the configuration's parameters, or the default ones if its row is left out.

        encoder: gives the titles, and with subwords the tokenizer; by default the configuration's encoder, else the
        first experiment's
        """
        parameters, encoder = self.config.bm25 or Bm25(), encoder or self.config.encoder or self.encoder
        settings = LexicalIndexSettings.taken_from(parameters, title=encoder.title if encoder else "sep")
        tokens = {of: {} for of in ("passages", f"queries.{split}")}
        if settings.terms == "subwords":
            tokens = {of: {f"tokens.{of}": self.subwords(encoder, of)} for of in tokens}
        index = Stage("lexical_index", settings, {"corpus": self.corpus} | tokens["passages"])
        inputs = {f"split.{split}": self.split(split), "index": index} | tokens[f"queries.{split}"]
        return Stage("bm25", Bm25Settings(split=split, depth=depth), inputs)

    def subwords(self, encoder, texts):
        """The tokens stage of "passages" or "queries.SPLIT" that BM25 reads; an encoder without prefixes uses the same
        stage. Raises Refusal without an encoder."""
        if encoder is None:
            raise AboutKey(
                "bm25.terms is subwords, and the configuration has no encoder. Add one, or set terms to characters.",
                "bm25.terms",
            )
        encoder = completed(encoder).model_copy(update={"query_prefix": "", "passage_prefix": ""})
        tokenizer = Stage("pretrained", pretrained_settings(encoder, 0), {})
        return tokens_stage(self, encoder, texts, tokenizer)

    @property
    def encoder(self):
        """The encoder of the first experiment, by which `teleport forecast` counts; None if nothing is encoded."""
        return next((experiment.encoder for experiment in self.experiments.values()), None)

    @property
    def collapse(self):
        """The settings that turn runs of passages into runs of documents; the default if passages are scored."""
        evaluation = self.config.evaluation
        return Collapse.taken_from(evaluation) if evaluation.collapse else Collapse()

    def score(self, run, split, measures=None):
        """The evaluation of a run on a split, by the split's measures or others."""
        measures = measures or self.config.evaluation.measures_of(split)
        ignore = self.config.evaluation.ignore_own_text
        settings = EvaluateSettings.taken_from(self.collapse, split=split, measures=measures, ignore_own_text=ignore)
        return Stage("evaluate", settings, self.parts(split) | {"run": run})

    def add_runs(self, runs, user):
        """{split: evaluate stage} of BM25 or external runs ({split: stage}), added together with their contrasts."""
        evaluations = {split: self.score(run, split) for split, run in runs.items()}
        for split, run in runs.items():
            self.add(run, user, f"{run.kind} search-{split}")
            self.add(evaluations[split], user, f"evaluate-{split}")
            if split == self.config.evaluation.contrast_split:
                self.contrasts[user] = contrast(self, run)
                self.add(self.contrasts[user].inputs["reference"], user, f"reference-{split}")
                self.add(self.contrasts[user], user, f"contrast-{split}")
        return evaluations

    def external(self, name, split):
        """The run of one split of an entry of `external`. If the collection has judgments alone, it may have any
        passages."""
        external, has_texts = self.config.external[name], self.config.collection.has_texts
        run = {"file": external.runs[split], "form": "trec", "split": split}
        run |= {"sha256": identify_file(run["file"], f"external.{name}.runs.{split}")}
        settings = ExternalSettings.taken_from(external, unknown_passages="error" if has_texts else "keep", **run)
        return Stage("external", settings, self.parts(split))

    def label(self, name):
        """A stage's name in messages: kind, episode, experiments that use it; its seed if there are others."""
        seeds, planned = self.seeds.get(name, ()), {seed for e in self.experiments.values() for seed in e.seeds}
        seed = f", seed {min(seeds)}" if len(seeds) == 1 < len(planned) else ""
        return f"{self.labels[name]}{seed} · {', '.join(self.users[name])}"
