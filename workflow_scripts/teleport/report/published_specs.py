"""Which stages stand behind each line of a published table, decided from the plan alone."""

from itertools import product
from pathlib import Path

from teleport.plan.analyses import reranked
from teleport.plan.identity import file_digest
from teleport.refusal import Refusal
from teleport.report.figures import ANALYSES, cost_roles
from teleport.report.published import published_path, read_published
from teleport.report.specs import Spec, in_folder, needs_training
from teleport.report.systems import mining_stages
from teleport.running.artefact import MANIFEST, STAGES


def published_specs(plan):
    """{(folder, name): Spec} of the published tables. Raises Refusal for a wrong file, and for two of one name."""
    specs, folder = {}, in_folder("published", plan.config)
    for name in plan.config.published:
        path = published_path(name)
        if (folder, path.stem) in specs:
            raise Refusal(f"published: two tables are called {path.stem!r}. Rename one of the files.")
        specs[folder, path.stem] = published_spec(path, plan)
    return specs


def published_spec(path, *plans):
    """The Spec of one table: its file, and the stages of the lines that each plan's configuration can fill."""
    table, lines = read_published(path), []
    cells = product(plans, enumerate(table.rows), enumerate(table.columns))
    for plan, (i, row), (j, column) in cells:
        if can_fill(plan, table, column):
            runs = {"ours": our_runs(plan, table, row, column), "released": released_runs(plan, table, row, column)}
            lines += [{"row": i, "column": j} | runs] if any(runs.values()) else []
    collections = {plan.config.name or "": plan.collection.name for plan in plans}
    spec = {"name": path.stem, "file": str(path), "sha256": file_digest(path)}
    return Spec.of(spec | {"collections": collections, "lines": lines})


def joint_spec(name, plans):
    """(folder, Spec) of one table that several configurations fill, each its own columns."""
    path, names = published_path(name), [plan.config.name for plan in plans]
    filling = {column.configuration for column in read_published(path).columns if column.configuration}
    if len(set(names)) < len(names):
        raise Refusal(f"two of the configurations are called {max(names, key=names.count)!r}: give each once.")
    if idle := [each for each in names if each not in filling]:
        can = " and ".join(sorted(filling)) or "no configuration"
        who = f"the configuration {idle[0]!r}" if idle[0] else "a configuration without a name"
        raise Refusal(f"{who} fills nothing of the table {name}: {can} can.")
    return Path("results/published") / "+".join(names), published_spec(path, *plans)


def untrained(specs):
    """The `published_specs` with figures for which nothing is trained: of checkpoints and runs from elsewhere."""
    return {name: spec for name, spec in specs.items() if spec.stages and not any(map(needs_training, spec.stages))}


def can_fill(plan, table, column):
    """Whether the configuration has figures for a column: it is the column's, and it evaluates the measure."""
    kind, evaluation = table.kind_of(column), plan.config.evaluation
    if column.configuration is None or column.configuration != plan.config.name:
        return False
    if kind != "measures":
        return kind != "analyses" or evaluation.analyses is not None
    if column.split not in (evaluation.rerank if column.reranked else evaluation.splits):
        return False
    own = evaluation.rerank[column.split].measures if column.reranked else None
    return column.measure in (own or evaluation.measures_of(column.split))


def our_runs(plan, table, row, column):
    """Per seed, {role: stages} of our figure; empty when the configuration has no such experiment or episode."""
    ours = row.ours_at(column)
    if ours is None:
        return []
    if ours.experiment == "BM25":
        return untrained_runs(plan, table, row, column, "BM25", plan.bm25_runs)
    trajectories = plan.trajectories.get(ours.experiment, [])
    last = trajectories[0].episodes[-1].number if trajectories else 0
    episode = last if ours.episode == "last" else ours.episode
    if episode > last:
        return []
    runs = [stages_of(trajectory, episode, table, row, column) for trajectory in trajectories]
    return runs if all(runs) else []


