"""Negatives for a training elsewhere, in one command: the plan that mines them, and their summary."""

from pathlib import Path

import numpy as np

from commands.methods import method_file
from teleport.collection.reader import positives_of
from teleport.negatives.export import scorer_of
from teleport.negatives.pool import read_pool
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.report.rows import in_folder, needs_training
from teleport.report.stages import Stages
from teleport.settings.read import load_files
from teleport.settings.yaml_mapping import read_mapping

METHOD = "config/variants/mined.yaml"
ORDERS = {"drawn": "in the order of the draw", "hardest": "hardest first"}


def mined(name, method, home=Path(".")):
    """(the files of the configuration, the link of the pool (Path), its `Stage`) of the negatives that the experiment
    of `method`, a file or the name of one in config/methods, mines for config/NAME.yaml. home: the folder of the
    repository. Raises Refusal if a training comes first."""
    path = Path(f"config/{name}.yaml")
    method = Path(method) if Path(method).suffix else method_file(str(method), home)
    if not path.is_file():
        raise Refusal(f"{path}: no such file. `teleport new {name} FROM` writes it.")
    collection = load_files([path])[0].collection
    if "train" not in collection.split_names():
        raise Refusal(
            f"{path}: the collection has no split train, and negatives are mined for training queries. Give it one, "
            "and let `teleport new` write the file again."
        )
    experiments = list(read_mapping(method).get("experiments") or {})
    if len(experiments) != 1:
        raise Refusal(f"{method} has {len(experiments)} experiments. Give a file with one, such as {METHOD}.")
    plan = Plan(*load_files([path, method]))
    trajectory = plan.trajectories[experiments[0]][0]
    pool = next(iter(trajectory.pools), None)
    if pool is None or needs_training(pool):
        why = "mines no negatives" if pool is None else "mines with a checkpoint that is trained first"
        raise Refusal(f"{method}: experiments.{experiments[0]} {why}. Give a file that mines with the start: {METHOD}.")
    link = next(row.link for row in trajectory.rows if row.stage is pool)
    return [path, method], Path(in_folder("experiments", plan.config), experiments[0], link), pool


def summary(pool_stage):
    """Sentences (list of str) on a finished pool (`Artefact` of a merge stage): how many negatives, scores of positives
    and negatives under the checkpoint that mined, and what was left out and why."""
    stages, pool = Stages(pool_stage.folder.parents[3]), read_pool(pool_stage.path)
    facts, lengths = pool_stage.facts, np.diff(pool.offsets)
    told, number = int(np.count_nonzero(lengths)), int(lengths.sum())
    sources = ", ".join(f"{count:,} from {source}" for source, count in facts["drawn"].items())
    said = [f"{number:,} negatives ({sources}) of {told:,} training queries, {number / max(1, told):.1f} a query."]
    searches = retrievals(stages, pool_stage)
    if scorer := scorer_of(pool_stage, len(lengths)):
        positives = positives_of(
            *(input_of(stages, pool_stage, role) for role in ("split.train", "positives")), "train"
        )
        above = scorer.score(positives.rows, positives.values)
        rows = np.repeat(np.arange(len(lengths)), lengths)
        below = scorer.score(rows, np.asarray(pool.items.passages))
        lowest = np.full(len(lengths), np.inf, np.float32)
        np.minimum.at(lowest, positives.rows, above)
        share = np.count_nonzero(below > lowest[rows]) / max(1, len(below))
        said.append(f"Scores under the checkpoint that mined: positives {middle(above)}; negatives {middle(below)}; "
                    f"{share:.1%} of the negatives score above the lowest positive of their query.")  # fmt: skip
    for source, rules in facts.get("filters", {}).get("dropped", {}).items():
        seen = searches[source].facts["lines"] * searches[source].facts["depth"] if source in searches else 0
        for rule, count in rules.items():
            share = f" ({count / seen:.1%} of what was found)" if seen else ""
            said.append(f"Left out by {rule}: {count:,} candidates of {source}{share}.")
    if empty := facts["empty_queries"]:
        said.append(f"Left out: {empty:,} queries ({empty / facts['queries']:.1%}) that no negative is left for.")
    return said


def input_of(stages, stage, role):
    """The stage (`Artefact`) that another stage read in a role; None without one."""
    name = stage.manifest["inputs"].get(role)
    return stages.artefact(name) if name else None


def retrievals(stages, pool_stage):
    """{source: retrieve stage (`Artefact`)} of the pool's sources that a checkpoint searched."""
    read = {role: input_of(stages, pool_stage, role) for role in pool_stage.manifest["inputs"]}
    return {role: stage for role, stage in read.items() if stage.manifest["kind"] == "retrieve"}


def middle(scores):
    """Mean and median of scores (text)."""
    return f"mean {scores.mean():.3f}, median {np.median(scores):.3f}" if len(scores) else "none"
