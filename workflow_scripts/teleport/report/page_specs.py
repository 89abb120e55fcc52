"""What the report page is made from, decided from the plan alone: tables, experiments, stages, and who uses which.

The specification, JSON like that of a table:

    {"name": "systems", "configuration": ["config/systems.yaml"], "collection": "collection/KEY", "sources": ["query"],
     "splits": ["test"], "measures": {"test": ["RR@10"]}, "queries": 200, "assets": "DIGEST",
     "tables": [as in table.py], "stages": {"train/KEY": {"inputs": {role: stage}, "users": [...], "label": "..."}},
     "experiments": [{"name": "ance-tele", "system": "ANCE-Tele", "label": "ANCE-Tele", "method": "three trainings, …",
         "settings": {"negatives.alpha": 0.5}, "seeds": [
         {"seed": 42, "rows": [...], "episodes": [...], "runs": [...], "searches": {"0": stage}}]}]}

`manage.py report` adds `status`: what runs at the moment, as commands/status.py describes it.
`queries`: how many of each split are shown in full, or "all". system: how tables call an experiment; label: how the
page does; rows: every stage with its link and episode; episodes: of each the pool, what it was mined with and the
training, as in `episode_content`; runs: per checkpoint {split: evaluate stage}; searches: {checkpoint: retrieval of the
training queries with it}; vectors: {checkpoint: encode stages of queries and passages}; published: as in
published_table.py; ghosts: forgetting rates that a paper prints, [label, episode, rate].

An entry of `figures` has what the configuration says of it, and `behind`, what its kind reads:

    map         {"planes": [[label, encode stage of queries, of passages]], "shown": [[label, stage]]}: merge or search
    scores      [[label, search, encode stage of queries, of passages]]
    curves      [[label, [{"seed": 1, "episodes": [{"train": stage}], "runs": [evaluate stage per checkpoint]}]]]
    bars        as in published_table.py
    histogram   [[label, errors stage]]
    cases       [[label, contrast stage, how tables call the reference]]
"""

import hashlib
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

from teleport.refusal import Refusal
from teleport.report.dotted import flat
from teleport.report.published import published_path, read_published
from teleport.report.published_specs import episode_of, published_spec, published_specs
from teleport.report.specs import Spec, in_folder, label_of, reference_name, table_specs
from teleport.report.systems import system_columns
from teleport.running.files import files_below, sha256_file
from teleport.settings.configuration import Report
from teleport.settings.section import in_one_spelling

ASSETS = Path(__file__).parent / "page" / "assets"


def page_spec(plan, files, queries=None):
    """(folder, Spec) of the report page of a plan; `files`: those of the configuration; `queries` replaces its own."""
    config = plan.config
    pools = [stage for stage in plan.stages.values() if stage.kind == "merge"]
    sources = {"momentum"}.union(*(pool.settings.sources for pool in pools))  # momentum: of an earlier episode
    labels = unlike_labels(plan)
    assets = "\n".join(f"{path.name} {sha256_file(path)}" for path in files_below(ASSETS))  # no digest of code has them
    content = {
        "name": config.name or "",
        "configuration": [in_one_spelling(file) for file in files],
        "collection": plan.collection,
        "splits": list(config.evaluation.splits),
        "measures": {split: config.evaluation.measures_of(split) for split in config.evaluation.splits},
        "sources": sorted(sources),
        "queries": (config.report or Report()).queries if queries is None else queries,
        "assets": hashlib.sha256(assets.encode()).hexdigest()[:12],
        "tables": [json.loads(spec.text) for spec in table_specs(plan).values()],
        "stages": {
            name: {"inputs": stage.input_names, "users": plan.users[name], "label": plan.labels[name]}
            for name, stage in plan.stages.items()
        },
        "experiments": [
            {
                "name": name,
                "system": label_of(plan, name),
                "label": labels[name],
                "method": method_text(plan.experiments[name], trajectories),
                "settings": dict(flat(plan.experiments[name].model_dump(mode="json", exclude_none=True))),
                "seeds": list(map(trajectory_content, trajectories)),
            }
            for name, trajectories in plan.trajectories.items()
        ],
    }
    content["published"] = [json.loads(spec.text) for spec in published_specs(plan).values()]
    published = [read_published(published_path(name)) for name in config.published]
    content["ghosts"] = [ghost for table in published for ghost in ghosts(plan, table, labels)]
    content["figures"] = figure_specs(plan)
    return in_folder("report", config), Spec(Spec.of(content).text, list(plan.stages.values()))


def unlike_labels(plan):
    """{name of an experiment: its label, with the name too where two tables call two experiments alike}."""
    systems = {name: label_of(plan, name) for name in plan.trajectories}
    times = Counter(systems.values())
    return {name: system if times[system] == 1 else f"{system} ({name})" for name, system in systems.items()}