def released_runs(plan, table, row, column):
    """[{role: stages}] of the figure of the row's entry in `external`."""
    kind, name = table.kind_of(column), row.released
    if kind not in ("measures", "analyses") or name is None or (kind == "analyses" and row.figure_at(column) is None):
        return []
    checkpoints = [stages_of(trajectory, 0, table, row, column) for trajectory in plan.trajectories.get(name, [])[:1]]
    runs = untrained_runs(plan, table, row, column, name, plan.external_runs.get(name, {}))
    return [*runs, *filter(None, checkpoints)]


def untrained_runs(plan, table, row, column, name, runs):
    """[{role: stages}] of the figure of BM25 or a run from elsewhere; neither hours nor costs."""
    analyses = {"contrast": plan.contrasts[name]} if name in plan.contrasts else {}
    asked = table.kind_of(column) in ("measures", "analyses")
    return [*filter(None, [asked and scored_or_analysed(table, row, column, runs, analyses)])]


def stages_of(trajectory, number, table, row, column):
    """{role: stages} of a figure of a trajectory, after an episode; None when they are not planned."""
    episode, kind, figure = trajectory.episodes[number], table.kind_of(column), row.figure_at(column)
    if kind in ("measures", "analyses", "queries"):
        return scored_or_analysed(table, row, column, episode.runs, episode.analyses)
    return timed(trajectory, figure) if kind == "hours" else costs_of(trajectory, episode, figure, column.split)


def scored_or_analysed(table, row, column, runs, analyses):
    """The evaluation of a column's split, or of its re-ranked candidates, among the runs of a checkpoint; or the stage
    of an analysis, where it is of the column's split (None for training queries)."""
    if table.kind_of(column) == "measures":
        key = reranked(column.split) if column.reranked else column.split
        return {"evaluate": [runs[key]]} if key in runs else None
    figure = row.figure_at(column).partition(" from ")[0]
    analysis = "contrast" if table.kind_of(column) == "queries" else ANALYSES[figure][0]
    stage = analyses.get(analysis)
    return {analysis: [stage]} if stage and getattr(stage.settings, "split", None) == column.split else None


def timed(trajectory, figure):
    """The stages whose times a figure of the kind `hours` adds up: {"train": …} or {"refresh": …}, or both; None when
    nothing of it is planned. figure: "episode 1", …: that episode's training; "refresh": what comes before a training,
    per episode (the merge and all that it is made from); "refreshes": how often; "training"; "overall": all of them."""
    if figure == "training" or figure.startswith("episode "):
        trains = [e.train for e in trajectory.episodes[1:] if figure in ("training", f"episode {e.number}")]
        return {"train": trains} if trains else None
    refresh = mining_stages(trajectory.pools) + trajectory.pools
    if figure != "overall":
        return {"refresh": refresh} if refresh else None
    others = [stage for stage in mining_stages(trajectory.trains) if stage not in refresh]  # of a live search
    return {"refresh": refresh + others, "train": trajectory.trains} if trajectory.trains else None


def costs_of(trajectory, episode, figure, split):
    """The stages of a figure of the kind `costs`, None when one is not planned; split: None for the first."""
    vectors, pool, train = episode.vectors, episode.pool, episode.train
    mining = [stage for stage in mining_stages([pool]) if stage.kind == "retrieve"] + [pool] if pool else [None]
    stages = {
        "collection": [trajectory.collection],
        "passages": [vectors.passages],
        "queries": [vectors.queries],
        "index": [train and train.inputs.get("index") or vectors.index],
        "search": [episode.runs[split or next(iter(episode.runs))].inputs["run"]],
        "train": [train],
        "mining": mining,
    }
    needed = {role: stages[role] for role in cost_roles(figure)}
    return None if any(None in stages for stages in needed.values()) else needed


def finish_times(spec, root=Path(".")):
    """{stage: when its manifest was written, in nanoseconds} for the stages of a Spec that are finished on disk."""
    manifests = {stage.name: root / STAGES / stage.name / MANIFEST for stage in spec.stages}
    return {name: path.stat().st_mtime_ns for name, path in manifests.items() if path.is_file()}
