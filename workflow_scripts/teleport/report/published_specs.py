"""Which stages stand behind each line of a published table, decided from the plan alone."""

import json
from pathlib import Path

from teleport.plan.identity import file_digest
from teleport.report.published import published_path, read_published
from teleport.report.specs import Spec, in_folder
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
    table, stages, lines = read_published(path), {}, []
    for place, row in enumerate(table.rows):
        for number, column in enumerate(table.columns):
            ours, released = behind(plan, table, row, column), behind_released(plan, table, row, column)
            if ours or released:
                lines.append({"row": place, "column": number, "ours": names(ours), "released": names(released)})
                stages |= {s.name: s for run in ours + released for listed in run.values() for s in listed}
    spec = {"name": path.stem, "file": str(path), "sha256": file_digest(path), "configuration": plan.config.name}
    spec |= {"collection": plan.collection.name, "lines": lines}
    return Spec(json.dumps(spec, sort_keys=True, ensure_ascii=False), list(stages.values()))


def names(runs):
    return [{role: [stage.name for stage in stages] for role, stages in run.items()} for run in runs]


def fillable(plan, table, column):
    """Whether the configuration has figures for a column: it is the column's, and it evaluates the measure."""
    if column.configuration != plan.config.name:
        return False
    evaluation = plan.config.evaluation
    evaluated = column.split in evaluation.splits and column.measure in evaluation.measures_of(column.split)
    return table.kind != "measures" or evaluated


def behind(plan, table, row, column):
    """Per seed, {role: stages} of our figure; empty when the configuration has no such experiment or episode."""
    if row.ours is None or not fillable(plan, table, column):
        return []
    if row.ours.experiment == "BM25":
        return scored([plan.bm25_runs], column) if table.kind == "measures" else []
    trajectories = plan.trajectories.get(row.ours.experiment, [])
    last = len(trajectories[0].pools) if trajectories else 0
    episode = last if row.ours.episode == "last" else row.ours.episode
    if not trajectories or episode > last:
        return []
    if table.kind == "measures":
        return scored([trajectory.runs[episode] for trajectory in trajectories], column)
    hours = table.kind == "hours"
    runs = [timed(t, row.figure) if hours else searched(t, episode) for t in trajectories]
    return runs if all(runs) else []


def scored(runs, column):
    """The evaluations of a column's split, one per seed."""
    return [{"evaluate": [run[column.split]]} for run in runs if column.split in run]


def behind_released(plan, table, row, column):
    """The evaluation of the row's entry in `external`."""
    if row.released is None or table.kind != "measures" or not fillable(plan, table, column):
        return []
    if row.released in plan.external_runs:
        return scored([plan.external_runs[row.released]], column)
    return scored([t.runs[0] for t in plan.trajectories.get(row.released, [])[:1]], column)


def timed(trajectory, figure):
    """The stages whose times a figure of ANCE-Tele's Table 6 adds up: {"train": …} or {"refresh": …}, or both.

    figure: "episode 1", …: that episode's training; "refresh": what comes before a training, per episode (encode,
    index, both retrievals, merge); "refreshes": how often; "overall": all of them. None when nothing of it is planned.
    """
    trains = [row.stage for row in trajectory.rows if row.stage.kind == "train"]
    if figure.startswith("episode "):
        found = trains[int(figure.split()[1]) - 1 :][:1]
        return {"train": found} if found else None
    refreshes = [stage for pool in trajectory.pools for stage in refresh(pool)]
    if not refreshes:
        return None
    return {"refresh": refreshes} | ({"train": trains} if figure == "overall" else {})


def refresh(pool):
    """The stages of one refresh of the negatives: the merge, its retrievals, their vectors and index."""
    retrievals = [stage for role, stage in pool.inputs.items() if role in ("queries", "positives")]
    return [retrievals[0].inputs["encode"], retrievals[0].inputs["index"], *retrievals, pool]


def searched(trajectory, episode):
    """The retrievals of the training queries before and after an episode; None when one of them is not planned."""
    retrievals = [pool.inputs.get("queries") for pool in trajectory.pools] + [trajectory.last_search]
    before_and_after = retrievals[episode - 1 : episode + 1]
    return {"forgetting": before_and_after} if episode and all(before_and_after) else None


def finished(spec, root=Path(".")):
    """{stage: when its manifest was written, in nanoseconds} for the stages of a Spec that are finished on disk."""
    manifests = {stage.name: root / STAGES / stage.name / MANIFEST for stage in spec.stages}
    return {name: path.stat().st_mtime_ns for name, path in manifests.items() if path.is_file()}
