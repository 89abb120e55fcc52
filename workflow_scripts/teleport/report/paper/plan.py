"""The stages that each of a configuration's `figures` is drawn from, decided from the plan alone.

A figure is a dict of its settings, and of `behind`: the input of its kind, with stages by their names:

    map         {"planes": [[label, encode stage of queries, of passages]], "shown": [[label, stage]]}: merge or search
    scores      [[label, search, encode stage of queries, of passages]]
    curves      [[label, [{"seed": 1, "episodes": [{"train": stage}], "runs": [evaluate stage per checkpoint]}]]]
    bars        as in published_table.py
    histogram   [[label, errors stage]]
    cases       [[label, contrast stage, how tables call the reference]]
"""

from teleport.plan.about_key import about
from teleport.refusal import Refusal
from teleport.report.published import planned_table, published_path
from teleport.report.rows import label_of, named, reference_name


def planned_figures(plan):
    """{name: figure} of `figures`, under the first seeds but for curves. Raises Refusal if one cannot be drawn."""
    behind = {}
    for n, of in plan.config.figures.items():
        with about(f"figures.{n}"):
            behind[n] = BEHIND[of.kind](Named(plan, f"figures.{n}"), of)
    return {n: named(of.model_dump(mode="json") | {"behind": behind[n]}) for n, of in plan.config.figures.items()}


class Named:
    """The stages of a plan by the names that a figure uses; place: the figure's key, with which messages begin."""

    def __init__(self, plan, place):
        self.plan, self.place = plan, place

    def label(self, system):
        """The name of an experiment, or of BM25, in tables."""
        return system if system == "BM25" else label_of(self.plan, self.seeds(system)[0].name)

    def seeds(self, system):
        """The trajectories of an experiment, one per seed. Raises Refusal if there is none of this name."""
        if system not in self.plan.trajectories:
            raise Refusal(
                f"{self.place}: there is no experiment {system!r}. There are {', '.join(self.plan.experiments)}."
            )
        return self.plan.trajectories[system]

    def last(self, system):
        return self.seeds(system)[0].episodes[-1]

    def of_split(self, runs, split):
        """The evaluate stage of a split. Raises Refusal if the split is not evaluated."""
        if split not in runs:
            raise Refusal(f"{self.place}.split: {split!r} is not evaluated. There are {', '.join(runs) or 'none'}.")
        return runs[split]

    def search(self, system, split):
        """The search of a split by the last checkpoint of an experiment, or by BM25."""
        runs = self.plan.bm25_runs if system == "BM25" else self.last(system).runs
        return self.of_split(runs, split).inputs["run"]

    def pool(self, system):
        """The last pool of an experiment. Raises Refusal where it has none."""
        pools = self.seeds(system)[0].pools
        if not pools:
            raise Refusal(f"{self.place}.systems: {system} has no pool of negatives. Name another split, or system.")
        return pools[-1]

    def vectors(self, system, split, episode=-1):
        """The encode stages of a split's queries and of the passages by a checkpoint of an experiment, by default the
        last."""
        return list(self.seeds(system)[0].episodes[episode].vectors.of_split(split).values())

    def analysis(self, systems, name, key):
        """[[label, stage of an analysis after the last episode]] of experiments."""
        stages = [[self.label(each), self.last(each).analyses.get(name)] for each in systems]
        if not all(stage for _, stage in stages):
            raise Refusal(f"{self.place}: add evaluation.analyses.{key}, which this figure needs.")
        return stages


def map_of(seen, figure):
    """Return the stages that a settings.Map is drawn from: {"planes": [label, vectors of queries and passages],
    "shown": [label, stage]}."""
    shown = [
        [seen.label(each), seen.pool(each) if figure.split == "train" else seen.search(each, figure.split)]
        for each in figure.systems
    ]
    planes = [
        [seen.label(each) + suffix, *seen.vectors(each, figure.split, episode)]
        for each in figure.vectors
        for suffix, episode in ((", start", 0), ("", -1))
        if figure.start or episode
    ]
    return {"planes": planes, "shown": shown}


def scores_of(seen, figure):
    """Return the stages that a settings.Scores is drawn from: a list per system."""
    return [[seen.label(s), seen.search(s, figure.split), *seen.vectors(s, figure.split)] for s in figure.systems]


def curves_of(seen, figure):
    """Return the stages that a settings.Curves is drawn from: [label, its seeds with their train and evaluate stages]
    per system."""

    evaluation = seen.plan.config.evaluation
    known = evaluation.measures_of(figure.split) if figure.split in evaluation.splits else ()
    if figure.measure and known and figure.measure not in known:
        raise Refusal(f"{seen.place}.measure: {figure.measure!r} is not evaluated. There are {', '.join(known)}.")

    def of_seed(trajectory):
        runs = [seen.of_split(e.runs, figure.split) for e in trajectory.episodes] if figure.measure else []
        return {"seed": trajectory.seed, "episodes": [{"train": each} for each in trajectory.trains], "runs": runs}

    return [[seen.label(each), list(map(of_seed, seen.seeds(each)))] for each in figure.systems]


BEHIND = {
    "map": map_of,
    "scores": scores_of,
    "curves": curves_of,
    "bars": lambda seen, figure: planned_table(published_path(figure.table), seen.plan),
    "histogram": lambda seen, figure: seen.analysis(figure.systems, "errors", "errors"),
    "cases": lambda seen, figure: [
        [*each, reference_name(seen.plan)] for each in seen.analysis(figure.systems, "contrast", "against")
    ],
}
