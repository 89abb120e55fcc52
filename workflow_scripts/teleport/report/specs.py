"""Which rows each table has, and which links each experiment has, decided from the plan alone."""

import json
import unicodedata
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from teleport.refusal import Refusal
from teleport.report.systems import cost_stages, system_columns
from teleport.report.verdicts import baselines
from teleport.settings.section import ANALYSES_TABLE, MAIN_TABLE

MAIN_TITLE = "Every system and episode"


@dataclass(frozen=True)
class Spec:
    """The input of a reporting command (JSON text), and the stages that must be finished before it."""

    text: str
    stages: list

    @classmethod
    def of(cls, content):
        """From what becomes JSON: each `Stage` in it becomes its name."""
        stages = {}
        text = json.dumps(
            content, sort_keys=True, ensure_ascii=False, default=lambda s: stages.setdefault(s.name, s).name
        )
        return cls(text, list(stages.values()))


def in_folder(kind, config):
    """results/tables or results/experiments, with the configuration's name below it when it has one."""
    return f"results/{kind}/{config.name}" if config.name else f"results/{kind}"


def label_of(plan, name):
    """The label of an experiment in tables."""
    return plan.experiments[name].label or name


@cache
def needs_training(stage):
    """Whether a stage is a training, or reads what one made."""
    return stage.kind == "train" or any(map(needs_training, stage.inputs.values()))


def single_row(plan, name, runs, label=None):
    """A row of BM25 or a run from elsewhere, from its {split: evaluate stage}; it need not cover all splits."""
    owner = "the lexical baseline" if name == "BM25" else name
    runs = {split: [stage] for split, stage in runs.items()}
    analyses = {"contrast": [plan.contrasts[name]]} if name in plan.contrasts else {}
    of = f"that of {owner}"
    return {"system": label or name, "episode": 0, "seeds": [], "runs": runs, "analyses": analyses, "of": of}


def checkpoint_row(plan, name, episode, system):
    """A row for the checkpoint after `episode` of an experiment: evaluations, and analyses, of every seed. `selected`
    are the trainings that a dev set has selected the step of; "of" says in messages whose row it is; neither these nor
    the analyses are in the specification of the table."""
    trajectories = plan.trajectories[name]
    seeds = [trajectory.episodes[episode] for trajectory in trajectories]
    checkpoints = {of_seed.checkpoint.stage.name: of_seed.checkpoint.stage for of_seed in seeds}
    seeded = len(checkpoints) > 1 or any(map(needs_training, checkpoints.values()))  # else one, whatever the seed
    seeds = seeds if seeded else seeds[:1]
    row = {"system": system, "episode": episode, "of": f"that of {name}"}
    row["seeds"] = [trajectory.seed for trajectory in trajectories if seeded]
    trained = [trajectory.trains[:episode] for trajectory in trajectories if episode]
    # Names: they are finished before the evaluations, for which alone a table waits.
    row["cost"] = [[stage.name for stage in cost_stages(trains)] for trains in trained]
    for kind in ("runs", "analyses"):
        row[kind] = {key: [getattr(of_seed, kind)[key] for of_seed in seeds] for key in getattr(seeds[0], kind)}
    trains = [of_seed.train for of_seed in seeds if of_seed.train]
    return row | {"selected": [train for train in trains if train.settings.training.select == "dev"]}


def main_rows(plan):
    """BM25, zero-shot, every experiment of the configuration after every episode, and systems from elsewhere. Zero-shot
    is a row per distinct pretrained encoder, searched as the configuration says: what is searched with another index
    would be the same system once more."""
    rows, zero_shot = [single_row(plan, "BM25", plan.bm25_runs)] if plan.bm25_runs else [], {}
    names = list(plan.config.experiments) or [name for name in plan.experiments if name not in plan.config.external]
    for name in names:
        usual = plan.experiments[name].search_index == plan.config.search_index
        if usual and plan.trajectories[name][0].from_pretrained:
            row = checkpoint_row(plan, name, 0, f"Zero-shot ({label_of(plan, name)})")
            row["of"] += " before its first episode"
            zero_shot.setdefault(frozenset(stage.name for stages in row["runs"].values() for stage in stages), row)
    if len(zero_shot) == 1:
        next(iter(zero_shot.values()))["system"] = "Zero-shot"
    rows += zero_shot.values()
    for name in names:
        episodes = range(1, len(plan.experiments[name].method) + 1)
        rows += [checkpoint_row(plan, name, episode, label_of(plan, name)) for episode in episodes]
    for name, external in plan.config.external.items():
        runs, label = plan.external_runs.get(name), external.label or name
        rows.append(single_row(plan, name, runs, label) if runs else checkpoint_row(plan, name, 0, label))
    return rows


def ablation_rows(plan, table):
    """An ablation's experiments after their last episode or every one; before them BM25 and those of other tables, if
    asked."""
    ablation, rows = plan.config.ablations[table], []
    if ablation.bm25 and not plan.bm25_runs:
        raise Refusal(f"ablations.{table}.bm25: the configuration has `bm25: null`. Remove one of the two.")
    if ablation.bm25:
        rows.append(single_row(plan, "BM25", plan.bm25_runs) | {"columns": system_columns([], ablation.columns)})
    for name in [*ablation.also, *ablation.experiments]:
        if name not in plan.experiments:
            known = ", ".join(plan.experiments)
            raise Refusal(f"ablations.{table}.also: there is no experiment {name!r}. The experiments are {known}.")
        columns = {"columns": system_columns(plan.trajectories[name], ablation.columns)}
        last = len(plan.experiments[name].method)
        episodes = range(1, last + 1) if ablation.every_episode and last else [last]
        rows += [checkpoint_row(plan, name, episode, label_of(plan, name)) | columns for episode in episodes]
    return rows


