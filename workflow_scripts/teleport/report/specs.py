"""Which rows each table has and which links each experiment, decided from the plan alone."""

import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from teleport.report.systems import system_columns
from teleport.settings.section import ANALYSES_TABLE, MAIN_TABLE

MAIN_TITLE = "Every system and episode"

BM25 = "that of the lexical baseline"


@dataclass(frozen=True)
class Spec:
    """What a reporting command is given (JSON text), and the stages that must be finished before it."""

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
    return plan.experiments[name].label or name


def single_row(plan, system, name, runs, of):
    """A row of BM25 or a run from elsewhere, from its {split: evaluate stage}; it need not cover all splits."""
    found = {split: [stage] for split, stage in runs.items()}
    analyses = {"contrast": [plan.contrasts[name]]} if name in plan.contrasts else {}
    return {"system": system, "episode": 0, "runs": found, "analyses": analyses, "of": of}


def checkpoint_row(plan, name, episode, system):
    """A row for the checkpoint after `episode` of an experiment: one evaluation per split and seed.

    Its re-ranked candidates are among `runs`; `analyses` has what is asked for besides; `selected` are the trainings
    that a dev set has selected the step of. "of" says in messages whose row it is, and is no part of a specification.
    """
    found = {}
    for kind in ("runs", "analyses"):
        of_seeds = [getattr(trajectory, kind)[episode] for trajectory in plan.trajectories[name]]
        found[kind] = {key: [stages[key] for stages in of_seeds] for key in of_seeds[0]}
    trained = [trajectory.trains[episode - 1] for trajectory in plan.trajectories[name] if episode]
    found["selected"] = [stage for stage in trained if stage.settings.training.select == "dev"]
    return {"system": system, "episode": episode, "of": f"that of {name}"} | found


def zero_shot_rows(plan, names):
    """One row per distinct pretrained encoder among the experiments `names`, searched as the configuration says.

    What is searched with another index than the configuration's would be the same system once more.
    """
    found = {}
    for name in names:
        usual = plan.experiments[name].search_index == plan.config.search_index
        if usual and plan.trajectories[name][0].from_pretrained:
            row = checkpoint_row(plan, name, 0, f"Zero-shot ({label_of(plan, name)})")
            row["of"] = f"that of {name} before its first episode"
            found.setdefault(frozenset(stage.name for stages in row["runs"].values() for stage in stages), row)
    return [row | {"system": "Zero-shot"} if len(found) == 1 else row for row in found.values()]


def main_rows(plan):
    """BM25, zero-shot, every experiment of the configuration after every episode, and systems from elsewhere."""
    rows = [single_row(plan, "BM25", "BM25", plan.bm25_runs, BM25)] if plan.bm25_runs else []
    names = list(plan.config.experiments) or [name for name in plan.experiments if name not in plan.config.external]
    rows += zero_shot_rows(plan, names)
    for name in names:
        episodes = range(1, len(plan.experiments[name].method) + 1)
        rows += [checkpoint_row(plan, name, episode, label_of(plan, name)) for episode in episodes]
    for name, external in plan.config.external.items():
        label, runs, of = external.label or name, plan.external_runs.get(name), f"that of {name}"
        rows.append(single_row(plan, label, name, runs, of) if runs else checkpoint_row(plan, name, 0, label))
    return rows


def ablation_rows(plan, table):
    """Every experiment of an ablation after its last episode, or after every one; and BM25, where the ablation says so.

    Raises ValueError for BM25 in a configuration without it.
    """
    ablation, rows = plan.config.ablations[table], []
    if ablation.bm25 and not plan.bm25_runs:
        raise ValueError(f"ablations.{table}.bm25: the configuration has `bm25: null`. Remove one of the two.")
    if ablation.bm25:
        row = single_row(plan, "BM25", "BM25", plan.bm25_runs, BM25)
        rows.append(row | {"columns": system_columns([], ablation.columns)})
    for name in ablation.experiments:
        columns = {"columns": system_columns(plan.trajectories[name], ablation.columns)}
        last = len(plan.experiments[name].method)
        episodes = range(1, last + 1) if ablation.every_episode and last else [last]
        rows += [checkpoint_row(plan, name, episode, label_of(plan, name)) | columns for episode in episodes]
    return rows


def table_specs(plan):
    """{(folder, name): Spec} of all tables. Raises ValueError when a test's baseline is not a row of its table."""
    config, rows = plan.config, main_rows(plan)
    significance = config.evaluation.significance
    usual = "baseline" not in significance.model_fields_set  # not asked for: without such a row there is no test
    tested = not usual or any(row["system"] == significance.baseline for row in rows)
    test = test_of(plan, significance.baseline if tested else None)
    specs = {MAIN_TABLE: table_spec(plan, MAIN_TABLE, MAIN_TITLE, test, rows)}
    for name, ablation in config.ablations.items():
        test = test_of(plan, ablation.baseline, ablation.every_episode)
        specs[name] = table_spec(plan, name, ablation.title, test, ablation_rows(plan, name), ablation.columns)
    return {(in_folder("tables", config), name): spec for name, spec in specs.items()}


