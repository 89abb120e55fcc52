"""Does mining pay? config/arms.yaml on its collections, from the choice of rates to the table (arms_table.py).

    python bench/arms.py [--collections cloud docstrings] [--start layers-2] [--arms mined random …] [--cores 2]
                         [--forecast] [--here] [--table draws]

For each collection it chooses the rate of the warm-up, then of every arm, by dev with a seed that is not in the table.
If an arm's best rate is at the edge of the grid, the grid is widened for that arm until it is inside. Then all seeds
run. Each part is a call of Snakemake, and finished stages do not run again: the same command continues after a kill,
and a command with more --arms adds them to the table. --forecast prints the hours of all parts and runs nothing. --here
runs the stages without Snakemake, one on each core (on a GPU, all cores share it). --table draws runs config/draws.yaml
on these collections instead, and --table teachers config/variants/draws-teachers.yaml, with the rates in their files.
"""

import argparse
import json
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

from snakemake.utils import update_config

from here import make_on, needed
from rounds import REPOSITORY
from teleport.plan.plan import Plan
from teleport.running.artefact import STAGES, Artefact
from teleport.running.files import write_json, write_text
from teleport.settings.read import merged_files

CONFIG, PARTS = REPOSITORY / "config/arms.yaml", Path("results/arms")
COLLECTIONS = {"cloud": [], "docstrings": ["docstrings"], "pilot": ["pilot"]}  # variants that come after the file
OTHER_TABLES = {
    "draws": {"cloud": ["draws", "variants/draws-cloud"], "docstrings": ["draws"]},
    "teachers": {
        "cloud": ["draws", "variants/draws-cloud", "variants/draws-teachers"],
        "docstrings": ["draws", "variants/draws-teachers"],
    },
}
STARTS = {"layers-2": [], "whole": ["whole"], "words": ["words"]}
GRID = (2e-6, 6e-6, 2e-5, 6e-5, 2e-4, 6e-4, 2e-3, 6e-3, 2e-2, 6e-2)
FIRST_RATES = {"layers-2": GRID[2:5], "whole": GRID[1:4], "words": GRID[5:8]}
GRID_SEED = 100
TABLE, WARM_UP, BASELINE, SPLIT = "arms", "warm-up", "same-passages", "test"
# The pilot runs everything in minutes: all is shorter, and its one seed may be the grid's, as it has one rate.
PILOT = {
    "seeds": [GRID_SEED],
    "mining": {"depth": 50},
    "training": {
        "batch_queries": 8,
        "steps": 30,
        "evaluate_every": 10,
        "dev": {"passages": 500, "random": 100, "queries": 100},
    },
    "experiments": {WARM_UP: {"training": {"batch_queries": 32, "steps": 60, "evaluate_every": 20}}},
    "ablations": {
        TABLE: {
            "experiments": {
                "same-passages": {"training": {"batch_queries": 32}},
                "refreshed": {"training": {"stop_after_steps": 10}},
                "momentum-lookahead": {"training": {"stop_after_steps": 10}},
                "large-batch": {"training": {"batch_queries": 160, "steps": 6, "evaluate_every": 2}},
                "star-adore": {
                    "training": {"steps": 15},
                    "episodes": [
                        {"training": {"loss": "ranknet"}},
                        {
                            "negatives": {"counts": {}, "live": {"depth": 50}},
                            "training": {
                                "start_from": "previous",
                                "loss": {"kind": "lambda", "metric_cut": 10},
                                "trains": ["query"],
                                "negatives_per_query": 0,
                                "batch_queries": 32,
                            },
                        },
                    ],
                },
            }
        }
    },
}  # fmt: skip


def files(collection, start):
    """The files of the configuration of a collection and a start (list of str)."""
    variants = [*COLLECTIONS[collection], *STARTS[start]]
    return [str(CONFIG), *(f"{CONFIG.parent}/variants/arms-{variant}.yaml" for variant in variants)]


