"""From a configuration to stages: which exist, under which key, and who uses them."""

from teleport.plan.experiment import Trajectory
from teleport.plan.identity import identify_downloads, identify_file, identify_source
from teleport.plan.stage import Stage
from teleport.settings.scoring import EvaluateSettings, ExternalSettings
from teleport.settings.search import Bm25, Bm25Settings, LexicalIndexSettings


class Plan:
    """All stages of a configuration, shared where experiments agree.

    `stages`: {"kind/key": Stage}; `trajectories`: {experiment name: [Trajectory per seed]}; `bm25_runs`: {split:
    evaluate stage}, empty without a BM25 row; `external_runs`: {name in `external`: {split: evaluate stage}} of run
    files from elsewhere; `warnings`: sentences for a person.
    """

    def __init__(self, config, experiments):
        self.config, self.experiments = config, experiments
        fetched = {}
        if config.collection.source == "downloads":
            settings, origins = identify_downloads(config.collection)
            fetched["download"] = Stage("download", settings, {}, origins=origins)
        self.collection = Stage("collection", identify_source(config.collection), fetched)
        self.planned = {}
        self.trajectories = {
            name: [self.trajectory(name, seed) for seed in experiment.seeds] for name, experiment in experiments.items()
        }
        self.stages, self.users, self.labels = {}, {}, {}
        for name, trajectories in self.trajectories.items():
            for row in (row for trajectory in trajectories for row in trajectory.rows):
                episode = f", episode {row.episode}" if row.episode else ""
                self.note(row.stage, name, row.link.split("/")[-1] + episode)
        self.bm25_runs = self.plan_bm25() if config.bm25 else {}
        self.external_runs = {
            name: self.plan_external(name, external) for name, external in config.external.items() if external.runs
        }
        of_seeds = (text for trajectories in self.trajectories.values() for t in trajectories for text in t.warnings)
        self.warnings = list(dict.fromkeys(of_seeds))

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
        if other.encoder != trajectory.experiment.encoder:
            raise ValueError(f"{where}: {start.experiment} has other settings of `encoder`. Make them equal.")
        checkpoints = self.trajectory(start.experiment, trajectory.seed).checkpoints
        number = len(checkpoints) - 1 if start.episode == "last" else start.episode
        if not 0 <= number < len(checkpoints):
            raise ValueError(f"{where}: {start.experiment} has {len(checkpoints) - 1} episodes, not {number}.")
        return checkpoints[number]

    def note(self, stage, user, label):
        self.stages[stage.name] = stage
        self.labels.setdefault(stage.name, label)
        users = self.users.setdefault(stage.name, [])
        if user not in users:
            users.append(user)

    def lexical_index(self, title):
        """The index of BM25, by the configuration's parameters, or the default ones where its row is left out."""
        parameters = self.config.bm25 or Bm25()
        settings = LexicalIndexSettings(title=title, **parameters.model_dump())
        return Stage("lexical_index", settings, {"collection": self.collection})

    def bm25(self, index, split, depth):
        """The BM25 run of a split with a `lexical_index` stage."""
        settings = Bm25Settings(split=split, depth=depth)
        return Stage("bm25", settings, {"collection": self.collection, "index": index})

    def score(self, run, split):
        """The evaluation of a run on a split."""
        evaluation = self.config.evaluation
        collapse = evaluation.model_dump(include={"collapse", "separator"}) if evaluation.collapse else {}
        settings = EvaluateSettings(split=split, measures=evaluation.measures_of(split), **collapse)
        return Stage("evaluate", settings, {"collection": self.collection, "run": run})

    def note_scored(self, run, split, user):
        """Note a run on a split and its evaluation, which is returned."""
        evaluated = self.score(run, split)
        self.note(run, user, f"{run.kind} search-{split}")
        self.note(evaluated, user, f"evaluate-{split}")
        return evaluated

    def plan_bm25(self):
        depth, splits = self.config.evaluation.depth, self.config.evaluation.splits
        index = self.lexical_index(self.config.encoder.title)
        self.note(index, "BM25", "lexical_index")
        return {split: self.note_scored(self.bm25(index, split, depth), split, "BM25") for split in splits}

    def plan_external(self, name, external):
        """{split: evaluate stage} of the run files of one entry of `external`."""
        runs = {}
        for split, file in external.runs.items():
            digest = identify_file(file, f"external.{name}.runs.{split}")
            settings = ExternalSettings(file=file, sha256=digest, split=split, unknown_queries=external.unknown_queries)
            self.note(self.collection, name, "collection")
            run = Stage("external", settings, {"collection": self.collection})
            runs[split] = self.note_scored(run, split, name)
        return runs

    def label(self, name):
        """What a person is told about a stage: kind, episode, and the experiments that use it."""
        return f"{self.labels[name]} · {', '.join(self.users[name])}"
