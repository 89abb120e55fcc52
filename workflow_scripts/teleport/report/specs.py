"""Which rows each table has and which links each experiment, decided from the plan alone."""

import json
from dataclasses import dataclass

from teleport.settings.section import MAIN_TABLE


@dataclass(frozen=True)
class Spec:
    """What a reporting command is given (JSON text), and the stages that must be finished before it."""

    text: str
    stages: list


def in_folder(kind, config):
    """results/tables or results/experiments, with the configuration's name below it when it has one."""
    return f"results/{kind}/{config.name}" if config.name else f"results/{kind}"


def label_of(plan, name):
    return plan.experiments[name].label or name


def checkpoint_row(plan, name, episode, system):
    """A row for the checkpoint after `episode` of an experiment: one evaluation per split and seed."""
    runs = {
        split: [trajectory.runs[episode][split] for trajectory in plan.trajectories[name]]
        for split in plan.config.evaluation.splits
    }
    return {"system": system, "episode": episode, "runs": runs}


def zero_shot_rows(plan, names):
    """One row per distinct pretrained encoder among the experiments `names`."""
    found = {}
    for name in names:
        row = checkpoint_row(plan, name, 0, "Zero-shot")
        found.setdefault(str([stage.name for stages in row["runs"].values() for stage in stages]), (name, row))
    if len(found) == 1:
        return [row for _, row in found.values()]
    return [row | {"system": f"Zero-shot ({label_of(plan, name)})"} for name, row in found.values()]


def main_rows(plan):
    """BM25, zero-shot, every experiment of the configuration after every episode, and systems from elsewhere."""
    rows = []
    if plan.bm25_runs:
        runs = {split: [stage] for split, stage in plan.bm25_runs.items()}
        rows.append({"system": "BM25", "episode": 0, "runs": runs})
    own = [name for name in plan.experiments if name not in plan.config.external]
    names = list(plan.config.experiments) or own
    rows += zero_shot_rows(plan, names)
    for name in names:
        episodes = range(1, len(plan.experiments[name].episodes) + 1)
        rows += [checkpoint_row(plan, name, episode, label_of(plan, name)) for episode in episodes]
    return rows + [external_row(plan, name) for name in plan.config.external]


def external_row(plan, name):
    """The row of a run or checkpoint from elsewhere; a run need not cover all splits."""
    label = plan.config.external[name].label or name
    if name in plan.experiments:
        return checkpoint_row(plan, name, 0, label)
    return {"system": label, "episode": 0, "runs": {s: [stage] for s, stage in plan.external_runs[name].items()}}


def ablation_rows(plan, ablation):
    """Every experiment of an ablation after its last episode."""
    names = ablation.experiments
    return [checkpoint_row(plan, n, len(plan.experiments[n].episodes), label_of(plan, n)) for n in names]


def table_specs(plan):
    """{(folder, name): Spec} of all tables. Raises ValueError when a test's baseline is not a row of its table."""
    config = plan.config
    significance = config.evaluation.significance
    tables = {MAIN_TABLE: ("Every system and episode", significance.baseline, main_rows(plan))}
    for name, ablation in config.ablations.items():
        tables[name] = (ablation.title, ablation.baseline, ablation_rows(plan, ablation))
    return {
        (in_folder("tables", config), name): table_spec(plan, name, title, baseline, rows)
        for name, (title, baseline, rows) in tables.items()
    }


def table_spec(plan, name, title, baseline, rows):
    labels = sorted({row["system"] for row in rows})
    if baseline is not None and baseline not in labels:
        key = "evaluation.significance.baseline" if name == MAIN_TABLE else f"ablations.{name}.baseline"
        raise ValueError(f"{key}: {baseline!r} is no row of table {name}. Its rows are {', '.join(labels)}.")
    evaluation = plan.config.evaluation
    test = {
        "baseline": baseline,
        "resamples": evaluation.significance.resamples,
        "level": evaluation.significance.level,
    }
    if evaluation.significance.test != "permutation":
        test["test"] = evaluation.significance.test
    names = [row | {"runs": {split: [s.name for s in ss] for split, ss in row["runs"].items()}} for row in rows]
    spec = {
        "name": name,
        "title": title,
        "measures": evaluation.measures,
        "splits": list(evaluation.splits),
        "significance": test if baseline is not None else None,
        "collection": plan.collection.name,
        "rows": names,
    }
    stages = {s.name: s for row in rows for ss in row["runs"].values() for s in ss}
    return Spec(json.dumps(spec, sort_keys=True, ensure_ascii=False), list(stages.values()))


def experiment_specs(plan):
    """{folder: Spec} of the indexes below results/experiments."""
    return {
        f"{in_folder('experiments', plan.config)}/{name}": experiment_spec(plan, name) for name in plan.trajectories
    }


def experiment_spec(plan, name):
    rows = [row for trajectory in plan.trajectories[name] for row in trajectory.rows]
    spec = {
        "folder": f"{in_folder('experiments', plan.config)}/{name}",
        "rows": [
            {"link": row.link, "kind": row.stage.kind, "key": row.stage.key, "seed": row.seed, "episode": row.episode}
            for row in rows
        ],
    }
    stages = {row.stage.name: row.stage for row in rows}
    return Spec(json.dumps(spec, sort_keys=True, ensure_ascii=False), list(stages.values()))