def part(name, base, overrides, arms=None):
    """Write the configuration of a part, the files `base` with `overrides` (dict), of all arms or of some; returns its
    files, a list of one."""
    path, raw = PARTS / f"{name}.yaml", merged_files(base)
    update_config(raw, overrides | {"name": name})
    if arms:
        experiments = raw["ablations"][TABLE]["experiments"]
        raw["ablations"][TABLE]["experiments"] = {arm: experiments[arm] for arm in experiments if arm in arms}
    write_text(path, json.dumps(raw, indent=1))  # JSON is YAML; in the order of the arms
    return [str(path)]


def arms_of(files):
    """The names of the arms, in the order of the table."""
    return list(merged_files(files)["ablations"][TABLE]["experiments"])


def with_rates(rates):
    """The override (dict) of {arm, or warm-up: rate}."""
    arms = {arm: {"training": {"learning_rate": rate}} for arm, rate in rates.items()}
    experiments = {WARM_UP: arms.pop(WARM_UP)} if WARM_UP in arms else {}
    return {"experiments": experiments, "ablations": {TABLE: {"experiments": arms}}}


def last_training(plan, arm):
    """The last train stage of an arm under the first seed."""
    return plan.trajectories[arm][0].trains[-1]


def edge(scores):
    """The next rate that an arm has to try if its best one, the lowest of equals, is the first or the last of those
    tried; None if it is inside, or the grid has no further one. scores: {rate: dev score}"""
    chosen = best_rate(scores)
    wanted = {min(scores): -1, max(scores): 1}.get(chosen)
    place = GRID.index(chosen) + (wanted or 0)
    return GRID[place] if wanted and 0 <= place < len(GRID) and GRID[place] not in scores else None


def choose(name, base, arms, rates, run_parts):
    """{arm: {rate: dev score}} of all rates that were tried, starting with `rates`; each arm's grid is widened
    separately."""
    scores, asked = {arm: {} for arm in arms}, {rate: list(arms) for rate in rates}
    while asked:
        parts, trainings = [], {}
        for rate, of_rate in asked.items():
            grid = {"seeds": [GRID_SEED]} | with_rates(dict.fromkeys(of_rate, rate))
            own = part(f"{name}-rate-{rate:g}", base, grid)
            plan = Plan.of_files(own)
            trainings |= {(arm, rate): last_training(plan, arm) for arm in of_rate}
            parts.append((own, [trainings[arm, rate] for arm in of_rate]))
        run_parts(parts)
        for (arm, rate), training in trainings.items():
            scores[arm][rate] = Artefact(STAGES / training.name).facts["dev"]["score"]
        asked = {}
        for arm in arms if len(rates) > 1 else ():
            if (further := edge(scores[arm])) is not None:
                asked.setdefault(further, []).append(arm)
    return scores


def best_rate(scores):
    """The rate with the highest score, the lowest of equals. scores: {rate: dev score}"""
    return min(scores, key=lambda rate: (-scores[rate], rate))


def best(scores):
    """{arm: rate} of the best rates."""
    return {arm: best_rate(own) for arm, own in scores.items()}


def run(name, base, rates, run_parts, arms=None):
    """Run all parts of a collection and a start; results/arms/NAME.json then names the files of its table."""
    base = part(name, base, {}, arms)
    scores = choose(f"{name}-warm-up", base, [WARM_UP], rates, run_parts)
    warm = part(f"{name}-warmed", base, with_rates(best(scores)))
    scores |= choose(name, warm, arms_of(warm), rates, run_parts)
    finals = part(f"{name}-seeds", base, with_rates(best(scores)))
    write_json(
        PARTS / f"{name}.json", {"files": finals, "grid": {arm: list(own.items()) for arm, own in scores.items()}}
    )
    run_parts([(finals, all_evaluations(Plan.of_files(finals)))])


def run_other(table, collection, run_parts):
    """Run a table of `OTHER_TABLES` on a collection, as `run` does the arms."""
    base = [str(CONFIG.parent / f"{name}.yaml") for name in OTHER_TABLES[table][collection]]
    files = part(f"{table}-{collection}", base, {})
    write_json(PARTS / f"{table}-{collection}.json", {"files": files, "grid": {}})
    run_parts([(files, all_evaluations(Plan.of_files(files)))])