def method_text(experiment, trajectories):
    """What an experiment does, as a sentence."""
    said = system_columns(trajectories[:1], ["negatives", "loss", "episodes"])
    if not said["episodes"]:
        return "nothing is trained."
    starts = {str(getattr(episode.training, "start_from", "")) for episode in experiment.method[1:]}
    ways = {"pretrained": ", each from the pretrained checkpoint", "previous": ", each going on from the one before"}
    way = ways.get(starts.pop(), "") if len(starts) == 1 else ""
    trainings = f"{said['episodes']} trainings{way}" if said["episodes"] > 1 else "one training"
    return f"{trainings}, with the loss {said['loss']}; negatives of the last: {said['negatives']}."


def ghosts(plan, table, labels):
    """[label, episode, rate] of the forgetting rates that a published table prints of experiments of the plan."""
    printed = [each for each in table.cells.values() if each.figure == "forgetting" and each.value is not None]
    here = [each for each in printed if each.ours and each.column.configuration == plan.config.name]
    return [
        [labels[each.ours.experiment], episode_of(each.ours, of_seed), each.value / each.scale]
        for each in here
        for of_seed in plan.trajectories.get(each.ours.experiment, ())[:1]
    ]


def trajectory_content(trajectory):
    """A seed of an experiment; its searches are those that were mined, and those of an analysis. A retrieval is that of
    the vectors that it searches: with a lag, no episode mines with the checkpoint before it."""
    searches = [pool.inputs.get("query") for pool in trajectory.pools]
    searches += [episode.train_search for episode in trajectory.episodes]
    by_vectors = {(s.inputs["queries"].name, s.inputs["passages"].name): s for s in searches if s}
    vectors = {str(e.number): (e.vectors.queries.name, e.vectors.passages.name) for e in trajectory.episodes}
    return {
        "seed": trajectory.seed,
        "rows": [{"link": row.link, "stage": row.stage, "episode": row.episode} for row in trajectory.rows],
        "episodes": [episode_content(*episodes) for episodes in pairwise(trajectory.episodes)],
        "runs": [episode.runs for episode in trajectory.episodes],
        "searches": {number: by_vectors[names] for number, names in vectors.items() if names in by_vectors},
        "vectors": vectors,
    }


def episode_content(before, episode):
    """The stages of an `Episode`: {role: Stage or None}. pool, train; query, lookahead: the retrievals that were mined,
    or that an analysis asks for; queries, passages: the vectors that they searched, or without retrievals those of the
    checkpoint before; positives: the stage that matched answers."""
    mined = episode.pool.inputs if episode.pool else {}
    searched = mined.get("query") or mined.get("lookahead")
    vectors = searched.inputs if searched and "passages" in searched.inputs else before.vectors._asdict()
    roles = {role: mined.get(role) for role in ("query", "lookahead", "positives")}
    roles["lookahead"] = roles["lookahead"] or episode.lookahead
    roles |= {role: vectors[role] for role in ("queries", "passages")}
    return roles | {"pool": episode.pool, "train": episode.train}


def figure_specs(plan):
    """{name: entry of the specification, with `Stage` objects} of `figures`, under the first seeds but for curves."""
    behind = {n: BEHIND[of.kind](Named(plan, f"figures.{n}"), of) for n, of in plan.config.figures.items()}
    return {n: of.model_dump(mode="json") | {"behind": behind[n]} for n, of in plan.config.figures.items()}


class Named:
    """The stages of a plan by the names that a figure has; place: of the figure, as messages begin."""

    def __init__(self, plan, place):
        self.plan, self.place = plan, place

    def label(self, system):
        """How tables call an experiment, or BM25."""
        return system if system == "BM25" else label_of(self.plan, self.seeds(system)[0].name)

    def seeds(self, system):
        """The trajectories of an experiment, one per seed. Raises Refusal where there is none of this name."""
        if system not in self.plan.trajectories:
            raise Refusal(
                f"{self.place}: there is no experiment {system!r}. There are {', '.join(self.plan.experiments)}."
            )
        return self.plan.trajectories[system]

    def last(self, system):
        return self.seeds(system)[0].episodes[-1]

    def of_split(self, runs, split):
        """The evaluate stage of a split. Raises Refusal where it is not evaluated."""
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
    """What a settings.Map is drawn from: {"planes": [label, vectors of queries and passages], "shown": [label,
    stage]}."""
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
    """What a settings.Scores is drawn from: a list per system."""
    return [[named.label(s), named.search(s, figure.split), *named.vectors(s)] for s in figure.systems]


def curves_of(named, figure):
    """What a settings.Curves is drawn from: [label, its seeds with their train and evaluate stages] per system."""

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
    "cases": lambda named, figure: [
        [*each, reference_name(named.plan)] for each in named.analysis(figure.systems, "contrast", "against")
    ],
}
