"""Which stages stand behind each line of a published table, decided from the plan alone."""

from pathlib import Path

from teleport.plan.identity import file_digest
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


def can_fill(plan, table, column):
    """Whether the configuration has figures for a column: it is the column's, and it evaluates the measure."""
    evaluation = plan.config.evaluation
    evaluated = column.split in evaluation.splits and column.measure in evaluation.measures_of(column.split)
    return column.configuration == plan.config.name and (evaluated or table.kind != "measures")


def our_runs(plan, table, row, column):
    """Per seed, {role: stages} of our figure; empty when the configuration has no such experiment or episode."""
    if row.ours is None:
        return []
    if row.ours.experiment == "BM25":
        return scored([plan.bm25_runs], column) if table.kind == "measures" else []
    trajectories = plan.trajectories.get(row.ours.experiment, [])
    last = len(trajectories[0].trains) if trajectories else 0
    episode = last if row.ours.episode == "last" else row.ours.episode
    if episode > last:
        return []
    if table.kind == "measures":
        return scored([trajectory.runs[episode] for trajectory in trajectories], column)
    runs = [timed(t, row.figure) if table.kind == "hours" else searched(t, episode) for t in trajectories]
    return runs if all(runs) else []


def scored(runs, column):
    """The evaluations of a column's split, one per seed."""
    return [{"evaluate": [run[column.split]]} for run in runs if column.split in run]


def released_runs(plan, table, row, column):
    """The evaluation of the row's entry in `external`."""
    if table.kind != "measures":
        return []
    checkpoints = [trajectory.runs[0] for trajectory in plan.trajectories.get(row.released, [])[:1]]
    return scored([plan.external_runs.get(row.released, {}), *checkpoints], column)


def timed(trajectory, figure):
    """The stages whose times a figure of ANCE-Tele's Table 6 adds up: {"train": …} or {"refresh": …}, or both.

    figure: "episode 1", …: that episode's training; "refresh": what comes before a training, per episode (the merge
    and all that it is made from); "refreshes": how often; "overall": all of them. None when nothing of it is planned.
    """
    if figure.startswith("episode "):
        found = trajectory.trains[int(figure.split()[1]) - 1 :][:1]
        return {"train": found} if found else None
    pools = [pool for pool in trajectory.pools if pool is not None]
    trains = {"train": trajectory.trains} if figure == "overall" else {}
    return {"refresh": mining_stages(pools) + pools} | trains if pools else None


def searched(trajectory, episode):
    """The retrievals of the training queries before and after an episode; None when one of them is not planned.

    They are found by the vectors that they search: with a lag, no episode mines with the checkpoint just before it, and
    with `mining.parts` none searches all queries.
    """
    mined = [pool.inputs.get("query") for pool in trajectory.pools if pool is not None]
    searches = [search for search in [*mined, trajectory.last_search] if search and not search.settings.part]
    found = {(search.inputs["queries"].name, search.inputs["passages"].name): search for search in searches}
    vectors = trajectory.vectors[episode - 1 : episode + 1] if episode else []
    before_and_after = [found.get((v.queries.name, v.passages.name)) for v in vectors]
    return {"forgetting": before_and_after} if before_and_after and all(before_and_after) else None


def finish_times(spec, root=Path(".")):
    """{stage: when its manifest was written, in nanoseconds} for the stages of a Spec that are finished on disk."""
    manifests = {stage.name: root / STAGES / stage.name / MANIFEST for stage in spec.stages}
    return {name: path.stat().st_mtime_ns for name, path in manifests.items() if path.is_file()}
