"""Does the mined episode of the recipe pay, beside in-batch training alone? Five seeds; docs/measured/recipe.md.

    python bench/pairs.py cloud pairs.jsonl
    teleport new mine pairs.jsonl
    python bench/recipe.py config/mine.yaml [more files] [--cores 2]

It runs config/variants/in-batch-alone.yaml after each file, with passages cut to 64 tokens for time, without Snakemake.
Finished stages do not run again. Then it writes the page. Its data are recipe.json (how they came about) and
recipe.parquet (the score of every test query under every seed); without a file, the page is computed from them again.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from arms_table import CONTRASTS, interval, work
from here import make_on, needed
from results import DATA, lines_of, made_by, made_text, markdown, number, plus_minus, read_scores, wrapped, write_scores
from rounds import REPOSITORY
from significance import smallest
from teleport.evaluation.significance import compare
from teleport.plan.plan import Plan
from teleport.report.stages import Stages
from teleport.running.files import read_saved, write_json, write_text

NAME, SPLIT, CONTRAST = "recipe", "test", CONTRASTS["recipe"]
MEASURE, RECIPE, ALONE = CONTRAST["measure"], CONTRAST["ours"], CONTRAST["theirs"]
LENGTHS = {"encoder": {"max_query_tokens": 32, "max_passage_tokens": 64}}
LABELS = {
    "bm25": "BM25",
    "start": "Start",
    "first": "In-batch, first episode",
    ALONE: "In-batch alone",
    RECIPE: "Recipe",
}
HEAD = """\
# Does the recipe's mined episode pay?
Made by `python bench/recipe.py` from `recipe.json` and `recipe.parquet` beside it. Each collection is a file of pairs,
configured by `teleport new`. *In-batch alone* continues the first episode in-batch, twice, and so reads as many
passages as the recipe, which mines once (`config/variants/in-batch-alone.yaml`). Dev chooses the checkpoint of every
episode. Figures are means of test queries ± the deviation over seeds. The contrast was fixed before the runs
(`bench/contrasts.yaml`), and p is over queries and seeds. *Kept*: seeds whose last episode improved dev on no step, so
that dev kept the checkpoint before it.

"""


def files_of(config):
    """The configuration files of a collection: its own, the variant, and `LENGTHS`."""
    lengths = Path("results/recipe.yaml")
    write_text(lengths, json.dumps(LENGTHS))  # JSON is YAML
    return [str(config), str(REPOSITORY / "config/variants/in-batch-alone.yaml"), str(lengths)]


def evaluations(plan):
    """{row: [the evaluate stage of each seed]} of `LABELS`."""
    recipe, alone = plan.trajectories[RECIPE], plan.trajectories[ALONE]
    return {
        "bm25": [plan.bm25_runs[SPLIT]],
        "start": [recipe[0].episodes[0].runs[SPLIT]],
        "first": [each.episodes[1].runs[SPLIT] for each in recipe],
        ALONE: [each.episodes[-1].runs[SPLIT] for each in alone],
        RECIPE: [each.episodes[-1].runs[SPLIT] for each in recipe],
    }


def measured(plan):
    """(how the finished rows came about (JSON), a line for each row, seed and query (DataFrame))."""
    stages, scores, spent, kept = Stages("."), [], {}, {}
    seeds = plan.experiments[RECIPE].seeds
    rows = evaluations(plan)
    for row, evaluated in rows.items():
        for seed, stage in zip(seeds if len(evaluated) > 1 else [None], evaluated, strict=True):
            scores.append(lines_of(stages, stage.name, MEASURE, row=row, seed=seed))
    for row in (ALONE, RECIPE):
        works = [work(trajectory, stages)[-1] for trajectory in plan.trajectories[row]]
        spent[row] = {name: float(np.mean([each[name] for each in works])) for name in works[0]}
        kept[row] = sum(stages.facts(each.trains[-1].name)["selected_step"] == 0 for each in plan.trajectories[row])
    first = plan.trajectories[RECIPE][0].trains[0].settings.training
    budget = f"{first.steps} steps of {first.batch_queries} queries in the first episode"
    made = made_by(needed([stage for each in rows.values() for stage in each]), seeds=seeds, budget=budget)
    return {"spent": spent, "kept": kept, "made": made}, pd.concat(scores)


def section(name, part, scores):
    """The table of a collection and its contrast (text); scores: {(row, measure): `Scores`}."""
    rows = []
    for row, label in LABELS.items():
        means = scores[row, MEASURE].values_QR.mean(axis=0)
        spent, seeds = part["spent"].get(row, {}), len(means)
        cells = [plus_minus(means.mean(), means.std(ddof=1) if seeds > 1 else np.nan)]
        cells += [number(spent.get(what), ",.0f") for what in ("pairs", "passages", "mining", "training")]
        rows.append([label, *cells, f"{part['kept'][row]} of {seeds}" if row in part["kept"] else "–"])
    table = markdown([name, MEASURE, "pairs read", "passages read", "mining, s", "training, s", "kept"], rows)
    contrast = contrast_text(scores[RECIPE, MEASURE], scores[ALONE, MEASURE])
    return f"{table}\n{wrapped(contrast)}\n{made_text(part['made'])}\n"


def contrast_text(ours, theirs):
    """The contrast that was fixed, of two `Scores`."""
    queries = f"{len(ours.values_QR):,} test queries."
    if np.array_equal(ours.values_QR, theirs.values_QR):
        return f"{CONTRAST['name']}: 0, because both rows have the same score for each query and seed. {queries}"
    found, found_from = compare(ours, theirs), smallest(ours.values_QR - theirs.values_QR)
    between = interval(found.difference, ours, theirs)
    return (
        f"{CONTRAST['name']}: {found.difference:+.3f}, 95 % interval {between}, p {found.p:.2g}. Smallest true "
        f"difference that four of five simulated trials mark: {found_from:g}. {queries}"
    )


def write(plans):
    """Take the finished plans ({collection: `Plan`}), keep the data of the rest, and write data and page."""
    path, data = DATA / f"{NAME}.parquet", read_saved(DATA / f"{NAME}.json")
    frames = [pq.read_table(path).to_pandas()] if path.is_file() else []
    for name, plan in plans.items():
        data[name], own = measured(plan)
        frames = [frame[frame["part"] != name] for frame in frames] + [own.assign(part=name)]
    if plans:
        write_scores(path, pd.concat(frames))
        write_json(DATA / f"{NAME}.json", data)
    scores = read_scores(path)
    texts = [section(name, part, scores[name]) for name, part in data.items()]
    write_text(DATA / f"{NAME}.md", HEAD + "".join(texts).rstrip("\n") + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", type=Path)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    plans = {config.stem: Plan.of_files(files_of(config)) for config in arguments.configs}
    stages = [stage for plan in plans.values() for own in evaluations(plan).values() for stage in own]
    make_on(stages, arguments.cores)
    write(plans)


if __name__ == "__main__":
    main()
