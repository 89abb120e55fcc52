"""Forgetting: the arms of config/forgetting.yaml, and their contrasts over seeds.

    python bench/forgetting.py                      writes docs/measured/forgetting.json, .md and .svg
    python bench/forgetting.py --make forgetting    first makes a table of the file without Snakemake, on --cores cores

docs/measured/forgetting.json has the values of each arm and seed; the page is computed from them. A contrast is the
mean of the differences that two arms have with the same seeds; its p is two-sided, over all changes of their signs. A
table keeps its data until each of its arms has as many finished seeds here (results.py).
"""

import argparse
import json
import os
from itertools import chain

import numpy as np
import pandas as pd

from here import make_on
from results import made_by, made_text, markdown, number, plus_minus, write_section
from rounds import REPOSITORY
from teleport.evaluation.significance import paired_p_value
from teleport.plan.plan import Plan
from teleport.running.artefact import STAGES, Artefact, is_finished

CONFIG = REPOSITORY / "config/forgetting.yaml"
EPISODES = [2, 3, 4]  # whose forgotten shares are averaged: episode 1 has no older negatives
PLANNED = ("q-momentum", "q")  # fixed with the configuration, before anything was run
MORE = [("q-momentum", "softer")]  # is it the memory, or that its negatives are softer?
MEASURES = {"forgotten": "forgotten, 2 to 4", "RR@10": "RR@10 of dev after 4"}
DRAWN = "forgetting"  # the table whose arms the figure shows


def measured_stages(trajectory):
    """[(stage of the forgotten share, evaluation of dev)] of each episode that trains."""
    return [(episode.analyses["forgetting"], episode.runs["dev"]) for episode in trajectory.episodes[1:]]


def of_arm(trajectories):
    """A line per seed that has finished EPISODES: the forgotten share of each episode, and MEASURES (frame)."""
    lines = {}
    for trajectory in trajectories:
        pairs = enumerate(measured_stages(trajectory), 1)
        done = {n: pair for n, pair in pairs if all(is_finished(stage.name) for stage in pair)}
        if set(EPISODES) <= set(done):
            facts = {n: [Artefact(STAGES / stage.name).facts for stage in pair] for n, pair in done.items()}
            shares = {n: forgotten["rate"] for n, (forgotten, _) in facts.items()}
            means = np.mean([shares[n] for n in EPISODES]), facts[EPISODES[-1]][1]["means"]["RR@10"]
            lines[trajectory.seed] = shares | dict(zip(MEASURES, means, strict=True))
    return pd.DataFrame.from_dict(lines, orient="index")


def contrast(ours, theirs):
    """(seeds, mean difference, standard deviation, p) of two arms ({seed: value}), over the seeds that both have.

    With fewer than two seeds, p and the deviation are NaN.
    """
    differences = (ours - theirs).dropna()
    if len(differences) < 2:
        return len(differences), differences.mean(), np.nan, np.nan
    p = paired_p_value(differences, np.zeros(len(differences)), 2**20, 0)  # enough for all changes of 20 signs
    return len(differences), differences.mean(), differences.std(), p


def contrasts(table):
    """A line for every pair of a table's arms: each against the first, and those in MORE (frame)."""
    arms = {row["row"]: values_of(row) for row in table["rows"]}
    first = next(iter(arms))
    pairs = [(name, first) for name in arms if name != first] + [pair for pair in MORE if set(pair) <= set(arms)]
    columns = ["arm", "against", "measure", "seeds", "difference", "deviation", "p", "planned"]
    lines = [
        (*pair, measure, *contrast(*(arms[name][measure] for name in pair)), pair == PLANNED and measure == "forgotten")
        for pair in pairs
        for measure in MEASURES
    ]
    return pd.DataFrame(lines, columns=columns)


def values_of(row):
    """The values of an arm: a line for each seed, a column for each episode and measure (frame)."""
    return pd.DataFrame.from_dict(row["values"], orient="index")


