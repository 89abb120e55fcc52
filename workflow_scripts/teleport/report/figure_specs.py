"""Which stages stand behind each entry of `figures`, decided from the plan alone.

An entry of the specification has what the configuration says of the figure, and `behind`, what its kind reads:

    map         {"planes": [[label, encode stage of queries, of passages]], "shown": [[label, stage]]}: merge or search
    scores      [[label, search, encode stage of queries, of passages]]
    curves      [[label, [{"seed": 1, "episodes": [{"train": stage}], "runs": [evaluate stage per checkpoint]}]]]
    bars        as in published_table.py
    histogram   [[label, errors stage]]
    cases       [[label, contrast stage]]
"""

import json

from teleport.refusal import Refusal
from teleport.report.published import published_path
from teleport.report.published_specs import published_spec
from teleport.report.specs import label_of


def figure_specs(plan):
    """{name: entry of the specification, with `Stage` objects} of `figures`, under the first seeds but for curves."""
    specs = {}
    for name, figure in plan.config.figures.items():
        behind = BEHIND[figure.kind](Named(plan, f"figures.{name}"), figure)
        specs[name] = figure.model_dump(mode="json") | {"behind": behind}
    return specs


class Named:
    """The stages of a plan by the names that a figure has; place: of the figure, as messages begin."""

    def __init__(self, plan, place):
        self.plan, self.place = plan, place

    def label(self, system):
        """How tables call an experiment, or BM25."""
        return system if system == "BM25" else label_of(self.plan, self.seeds(system)[0].name)

    def seeds(self, system):
        """The trajectories of an experiment."""
        if system not in self.plan.trajectories:
            raise Refusal(
                f"{self.place}: there is no experiment {system!r}. There are {', '.join(self.plan.experiments)}."
            )
        return self.plan.trajectories[system]

    def last(self, system):
        """The last `Episode` of an experiment."""
        return self.seeds(system)[0].episodes[-1]

    def of_split(self, runs, split):
        """The evaluate stage of a split."""
        if split not in runs:
            raise Refusal(f"{self.place}.split: {split!r} is not evaluated. There are {', '.join(runs) or 'none'}.")
        return runs[split]

    def search(self, system, split):
        """The search of a split by the last checkpoint of an experiment, or by BM25."""
        runs = self.plan.bm25_runs if system == "BM25" else self.last(system).runs
        return self.of_split(runs, split).inputs["run"]

    def pool(self, system):
        """The last pool of an experiment."""
        pools = self.seeds(system)[0].pools
        if not pools:
            raise Refusal(f"{self.place}.systems: {system} has no pool of negatives. Name another split, or system.")
        return pools[-1]

    def vectors(self, system, episode=-1):
        """The encode stages of queries and passages of a checkpoint of an experiment, by default the last."""
        vectors = self.seeds(system)[0].episodes[episode].vectors
        return [vectors.queries, vectors.passages]

    def analysis(self, systems, name, key):
        """[[label, stage of an analysis after the last episode]] of experiments."""
        found = [[self.label(each), self.last(each).analyses.get(name)] for each in systems]
        if not all(stage for _, stage in found):
            raise Refusal(f"{self.place}: it needs evaluation.analyses.{key}. Add it.")
        return found


def map_of(named, figure):
    shown = [
        [named.label(each), named.pool(each) if figure.split == "train" else named.search(each, figure.split)]
        for each in figure.systems
    ]
    planes = [
        [named.label(each) + said, *named.vectors(each, episode)]
        for each in figure.vectors
        for said, episode in ((", start", 0), ("", -1))
        if figure.start or episode
    ]
    return {"planes": planes, "shown": shown}


def scores_of(named, figure):
    return [[named.label(s), named.search(s, figure.split), *named.vectors(s)] for s in figure.systems]


def curves_of(named, figure):
    def of_seed(trajectory):
        runs = [named.of_split(e.runs, figure.split) for e in trajectory.episodes] if figure.measure else []
        return {"seed": trajectory.seed, "episodes": [{"train": each} for each in trajectory.trains], "runs": runs}

    return [[named.label(each), list(map(of_seed, named.seeds(each)))] for each in figure.systems]


BEHIND = {
    "map": map_of,
    "scores": scores_of,
    "curves": curves_of,
    "bars": lambda named, figure: json.loads(published_spec(published_path(figure.table), named.plan).text),
    "histogram": lambda named, figure: named.analysis(figure.systems, "errors", "errors"),
    "cases": lambda named, figure: named.analysis(figure.systems, "contrast", "against"),
}