def evaluations(plan):
    """{row: [the evaluate stage of each seed]}: BM25, and the last checkpoint of the warm-up and of the arms, in the
    order of the table."""
    last = {arm: [each.episodes[-1].runs[SPLIT] for each in seeds] for arm, seeds in plan.trajectories.items()}
    return {"BM25": [plan.bm25_runs[SPLIT]]} | last


def all_evaluations(plan):
    """The `evaluations` of all rows (list)."""
    return [*chain.from_iterable(evaluations(plan).values())]


def snakemake(cores):
    """A function of [(files, stages)] that makes the stages of each part by a call of Snakemake, and ends this process
    if one fails."""

    def run_parts(parts):
        for files, stages in parts:
            command = [sys.executable, "-P", "-m", "snakemake", "-s", str(REPOSITORY / "Snakefile")]
            command += ["--cores", str(cores), "--configfile", *files]
            command += ["--", *(f"{STAGES}/{stage.name}/manifest.json" for stage in stages)]
            print(f"{files[0]}: {len(stages)} stages and what they need", flush=True)
            if status := subprocess.run(command).returncode:
                sys.exit(status)

    return run_parts


def here(cores):
    """A function of [(files, stages)] that makes the stages of all parts in `cores` processes, without Snakemake."""

    def run_parts(parts):
        make_on([stage for _, stages in parts for stage in stages], cores)

    return run_parts


def forecast(name, base, rates, arms=None):
    """Print the hours of the unfinished stages of a collection and a start, one after another; returns their sum."""
    from commands.forecast.forecast import Forecast
    from commands.forecast.hardware import read_hardware

    line, hardware = read_hardware()
    grid = Plan.of_files(part(f"{name}-forecast", base, {"seeds": [GRID_SEED]}, arms))
    finals = Plan.of_files(part(f"{name}-forecast-seeds", base, {}, arms))
    trainings = [last_training(grid, arm) for arm in grid.trajectories]
    hours = {}
    for what, plan, stages in [("a rate", grid, trainings), ("all seeds", finals, all_evaluations(finals))]:
        costs, names = Forecast(plan, hardware), needed(stages)
        hours[what] = sum(costs.stages[each].seconds for each in names if not costs.stages[each].done) / 3600
    total = len(rates) * hours["a rate"] + hours["all seeds"]
    print(f"{name}, {line}: {hours['a rate']:.1f} h a rate, {hours['all seeds']:.1f} h all seeds; "
          f"{total:.1f} h with {len(rates)} rates for every arm")  # fmt: skip
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", nargs="+", default=["cloud", "docstrings"], choices=COLLECTIONS)
    parser.add_argument("--start", default="layers-2", choices=STARTS)
    parser.add_argument("--arms", nargs="+", choices=arms_of([str(CONFIG)]), help="some of the arms: all by default")
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--forecast", action="store_true", help="say the hours, run nothing")
    parser.add_argument("--here", action="store_true", help="without Snakemake, by processes that import once")
    parser.add_argument("--table", choices=OTHER_TABLES, help="another table in the place of the arms")
    arguments = parser.parse_args()
    if arguments.table and (arguments.forecast or arguments.arms or "pilot" in arguments.collections):
        parser.error("--table runs whole, on cloud and docstrings: leave out --forecast, --arms and pilot")
    run_parts = (here if arguments.here else snakemake)(arguments.cores)
    if arguments.arms:  # (a) is what every arm is compared with
        arguments.arms = {BASELINE, *arguments.arms}
    for collection in arguments.collections:
        if arguments.table:
            run_other(arguments.table, collection, run_parts)
            continue
        name, base = f"arms-{collection}-{arguments.start}", files(collection, arguments.start)
        if collection == "pilot":
            base = part(f"{name}-small", base, PILOT)
        rates = FIRST_RATES[arguments.start] if collection != "pilot" else FIRST_RATES[arguments.start][-1:]
        if arguments.forecast:
            forecast(name, base, rates, arguments.arms)
        else:
            run(name, base, rates, run_parts, arguments.arms)
    if not arguments.forecast:
        from arms_table import write

        write()


if __name__ == "__main__":
    main()