def measured():
    """{table: its title, arms ("rows", with the values of each seed), and how they came about} of tables with a
    finished first arm."""
    plan = Plan.of_files([str(CONFIG)])
    tables = {name: of_table(plan, ablation) for name, ablation in plan.config.ablations.items()}
    return {name: table for name, table in tables.items() if table}


def of_table(plan, ablation):
    """A table of `measured`, {} without its first arm."""
    frames = {name: of_arm(plan.trajectories[name]) for name in ablation.experiments}
    arms = {name: frame for name, frame in frames.items() if len(frame)}
    if next(iter(frames)) not in arms:
        return {}
    rows = [
        {
            "row": name,
            "label": plan.experiments[name].label,
            "seeds": len(arm),
            "values": json.loads(arm.to_json(orient="index")),
        }
        for name, arm in arms.items()
    ]
    stages = {row.stage.name for name in arms for of_seed in plan.trajectories[name] for row in of_seed.rows}
    seeds = sorted({seed for arm in arms.values() for seed in arm.index.tolist()})
    made = made_by(stages, seeds=seeds, budget="5 episodes of 50 steps, 16 queries with 7 own negatives each")
    return {"title": ablation.title, "rows": rows, "made": made}


def make_table(name, cores):
    """Make what a table of CONFIG needs: the scores and the forgotten shares of its arms."""
    plan = Plan.of_files([str(CONFIG)])
    trajectories = chain.from_iterable(plan.trajectories[arm] for arm in plan.config.ablations[name].experiments)
    make_on([stage for each in trajectories for pair in measured_stages(each) for stage in pair], cores)


def section(data):
    """The text between the marks: each table, its contrasts, and how they came about."""
    plan = Plan.of_files([str(CONFIG)])
    absent = [ablation.title for name, ablation in plan.config.ablations.items() if name not in data]
    parts = [table_text(data[name]) for name in plan.config.ablations if name in data]
    if DRAWN in data:
        parts.append("![Forgotten shares by arm and episode](forgetting.svg)\n")
    parts += [f"Not run: *{title}*.\n" for title in absent]
    return "\n".join(parts)


def table_text(table):
    """The arms of a table, and their contrasts."""
    arms = {row["row"]: values_of(row) for row in table["rows"]}
    numbers = sorted({key for arm in arms.values() for key in arm if key.isdecimal()})
    columns, heads = [*numbers, *MEASURES], [*(f"forgotten in {n}" for n in numbers), *MEASURES.values()]
    rows = [
        [row["label"], str(row["seeds"])] + [plus_minus(arm[column].mean(), arm[column].std()) for column in columns]
        for row, arm in zip(table["rows"], arms.values(), strict=True)
    ]
    labels, lines = {row["row"]: row["label"] for row in table["rows"]}, []
    for row in contrasts(table).to_dict("records"):
        name = f"{labels[row['arm']]} − {labels[row['against']]}"
        name += " (**the contrast fixed beforehand**)" if row["planned"] else ""
        values = number(row["difference"], "+.3f"), number(row["deviation"]), number(row["p"], ".2g")
        lines.append([name, MEASURES[row["measure"]], str(row["seeds"]), *values])
    contrasted = markdown(["difference", "of", "seeds", "mean", "deviation", "p"], lines)
    return f"{markdown([table['title'], 'seeds', *heads], rows)}\n{contrasted}\n{made_text(table['made'])}"


def figure(data):
    """The forgotten shares of the arms of DRAWN, by episode (Vega-Lite, dict); None without data."""
    from teleport.report.page.drawings import rate_figure

    sets = {}
    for row in data.get(DRAWN, {"rows": []})["rows"]:
        means = values_of(row).mean()
        steps = sorted(int(key) for key in means.index if key.isdecimal())
        rates = [float(means[str(step)]) for step in steps]
        sets[row["label"]] = [{"checkpoints": [0, *steps], "rates": rates}]
    return rate_figure(sets, "RR@100").spec | {"width": 420} if sets else None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", metavar="TABLE", help="make the stages of this table first")
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if arguments.make:
        make_table(arguments.make, arguments.cores)
    print(write_section("forgetting"))
