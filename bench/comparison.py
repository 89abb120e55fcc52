"""Methods at equal budgets: config/comparison.yaml on its collections, from the choice of rates to the table.

    python bench/comparison.py [--collections apidocs squad nfcorpus docstrings] [--start layers-2] [--cores 2]

Of every collection, each a call of Snakemake: the dev queries of all systems under each rate of the grid, one seed;
then the test queries of three seeds of each system at the rate that was best for it. What is finished is not made
again, so the same command goes on after a kill, or with another collection. With one of --rates nothing is to be
chosen, and the first part is left out. Last come docs/measured/comparison.md and its figure, from all that is finished.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from snakemake.utils import update_config

from results import write_section
from rounds import REPOSITORY
from teleport.plan.plan import Plan
from teleport.running.artefact import STAGES, Artefact, is_finished
from teleport.running.files import write_json, write_text
from teleport.settings.read import load_files, merged_files

CONFIG = REPOSITORY / "config/comparison.yaml"
COLLECTIONS = ("apidocs", "squad", "nfcorpus", "docstrings")
STARTS = {"layers-2": [], "whole": ["whole"]}  # variants that come after the collection's
RATES, GRID_SEED = (2e-5, 6e-5, 2e-4), 100
TABLE, MEASURE = "comparison", "RR@10"  # the entry of `ablations`; what the rates are chosen by
# A query of NFCorpus has dozens of positives, most of them weakly related. Of 1,000 queries 5 have a passage among the
# first 20 ranks that scores below 95 % of the lowest of them, and 10 one that does not score higher.
WITHOUT = {"comparison-nfcorpus": ("filter-relative", "filter-above")}
PARTS = Path("results/comparison")


def files(collection, start):
    """The files of the configuration of a collection and a start (list of str)."""
    variants = [*([] if collection == COLLECTIONS[0] else [collection]), *STARTS[start]]
    return [str(CONFIG), *(f"{CONFIG.parent}/variants/comparison-{variant}.yaml" for variant in variants)]


def part(name, base, overrides):
    """The files of a part, a list of one: what the files `base` say, but for the systems in `WITHOUT`, and `overrides`
    (dict)."""
    path, raw = PARTS / f"{name}.yaml", merged_files(base)
    for system in WITHOUT.get(raw.get("name"), ()):
        del raw["ablations"][TABLE]["experiments"][system]
    update_config(raw, overrides | {"name": name})
    write_text(path, json.dumps(raw, indent=1))  # JSON is YAML; in the order of the systems
    return [str(path)]


def grid_part(name, base, rate):
    """The files of the part that scores all systems on the dev queries with one rate."""
    overrides = {"seeds": [GRID_SEED], "evaluation": {"splits": ["dev"]}, "training": {"learning_rate": rate}}
    return part(f"{name}-rate-{rate:g}", base, overrides)


def finals_part(name, base, rates):
    """The files of the part that scores every seed on the test queries; rates: {system: rate}."""
    tuned = {system: {"training": {"learning_rate": rate}} for system, rate in rates.items()}
    own = load_files(base)[0].experiments
    overrides = {
        "experiments": {system: tuned[system] for system in own if system in tuned},
        "ablations": {TABLE: {"experiments": {system: tuned[system] for system in tuned if system not in own}}},
    }
    return part(f"{name}-seeds", base, overrides)


def plan_of(files):
    """The `Plan` of a part."""
    return Plan(*load_files(files))


def trained(plan):
    """The names of the systems that are trained, in the order of the table."""
    ablation = plan.config.ablations[TABLE]
    return [name for name in (*ablation.also, *ablation.experiments) if plan.experiments[name].method]


def read_in_training(trajectory):
    """(passages, queries in their place) that the trainings of a `Trajectory` read: where the query encoder alone is
    trained, no passage is encoded."""
    read = {False: 0, True: 0}
    for train in trajectory.trains:
        training = train.settings.training
        steps = min(training.stop_after_steps or training.steps, training.steps)
        texts = 1 if "passage" not in training.trains else 1 + training.negatives_per_query
        read["passage" not in training.trains] += steps * training.batch_queries * texts
    return read[False], read[True]


def dev_scores(plan):
    """{system: its score on the dev queries} of those that are finished."""
    stages = {name: plan.trajectories[name][0].episodes[-1].runs["dev"].name for name in trained(plan)}
    done = {name: stage for name, stage in stages.items() if is_finished(stage)}
    return {name: Artefact(STAGES / stage).facts["means"][MEASURE] for name, stage in done.items()}


def choose(scores):
    """{system: (rate, score)}: the rate with the best score, the lowest of equals; scores: {rate: {system: score}}.

    Only systems that have been scored with every rate.
    """
    systems = set.intersection(*(set(of_rate) for of_rate in scores.values()))
    best = {name: min(scores, key=lambda rate, name=name: (-scores[rate][name], rate)) for name in systems}
    return {name: (rate, scores[rate][name]) for name, rate in best.items()}


def snakemake(files, cores):
    """Make the table of a part, and all that it needs. Ends this process as Snakemake ended, where that failed."""
    name = load_files(files)[0].name
    command = [sys.executable, "-m", "snakemake", "-s", str(REPOSITORY / "Snakefile"), "--cores", str(cores)]
    command += ["--configfile", *files, "--", f"results/tables/{name}/{TABLE}.csv"]
    print(f"{name}: {' '.join(command)}", flush=True)
    if status := subprocess.run(command).returncode:
        sys.exit(status)


def run(name, base, rates, cores, run_part=snakemake):
    """Both parts of a collection; afterwards results/comparison/NAME.json says which files its table has."""
    base, chosen = part(name, base, {}), {}
    if len(rates) > 1:
        grid = {rate: grid_part(name, base, rate) for rate in rates}
        for of_rate in grid.values():
            run_part(of_rate, cores)
        chosen = choose({rate: dev_scores(plan_of(of_rate)) for rate, of_rate in grid.items()})
    systems = trained(plan_of(base))
    finals = finals_part(name, base, {system: chosen.get(system, rates)[0] for system in systems})
    dev = {system: score for system, (_, score) in chosen.items()}
    write_json(PARTS / f"{name}.json", {"files": finals, "rates": list(rates), "dev": dev})
    run_part(finals, cores)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", nargs="+", default=COLLECTIONS, metavar="NAME", choices=COLLECTIONS)
    parser.add_argument("--start", default="layers-2", choices=STARTS)
    parser.add_argument("--rates", nargs="+", type=float, default=RATES, help="the grid; one rate: no choice")
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    for collection in arguments.collections:
        name = f"comparison-{collection}-{arguments.start}"
        run(name, files(collection, arguments.start), arguments.rates, arguments.cores)
    print(write_section("comparison"))


if __name__ == "__main__":
    main()