def tables_of(plan):
    """[(name, title, rows, `significance` of the specification or None, columns)] of main and every ablation."""
    significance, rows = plan.config.evaluation.significance, main_rows(plan)
    asked = "baseline" in significance.model_fields_set  # else: without such a row there is no test
    tested = asked or any(row["system"] == significance.baseline for row in rows)
    tables = [(MAIN_TABLE, MAIN_TITLE, rows, significance.model_dump() if tested else None, ())]
    for name, ablation in plan.config.ablations.items():
        by_episode = {"by_episode": True} if ablation.every_episode else {}
        own = ablation.model_dump(include={"baseline", "test", "level"}, exclude_none=True)
        test = None if ablation.baseline is None else significance.model_dump() | own | by_episode
        tables.append((name, ablation.title, ablation_rows(plan, name), test, ablation.columns))
    return tables


def table_specs(plan):
    """{(folder, name): Spec} (see table.py)."""
    folder = in_folder("tables", plan.config)
    return {(folder, name): table_spec(plan, name, *table) for name, *table in tables_of(plan)}


def table_spec(plan, name, title, rows, test, columns):
    """The Spec of one table, as table.py reads it. Raises Refusal for two systems of one name, or a baseline that is no
    row."""
    owners = {}
    for row in rows:
        label, owner = unicodedata.normalize("NFKC", row["system"]).casefold(), row["of"]
        if (other := owners.setdefault(label, owner)) != owner:
            both = f"table {name} has two rows called {row['system']!r}: {other}, and {owner}"
            raise Refusal(f"{both}. Give an experiment, or an entry of external, another name or `label`.")
    labels = sorted({row["system"] for row in rows})
    for label in chain.from_iterable(baselines(test).values()):
        if label not in labels:
            key = "evaluation.significance.baseline" if name == MAIN_TABLE else f"ablations.{name}.baseline"
            raise Refusal(f"{key}: {label!r} is no row of table {name}. Its rows are {', '.join(labels)}.")
    evaluation, splits = plan.config.evaluation, plan.config.evaluation.splits
    if any(row.get("selected") for row in rows):
        columns = [*columns, "step"]
        rows = [row | {"columns": row.get("columns", {}) | {"step": row.get("selected") or None}} for row in rows]
    keys = ("system", "episode", "seeds", "runs", "columns", "cost")
    rows = [{key: row[key] for key in keys if row.get(key) is not None} for row in rows]
    spec = {"name": name, "title": title, "columns": list(columns), "collection": plan.collection.name, "rows": rows}
    spec |= {"splits": list(splits), "measures": {split: evaluation.measures_of(split) for split in splits}}
    if evaluation.rerank:
        asked = evaluation.rerank.items()
        spec["reranked"] = {split: rerank.measures or evaluation.measures_of(split) for split, rerank in asked}
    return Spec.of(spec | {"significance": test})


def reference_name(plan):
    """How tables call the run of `analyses.against`; None where it is not asked for."""
    evaluation = plan.config.evaluation
    run = evaluation.analyses.against.run if evaluation.contrast_split else None
    return (plan.config.external[run].label or run) if run in plan.config.external else run


def analysis_specs(plan):
    """{(folder, name): Spec} of `analyses` and `analyses-NAME` of every ablation (see analyses.py), where asked for."""
    asked, specs, against = plan.config.evaluation.analyses, {}, reference_name(plan)
    for table, title, rows, test, _ in tables_of(plan) if asked else ():
        name = ANALYSES_TABLE if table == MAIN_TABLE else f"{ANALYSES_TABLE}-{table}"
        kept = ("system", "episode", "seeds", "analyses")
        analysed = [{key: row[key] for key in kept} for row in rows if row["analyses"]]
        spec = {"name": name, "title": f"Analyses: {title}", "collection": plan.collection.name, "rows": analysed}
        spec |= {"errors of": asked.errors, "against": against}
        forgets = {row["system"] for row in analysed if "forgetting" in row["analyses"]}
        if test and forgets.issuperset(chain.from_iterable(baselines(test).values())):
            spec["significance"] = test
        specs[in_folder("tables", plan.config), name] = Spec.of(spec)
    return specs


def linked_stages(plan, folders):
    """{path below results/experiments: [Stage]} of every link of the experiments in `folders`, and of each folder."""
    linked = {}
    for folder, trajectories in zip(folders, plan.trajectories.values(), strict=True):
        for row in (row for trajectory in trajectories for row in trajectory.rows):
            link = Path(folder, row.link)
            for path in [path for path in (link, *link.parents) if path.is_relative_to(folder)]:
                linked.setdefault(str(path), []).append(row.stage)
    return linked


def nearest(path, linked):
    """A sentence on what there is, for a path that is not in `linked_stages`: the content of its deepest folder."""
    folder = next((parent for parent in Path(path).parents if str(parent) in linked), Path("results/experiments"))
    names = {Path(other).relative_to(folder).parts[0] for other in linked if folder in Path(other).parents}
    return f"{folder} has {', '.join(sorted(names))}."


def experiment_specs(plan):
    """{folder: Spec} of the indexes below results/experiments."""
    folders = {f"{in_folder('experiments', plan.config)}/{name}": of for name, of in plan.trajectories.items()}
    rows = {folder: [row._asdict() for each in of for row in each.rows] for folder, of in folders.items()}
    return {folder: Spec.of({"folder": folder, "rows": rows[folder]}) for folder in folders}
