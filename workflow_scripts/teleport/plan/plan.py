"""From a configuration to stages: which exist, under which key, and who uses them."""

from functools import cached_property
from itertools import chain

from teleport.encoder.own_settings import completed
from teleport.plan.analyses import contrast
from teleport.plan.experiment import Trajectory
from teleport.plan.identity import identify_checkpoint, identify_downloads, identify_file, identify_source
from teleport.plan.splits import require_splits
from teleport.plan.stage import Stage
from teleport.settings.scoring import EvaluateSettings, ExternalSettings
from teleport.settings.search import Bm25, Bm25Settings, LexicalIndexSettings

# Settings of `encoder` that may change from a checkpoint to one that starts from it: how much of a text is read.
LENGTHS = {"max_query_tokens", "max_passage_tokens", "max_characters", "chunks", "vectors"}


def with_own_settings(experiment):
    """A `settings.Experiment` whose encoder says everything, also what the configuration leaves to the checkpoint."""
    for key in ("checkpoint", "query_checkpoint"):
        if given := getattr(experiment.encoder, key):
            identify_checkpoint(given, f"encoder.{key}")  # refused here where it is not there
    return experiment.model_copy(update={"encoder": completed(experiment.encoder)})


class Plan:
    """All stages of a configuration, shared where experiments agree.

    `stages`: {"kind/key": Stage}; `trajectories`: {experiment name: [Trajectory per seed]}; `bm25_runs`: {split:
    evaluate stage}, empty without a BM25 row, which needs texts; `external_runs`: {name in `external`: {split: evaluate
    stage}} of run files from elsewhere; `contrasts`: {"BM25" or name in `external`: contrast stage} of these, where
    `evaluation.analyses` asks for them; `warnings`: sentences for a person.
    """

    def __init__(self, config, experiments):
        self.config = config
        fetched = {}
        if config.collection.source == "downloads":
            settings, origins = identify_downloads(config.collection)
            fetched["download"] = Stage("download", settings, {}, origins=origins)
        self.collection = Stage("collection", identify_source(config.collection), fetched)
        require_splits(config, experiments)
        self.experiments = {name: with_own_settings(experiment) for name, experiment in experiments.items()}
        self.planned = {}
        self.trajectories = {
            name: [self.trajectory(name, seed) for seed in experiment.seeds]
            for name, experiment in self.experiments.items()
        }
        self.stages, self.users, self.labels, self.seeds = {}, {}, {}, {}
        for name, trajectories in self.trajectories.items():
            for row in (row for trajectory in trajectories for row in trajectory.rows):
                episode = f", episode {row.episode}" if row.episode else ""
                self.note(row.stage, name, row.link.split("/")[-1] + episode)
                self.seeds.setdefault(row.stage.name, set()).add(row.seed)
        self.contrasts = {}
        self.bm25_runs = self.plan_bm25() if config.bm25 and config.collection.source != "judgments" else {}
        self.external_runs = {
            name: self.plan_external(name, external) for name, external in config.external.items() if external.runs
        }
        of_seeds = (text for trajectories in self.trajectories.values() for t in trajectories for text in t.warnings)
        self.warnings = list(dict.fromkeys(of_seeds))

    @cached_property
    def released(self):
        """{encode stage's name: stages that read it} of those whose vectors go after all of these (keep_vectors)."""
        if (keep := self.config.keep_vectors) == "all":
            return {}
        trajectories = chain.from_iterable(self.trajectories.values()) if keep == "last" else []
        kept = {stage.name for t in trajectories for stage in (t.vectors[-1].queries, t.vectors[-1].passages)}
        readers = {name: [] for name, stage in self.stages.items() if stage.kind == "encode" and name not in kept}
        for stage in self.stages.values():
            for name in {read.name for read in stage.inputs.values()} & readers.keys():
                readers[name].append(stage)
        return readers

    def trajectory(self, name, seed):
        """The `Trajectory` of an experiment under a seed, planned once. Raises ValueError for starts in a circle."""
        if (name, seed) not in self.planned:
            self.planned[name, seed] = None  # until it is planned
            self.planned[name, seed] = Trajectory(self, name, seed)
        if self.planned[name, seed] is None:
            names = ", ".join(other for (other, _), trajectory in self.planned.items() if trajectory is None)
            raise ValueError(f"experiments.{name}: start_from goes in a circle ({names}). Start one of them elsewhere.")
        return self.planned[name, seed]

    def checkpoint_of(self, start, trajectory):
        """The `Checkpoint` that a `settings.Start` names. Raises ValueError for no such episode, or another encoder."""
        where = f"experiments.{trajectory.name}: training.start_from"
        if start.experiment not in self.experiments:
            raise ValueError(f"{where}: no experiment is called {start.experiment!r}. Add it, or name another one.")
        other = self.experiments[start.experiment]
        one, two = (encoder.model_dump(exclude=LENGTHS) for encoder in (other.encoder, trajectory.experiment.encoder))
        if one != two:
            remedy = "Make them equal, but for lengths, chunks and vectors."
            raise ValueError(f"{where}: {start.experiment} has other settings of `encoder`. {remedy}")
        checkpoints = self.trajectory(start.experiment, trajectory.seed).checkpoints
        number = len(checkpoints) - 1 if start.episode == "last" else start.episode
        if not 0 <= number < len(checkpoints):
            raise ValueError(f"{where}: {start.experiment} has {len(checkpoints) - 1} episodes, not {number}.")
        return checkpoints[number]

    def note(self, stage, user, label):
        """Note a stage, who uses it and what it is called; and what it reads, where no row has that."""
        for read in stage.inputs.values():
            if read.name not in self.stages:
                self.note(read, user, read.kind)
        self.stages[stage.name] = stage
        self.labels.setdefault(stage.name, label)
        users = self.users.setdefault(stage.name, [])
        if user not in users:
            users.append(user)

    def bm25(self, split, depth, title):
        """The BM25 run of a split, by the configuration's parameters, or the default ones where its row is left out."""
        parameters = self.config.bm25 or Bm25()
        settings = LexicalIndexSettings(title=title, **parameters.model_dump())
        index = Stage("lexical_index", settings, {"collection": self.collection})
        settings = Bm25Settings(split=split, depth=depth)
        return Stage("bm25", settings, {"collection": self.collection, "index": index})

    @property
    def encoder(self):
        """The encoder of the first experiment, with which `make forecast` counts; None where nothing is encoded."""
        return next((experiment.encoder for experiment in self.experiments.values()), None)

    @property
    def title(self):
        """What the configuration's encoder, or else the first one, reads of titles, and so BM25; "sep" without any."""
        encoder = self.config.encoder or self.encoder
        return encoder.title if encoder else "sep"

    @property
    def collapse(self):
        """The settings by which runs of passages become runs of documents; none where passages are scored (dict)."""
        evaluation = self.config.evaluation
        return evaluation.model_dump(include={"collapse", "separator"}) if evaluation.collapse else {}

    def score(self, run, split, measures=None):
        """The evaluation of a run on a split, by the measures of the split or others."""
        measures = measures or self.config.evaluation.measures_of(split)
        settings = EvaluateSettings(split=split, measures=measures, **self.collapse)
        return Stage("evaluate", settings, {"collection": self.collection, "run": run})

    def note_scored(self, run, split, user):
        """Note a run on a split, what analyses it, and its evaluation, which is returned."""
        evaluated = self.score(run, split)
        self.note(run, user, f"{run.kind} search-{split}")
        self.note(evaluated, user, f"evaluate-{split}")
        if split == self.config.evaluation.contrast_split:
            self.contrasts[user] = contrast(self, run)
            self.note(self.contrasts[user].inputs["reference"], user, f"reference-{split}")
            self.note(self.contrasts[user], user, f"contrast-{split}")
        return evaluated

    def plan_bm25(self):
        depth, splits = self.config.evaluation.depth, self.config.evaluation.splits
        return {split: self.note_scored(self.bm25(split, depth, self.title), split, "BM25") for split in splits}

    def plan_external(self, name, external):
        """{split: evaluate stage} of the run files of one entry of `external`."""
        for stage in (*self.collection.inputs.values(), self.collection):
            self.note(stage, name, stage.kind)
        return {split: self.note_scored(self.external(name, split), split, name) for split in external.runs}

    def external(self, name, split):
        """The run of one split of an entry of `external`. Over judgments alone it may have any passages."""
        external = self.config.external[name]
        file = external.runs[split]
        settings = ExternalSettings(
            file=file,
            sha256=identify_file(file, f"external.{name}.runs.{split}"),
            split=split,
            unknown_queries=external.unknown_queries,
            unknown_passages="keep" if self.config.collection.source == "judgments" else "error",
        )
        return Stage("external", settings, {"collection": self.collection})

    def label(self, name):
        """What a person is told about a stage: kind, episode, experiments that use it; its seed if there are others."""
        own, others = self.seeds.get(name, set()), set().union(*self.seeds.values())
        seed = f", seed {min(own)}" if len(own) == 1 and len(others) > 1 else ""
        return f"{self.labels[name]}{seed} · {', '.join(self.users[name])}"