def test_of(plan, baseline, by_episode=False):
    """`significance` of a table's specification; None without a baseline."""
    test = plan.config.evaluation.significance.model_dump() | {"baseline": baseline}
    return None if baseline is None else test | ({"by_episode": True} if by_episode else {})


def reference_label(plan):
    """What the reference of `analyses.against` is called; None where there is none."""
    name = plan.config.evaluation.contrast_split and plan.config.evaluation.analyses.against.run
    return plan.config.external[name].label or name if name in plan.config.external else name


def analysis_specs(plan):
    """{(folder, name): Spec} of the tables of analyses: `analyses`, and `analyses-NAME` of every ablation.

    None where the configuration asks for no analyses. Their form is described in analyses.py.
    """
    evaluation, specs = plan.config.evaluation, {}
    if not evaluation.analyses:
        return specs
    tables = {ANALYSES_TABLE: (MAIN_TITLE, main_rows(plan), test_of(plan, evaluation.significance.baseline))}
    for name, ablation in plan.config.ablations.items():
        test = test_of(plan, ablation.baseline, ablation.every_episode)
        tables[f"{ANALYSES_TABLE}-{name}"] = (ablation.title, ablation_rows(plan, name), test)
    for name, (title, rows, test) in tables.items():
        analysed = [{key: row[key] for key in ("system", "episode", "analyses")} for row in rows if row["analyses"]]
        spec = {"name": name, "title": f"Analyses: {title}", "collection": plan.collection.name, "rows": analysed}
        spec |= {"errors of": evaluation.analyses.errors, "against": reference_label(plan)}
        if test and any("forgetting" in row["analyses"] for row in analysed if row["system"] == test["baseline"]):
            spec["significance"] = test
        specs[in_folder("tables", plan.config), name] = Spec.of(spec)
    return specs


def table_spec(plan, name, title, test, rows, columns=()):
    """The Spec of one table; its form is described in table.py. Raises ValueError for two systems of one name."""
    owners = {}
    for row in rows:
        label, owner = unicodedata.normalize("NFKC", row["system"]).casefold(), row.pop("of")
        if (other := owners.setdefault(label, owner)) != owner:
            both = f"table {name} has two rows called {row['system']!r}: {other}, and {owner}"
            raise ValueError(f"{both}. Give an experiment, or an entry of external, another name or `label`.")
    labels = sorted({row["system"] for row in rows})
    if test and test["baseline"] not in labels:
        key = "evaluation.significance.baseline" if name == MAIN_TABLE else f"ablations.{name}.baseline"
        raise ValueError(f"{key}: {test['baseline']!r} is no row of table {name}. Its rows are {', '.join(labels)}.")
    evaluation, splits = plan.config.evaluation, plan.config.evaluation.splits
    if any(row.get("selected") for row in rows):
        columns = [*columns, "step"]
        rows = [row | {"columns": row.get("columns", {}) | {"step": row.get("selected") or None}} for row in rows]
    rows = [{key: value for key, value in row.items() if key not in ("analyses", "selected")} for row in rows]
    spec = {"name": name, "title": title, "columns": list(columns), "collection": plan.collection.name, "rows": rows}
    spec |= {"splits": list(splits), "measures": {split: evaluation.measures_of(split) for split in splits}}
    if evaluation.rerank:
        measures = {
            split: given.measures or evaluation.measures_of(split) for split, given in evaluation.rerank.items()
        }
        spec["reranked"] = measures
    return Spec.of(spec | {"significance": test})


def linked_stages(plan, folders):
    """{path below results/experiments: [Stage]} of every link of the experiments in `folders`, and of each folder."""
    found = {}
    for folder, trajectories in zip(folders, plan.trajectories.values(), strict=True):
        for row in (row for trajectory in trajectories for row in trajectory.rows):
            link = Path(folder, row.link)
            for path in (link, *link.parents):
                if path.is_relative_to(folder):
                    found.setdefault(str(path), []).append(row.stage)
    return found


def nearest(path, linked):
    """A sentence on what there is, for a path that is not in `linked_stages`: the content of its deepest folder."""
    folder = next((parent for parent in Path(path).parents if str(parent) in linked), Path("results/experiments"))
    names = sorted(
        {
            str(Path(other).relative_to(folder)).split("/")[0]
            for other in linked
            if other != str(folder) and Path(other).is_relative_to(folder)
        }
    )
    return f"{folder} has {', '.join(names)}."


def experiment_specs(plan):
    """{folder: Spec} of the indexes below results/experiments."""
    specs = {}
    for name, trajectories in plan.trajectories.items():
        folder = f"{in_folder('experiments', plan.config)}/{name}"
        rows = [row._asdict() for trajectory in trajectories for row in trajectory.rows]
        specs[folder] = Spec.of({"folder": folder, "rows": rows})
    return specs
