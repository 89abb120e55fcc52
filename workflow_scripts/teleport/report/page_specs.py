"""What the report page is made from, decided from the plan alone: tables, experiments, stages, and who uses which.

The specification, JSON like that of a table:

    {"name": "systems", "configuration": ["config/systems.yaml"], "collection": "collection/KEY", "flags": {"query": 1},
     "splits": ["test"], "measures": {"test": ["RR@10"]}, "queries": 200, "assets": "DIGEST",
     "tables": [as in table.py], "stages": {"train/KEY": {"inputs": {role: stage}, "users": [...], "label": "..."}},
     "experiments": [{"name": "ance-tele", "label": "ANCE-Tele", "settings": {"negatives.alpha": 0.5}, "seeds": [
         {"seed": 42, "rows": [...], "episodes": [...], "runs": [...], "searches": {"0": stage}}]}]}

`manage.py report` adds `status`: what runs at the moment, as commands/status.py describes it.
`queries`: how many of each split are shown in full, or "all". rows: every stage with its link and episode; episodes:
of each the pool, what it was mined with and the training, as in `episode_content`; runs: per checkpoint {split:
evaluate stage}; searches: {checkpoint: retrieval of the training queries with it}.
"""

import hashlib
import json
from pathlib import Path

from teleport.report.specs import Spec, in_folder, label_of, table_specs
from teleport.runtime.files import files_below, sha256_file
from teleport.settings.configuration import Report
from teleport.settings.registry import SOURCES
from teleport.settings.section import in_one_spelling

ASSETS = Path(__file__).parent / "page" / "assets"


def page_spec(plan, files, queries=None):
    """(folder, Spec) of the report page of a plan; `files`: those of the configuration; `queries` replaces its own."""
    config = plan.config
    tables = [json.loads(spec.text) for spec in table_specs(plan).values()]
    stages = {
        name: {"inputs": stage.input_names, "users": plan.users[name], "label": plan.labels[name]}
        for name, stage in plan.stages.items()
    }
    content = {
        "name": config.name or "",
        "configuration": [in_one_spelling(file) for file in files],
        "collection": plan.collection,
        "splits": list(config.evaluation.splits),
        "measures": {split: config.evaluation.measures_of(split) for split in config.evaluation.splits},
        "flags": {name: SOURCES[name].flag for name in sorted(used_sources(plan))},
        "queries": (config.report or Report()).queries if queries is None else queries,
        "assets": assets_digest(),
        "tables": tables,
        "stages": stages,
        "experiments": [experiment_content(plan, name) for name in plan.trajectories],
    }
    return in_folder("report", config), Spec(Spec.of(content).text, list(plan.stages.values()))


def used_sources(plan):
    """The names of the sources of all pools, and momentum, whose flag stands for an earlier episode (set)."""
    pools = [stage for stage in plan.stages.values() if stage.kind == "merge"]
    return {name for pool in pools for name in pool.settings.sources} | {"momentum"}


def assets_digest():
    """12 hex digits of the page's template, scripts and style, which no digest of code has."""
    lines = [f"{path.name} {sha256_file(path)}" for path in files_below(ASSETS)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def experiment_content(plan, name):
    settings = plan.experiments[name].model_dump(mode="json", exclude_none=True)
    seeds = [trajectory_content(trajectory) for trajectory in plan.trajectories[name]]
    return {"name": name, "label": label_of(plan, name), "settings": dict(flat(settings)), "seeds": seeds}


def flat(value, key=""):
    """Yield (dotted key, value) of nested mappings and of lists of mappings, which count from 1."""
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        value = {str(number): entry for number, entry in enumerate(value, 1)}
    if not isinstance(value, dict):
        yield key, value
        return
    for name, entry in value.items():
        yield from flat(entry, f"{key}.{name}" if key else name)


def trajectory_content(trajectory):
    return {
        "seed": trajectory.seed,
        "rows": [{"link": row.link, "stage": row.stage, "episode": row.episode} for row in trajectory.rows],
        "episodes": [episode_content(trajectory, number) for number in range(1, len(trajectory.trains) + 1)],
        "runs": trajectory.runs,
        "searches": training_searches(trajectory),
    }


def episode_content(trajectory, number):
    """The stages of one episode: {role: Stage or None}.

    pool, train; query, lookahead: the retrievals that were mined; queries, passages: the vectors that they searched, or
    without retrievals those of the checkpoint before; positives: the stage that found positives by answers.
    """
    pool, train = trajectory.pools[number - 1], trajectory.trains[number - 1]
    mined = pool.inputs if pool else {}
    searched = mined.get("query") or mined.get("lookahead")
    vectors = trajectory.vectors[number - 1]
    of_search = searched.inputs if searched and "passages" in searched.inputs else vectors._asdict()
    roles = {role: mined.get(role) for role in ("query", "lookahead", "positives")}
    return roles | {"pool": pool, "train": train, "queries": of_search["queries"], "passages": of_search["passages"]}


def training_searches(trajectory):
    """{checkpoint: retrieval of the training queries with it}: those that were mined, and those of an analysis.

    They are found by the vectors that they search: with a lag, no episode mines with the checkpoint just before it.
    """
    mined = [pool.inputs.get("query") for pool in trajectory.pools if pool is not None]
    searches = [search for search in [*mined, *trajectory.train_searches.values()] if search is not None]
    found = {(s.inputs["queries"].name, s.inputs["passages"].name): s for s in searches}
    vectors = enumerate(trajectory.vectors)
    return {str(n): found[key] for n, v in vectors if (key := (v.queries.name, v.passages.name)) in found}
