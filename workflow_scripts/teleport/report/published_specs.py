"""Which stages stand behind each line of a published table, decided from the plan alone."""

from functools import cache
from pathlib import Path

from teleport.plan.analyses import reranked
from teleport.plan.identity import file_digest
from teleport.report.costs import COSTS
from teleport.report.figures import ANALYSES
from teleport.report.published import published_path, read_published
from teleport.report.specs import Spec, in_folder
from teleport.report.systems import mining_stages
from teleport.runtime.artefact import MANIFEST, STAGES


def published_specs(plan):
    """{(folder, name): Spec} of the published tables that the configuration names.

    Raises ValueError for a file that is missing or wrong, and for two tables of one name.
    """
    specs, folder = {}, in_folder("published", plan.config)
    for name in plan.config.published:
        path = published_path(name)
        if (folder, path.stem) in specs:
            raise ValueError(f"published: two tables are called {path.stem!r}. Rename one of the files.")
        specs[folder, path.stem] = published_spec(plan, path)
    return specs


def published_spec(plan, path):
    """The Spec of one table: its file, and the stages of the lines that this configuration can fill."""
    table, lines = read_published(path), []
    fillable = [(number, column) for number, column in enumerate(table.columns) if can_fill(plan, table, column)]
    for place, row in enumerate(table.rows):
        for number, column in fillable:
            ours, released = our_runs(plan, table, row, column), released_runs(plan, table, row, column)
            if ours or released:
                lines.append({"row": place, "column": number, "ours": ours, "released": released})
    spec = {"name": path.stem, "file": str(path), "sha256": file_digest(path), "configuration": plan.config.name}
    return Spec.of(spec | {"collection": plan.collection.name, "lines": lines})


def untrained(specs):
    """The `published_specs` with figures for which nothing is trained: of checkpoints and runs from elsewhere."""
    return {place: spec for place, spec in specs.items() if spec.stages and not any(map(needs_training, spec.stages))}


@cache
def needs_training(stage):
    """Whether a stage is a training, or reads what one made."""
    return stage.kind == "train" or any(map(needs_training, stage.inputs.values()))


def can_fill(plan, table, column):
    """Whether the configuration has figures for a column: it is the column's, and it evaluates the measure."""
    if column.configuration is None or column.configuration != plan.config.name:
        return False
    evaluation = plan.config.evaluation
    if table.kind_of(column) == "analyses":
        return evaluation.analyses is not None
    if table.kind_of(column) != "measures":
        return True
    if column.reranked:
        given = evaluation.rerank.get(column.split)
        return given is not None and column.measure in (given.measures or evaluation.measures_of(column.split))
    return column.split in evaluation.splits and column.measure in evaluation.measures_of(column.split)


def our_runs(plan, table, row, column):
    """Per seed, {role: stages} of our figure; empty when the configuration has no such experiment or episode."""
    ours, kind, figure = row.ours_at(column), table.kind_of(column), row.figure_at(column)
    if ours is None:
        return []
    if ours.experiment == "BM25":
        return of_run(plan, kind, figure, column, "BM25", plan.bm25_runs)
    trajectories = plan.trajectories.get(ours.experiment, [])
    last = len(trajectories[0].trains) if trajectories else 0
    episode = last if ours.episode == "last" else ours.episode
    if episode > last:
        return []
    runs = [stages_of(trajectory, episode, kind, figure, column) for trajectory in trajectories]
    return runs if all(runs) else []


def stages_of(trajectory, episode, kind, figure, column):
    """{role: stages} of a figure of a kind, after an episode; None when they are not planned."""
    if kind == "measures":
        return scored(trajectory.runs[episode], column)
    if kind == "analyses":
        return analysed(trajectory.analyses[episode], figure, column)
    if kind == "hours":
        return timed(trajectory, figure)
    return spent(trajectory, episode, figure, column.split)


def scored(runs, column):
    """The evaluation of a column's split, or of its re-ranked candidates, among the runs of a checkpoint."""
    key = reranked(column.split) if column.reranked else column.split
    return {"evaluate": [runs[key]]} if key in runs else None


def analysed(analyses, figure, column):
    """The stage of a figure of the kind `analyses`, where it is of the column's split (None for training queries)."""
    analysis = ANALYSES[figure.partition(" from ")[0]][0]
    stage = analyses.get(analysis)
    return {analysis: [stage]} if stage and getattr(stage.settings, "split", None) == column.split else None


def of_run(plan, kind, figure, column, name, runs):
    """The figure of BM25 or a run from elsewhere, [{role: stages}]; neither hours nor costs."""
    if kind == "measures":
        found = scored(runs, column)
    else:
        contrasts = {"contrast": plan.contrasts[name]} if name in plan.contrasts else {}
        found = analysed(contrasts, figure, column) if kind == "analyses" else None
    return [found] if found else []


def released_runs(plan, table, row, column):
    """The figure of the row's entry in `external`."""
    kind, figure, name = table.kind_of(column), row.figure_at(column), row.released
    if kind not in ("measures", "analyses") or name is None or (kind == "analyses" and figure is None):
        return []
    checkpoints = [stages_of(trajectory, 0, kind, figure, column) for trajectory in plan.trajectories.get(name, [])[:1]]
    return [*of_run(plan, kind, figure, column, name, plan.external_runs.get(name, {})), *filter(None, checkpoints)]


def timed(trajectory, figure):
    """The stages whose times a figure of the kind `hours` adds up: {"train": …} or {"refresh": …}, or both.

    figure: "episode 1", …: that episode's training; "refresh": what comes before a training, per episode (the merge
    and all that it is made from); "refreshes": how often; "training": all trainings; "overall": all of them. None when
    nothing of it is planned.
    """
    if figure == "training" or figure.startswith("episode "):
        found = trajectory.trains if figure == "training" else trajectory.trains[int(figure.split()[1]) - 1 :][:1]
        return {"train": found} if found else None
    pools = [pool for pool in trajectory.pools if pool is not None]
    refresh = mining_stages(pools) + pools
    if figure != "overall":
        return {"refresh": refresh} if pools else None
    others = [stage for stage in mining_stages(trajectory.trains) if stage not in refresh]  # of a live search
    return {"refresh": refresh + others, "train": trajectory.trains} if trajectory.trains else None


def spent(trajectory, episode, figure, split):
    """The stages that a figure of the kind `costs` is read from; None when one of them is not planned.

    split: of the search; the first of evaluation.splits when absent
    """
    vectors, runs = trajectory.vectors[episode], trajectory.runs[episode]
    train = trajectory.trains[episode - 1] if episode else None
    pool = trajectory.pools[episode - 1] if episode else None
    live = train and train.inputs.get("index")
    stages = {
        "collection": trajectory.collection,
        "passages": vectors.passages,
        "queries": vectors.queries,
        "index": live or vectors.index,
        "search": runs[split or next(iter(runs))].inputs["run"],
        "train": train,
        "mining": [stage for stage in mining_stages([pool]) if stage.kind == "retrieve"] + [pool] if pool else None,
    }
    needed = {role: stages[role] for role in COSTS[figure].roles}
    if any(stage is None for stage in needed.values()):
        return None
    return {role: stage if isinstance(stage, list) else [stage] for role, stage in needed.items()}


def finish_times(spec, root=Path(".")):
    """{stage: when its manifest was written, in nanoseconds} for the stages of a Spec that are finished on disk."""
    manifests = {stage.name: root / STAGES / stage.name / MANIFEST for stage in spec.stages}
    return {name: path.stat().st_mtime_ns for name, path in manifests.items() if path.is_file()}
