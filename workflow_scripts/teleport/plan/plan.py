"""From a configuration to stages: which exist, under which key, and who uses them."""

from teleport.plan.experiment import Trajectory
from teleport.plan.identity import identify_downloads, identify_run, identify_source
from teleport.plan.stage import Stage, score


def plan_collection(source):
    """The collection stage of the configuration's source, with the stage that fetches its files where it has one."""
    inputs = {}
    if source["source"] == "downloads":
        files, places = identify_downloads(source)
        inputs["download"] = Stage("download", {"files": files}, {}, places=places)
    return Stage("collection", identify_source(source), inputs)


class Plan:
    """All stages of a configuration, shared where experiments agree.

    `stages`: {"kind/key": Stage}; `trajectories`: {experiment name: [Trajectory per seed]};
    `bm25_runs`: {split: evaluate stage}, empty when the configuration has no BM25 row; `external_runs`: {name of the
    entry in `external`: {split: evaluate stage}} of run files from elsewhere.
    """

    def __init__(self, config, experiments):
        self.config, self.experiments = config, experiments
        self.collection = plan_collection(config.collection.model_dump())
        self.trajectories = {
            name: [Trajectory(self.collection, experiment, seed, config.evaluation) for seed in experiment.seeds]
            for name, experiment in experiments.items()
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

    def note(self, stage, user, label):
        self.stages[stage.name] = stage
        self.labels.setdefault(stage.name, label)
        users = self.users.setdefault(stage.name, [])
        if user not in users:
            users.append(user)

    def plan_bm25(self):
        evaluation, runs = self.config.evaluation, {}
        for split in evaluation.splits:
            settings = self.config.bm25.model_dump() | {"split": split, "depth": evaluation.depth}
            run = Stage("bm25", settings | {"title": self.config.encoder.title}, {"collection": self.collection})
            runs[split] = Stage(*score(self.collection, run, split, evaluation))
            self.note(run, "BM25", f"bm25 search-{split}")
            self.note(runs[split], "BM25", f"evaluate-{split}")
        return runs

    def plan_external(self, name, external):
        """{split: evaluate stage} of the run files of one entry of `external`."""
        runs, drop = {}, {"unknown_queries": "drop"} if external.unknown_queries == "drop" else {}
        for split, file in external.runs.items():
            settings = identify_run(file, f"external.{name}.runs.{split}") | {"split": split} | drop
            run = Stage("external", settings, {"collection": self.collection})
            runs[split] = Stage(*score(self.collection, run, split, self.config.evaluation))
            self.note(self.collection, name, "collection")
            self.note(run, name, f"external search-{split}")
            self.note(runs[split], name, f"evaluate-{split}")
        return runs

    def label(self, name):
        """What a person is told about a stage: kind, episode, and the experiments that use it."""
        return f"{self.labels[name]} · {', '.join(self.users[name])}"
