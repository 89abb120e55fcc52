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
    for plan, ((i, j), cell) in product(plans, table.cells.items()):
        if can_fill(plan, cell):
            runs = {"ours": our_runs(plan, cell), "released": untrained_runs(plan, cell, cell.row.released)}
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


def can_fill(plan, cell):
    """Whether the configuration has figures for a cell: it is the column's, and it evaluates the measure."""
    column, evaluation = cell.column, plan.config.evaluation
    if column.configuration is None or column.configuration != plan.config.name:
        return False
    if cell.kind != "measures":
        return cell.kind != "analyses" or evaluation.analyses is not None
    if column.split not in (evaluation.rerank if column.reranked else evaluation.splits):
        return False
    own = evaluation.rerank[column.split].measures if column.reranked else None
    return column.measure in (own or evaluation.measures_of(column.split))


def our_runs(plan, cell):
    """Per seed, {role: stages} of our figure; empty when the configuration has no such experiment or episode."""
    ours = cell.ours
    if ours and ours.experiment == "BM25":
        return untrained_runs(plan, cell, "BM25")
    trajectories = plan.trajectories.get(ours.experiment, []) if ours else []
    runs = [stages_of(trajectory, episode_of(ours, trajectory), cell) for trajectory in trajectories]
    return runs if all(runs) else []


def episode_of(ours, trajectory):
    """The number of the episode of a trajectory that an `Ours` names (int)."""
    return trajectory.episodes[-1].number if ours.episode == "last" else ours.episode


def untrained_runs(plan, cell, name):
    """[{role: stages}] of the figure of BM25 or an entry of `external` (None: of none); neither hours nor costs."""
    if cell.kind not in ("measures", "analyses") or (cell.kind == "analyses" and cell.figure is None):
        return []
    runs = plan.bm25_runs if name == "BM25" else plan.external_runs.get(name, {})
    analyses = {"contrast": plan.contrasts[name]} if name in plan.contrasts else {}
    checkpoints = [stages_of(trajectory, 0, cell) for trajectory in plan.trajectories.get(name, [])[:1]]
    return [*filter(None, [scored_or_analysed(cell, runs, analyses), *checkpoints])]


def stages_of(trajectory, number, cell):
    """{role: stages} of a figure of a trajectory, after an episode; None when they are not planned."""
    if number >= len(trajectory.episodes):
        return None
    episode = trajectory.episodes[number]
    if cell.kind == "hours":
        return timed(trajectory, cell.figure)
    if cell.kind == "costs":
        return costs_of(trajectory, episode, cell.figure, cell.column.split)
    return scored_or_analysed(cell, episode.runs, episode.analyses)


def scored_or_analysed(cell, runs, analyses):
    """The evaluation of a column's split, or of its re-ranked candidates, among the runs of a checkpoint; or the stage
    of an analysis, where it is of the column's split (None for training queries)."""
    column = cell.column
    if cell.kind == "measures":
        key = reranked(column.split) if column.reranked else column.split
        return {"evaluate": [runs[key]]} if key in runs else None
    analysis = "contrast" if cell.kind == "queries" else ANALYSES[cell.figure.partition(" from ")[0]][0]
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
