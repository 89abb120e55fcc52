"""docs/measured/arms.md: the tables, the contrasts and the curves of what bench/arms.py has finished.

    python bench/arms_table.py    takes what is finished below results/, then computes every p again and writes the page

The data are docs/measured/arms.json (rates, work, dev curves, how they came about) and arms.parquet (the score of every
test query under every seed). No p is kept: each is computed from the scores when the page is written.
"""

import argparse
import json
from itertools import chain

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import yaml
from scipy.optimize import brentq

from arms import BASELINE, GRID, PARTS, SPLIT, WARM_UP, all_evaluations, evaluations
from results import (
    DATA,
    covers,
    draw,
    lines_of,
    made_by,
    made_text,
    markdown,
    number,
    plus_minus,
    read_scores,
    wrapped,
    write_scores,
)
from rounds import REPOSITORY
from significance import smallest
from teleport.evaluation.significance import Scores, compare, crossed_p_value, holm
from teleport.plan.plan import Plan
from teleport.report.figures import seconds
from teleport.report.rows import mining_stages
from teleport.report.stages import Stages
from teleport.running.artefact import is_finished
from teleport.running.files import read_saved, write_json, write_text

NAME = "arms"
SCORES, PAGE = DATA / f"{NAME}.parquet", DATA / f"{NAME}.md"
CONTRASTS = yaml.safe_load((REPOSITORY / "bench/contrasts.yaml").read_text())
MEASURE, RECALL, LEVEL = CONTRASTS["measure"], "R@100", CONTRASTS["level"]
BASELINES = {  # {table: (the row, its short name)}
    "arms": (BASELINE, "(a)"),
    "draws": ("uniform", "Uniform"),
    "teachers": ("uniform", "Uniform"),
}
COLUMNS = ["rate", MEASURE, RECALL, "less {}", "pairs read", "passages read", "mining, s", "training, s"]
AXES = {"pairs": "Labelled pairs read", "passages": "Passages read", "seconds": "Seconds, mining included"}
HEAD = """\
# Does mining pay? Does a draw, or a teacher?
Made by `python bench/arms_table.py` from `arms.json` and `arms.parquet` beside it. The latter has the scores of every
query and seed; each p is computed from them when this page is written. `config/arms.yaml` defines the arms. All
continue one in-batch warm-up per seed and read the same number of further passages. Two exceptions: (b) reads as many
pairs as the arms that mine, so a quarter of the passages; half of the steps of (h) train only the query encoder, so it
reads half of the passages. The rate of each arm was chosen on dev queries with another seed, by RR@10 of 400 queries
among 2,000 passages: positives, 500 random ones, and BM25's first neighbours. In the part
`arms-docstrings-layers-2-start-pools` they are the warm-up's first neighbours instead, which
[mislead](../results.md#dev-sets-that-mislead). The parts `arms-docstrings-whole` and
`arms-docstrings-layers-2` ran beside other work, so their seconds are too high. `config/draws.yaml` defines the draws.
Each takes the rates of the warm-up and of (e), draws 30 of the same 100 neighbours and reads equal numbers of passages
and pairs.
`config/variants/draws-teachers.yaml` has the rows with a teacher; their mining includes its scores. Work is that of an
arm alone, without the warm-up. Figures are means ± deviation over seeds, on test queries. An arm without a row has not
run.

The contrasts below each table were fixed before anything ran. Every other comparison is exploratory. A table of its own
has the contrasts by R@100 and those of (i), beside RR@10 again; no p there is corrected.

"""
CAPTION = """
![Scores of the arms against what they cost, a row for each part](arms.svg)

Left, dev scores of each arm while it trains, means over seeds. They do not compare arms: their pools only choose rates.
Right, test scores of the last checkpoints, which do.
"""


def measured():
    """({name: part} (JSON), scores (DataFrame)) of the parts whose arms are all finished."""
    parts, scores = {}, []
    for path in sorted(PARTS.glob("*-*.json")):
        part = json.loads(path.read_text(encoding="utf-8"))
        plan = Plan.of_files(part["files"])
        if all(is_finished(stage.name) for stage in all_evaluations(plan)):
            parts[path.stem], of_queries = of_part(plan, part)
            scores.append(of_queries.assign(part=path.stem))
    return parts, pd.concat(scores) if scores else pd.DataFrame(columns=["part", "row", "seed", "query"])


def table_of(plan):
    """The name of the one table of a plan: a key of BASELINES."""
    (table,) = plan.config.ablations
    return table


def of_part(plan, part):
    """(rows, curves and how they came about (JSON), a line per row, seed, query and measure (DataFrame))."""
    stages, rows, curves, scores = Stages("."), [], [], []
    for row, evaluated in evaluations(plan).items():
        experiment = plan.experiments.get(row)
        seeds = experiment.seeds if experiment else [None]
        grid = dict(part["grid"].get(row, ()))
        rows.append({"row": row, "label": experiment.label if experiment else row, "seeds": len(evaluated)})
        if experiment:
            works = [work(trajectory, stages) for trajectory in plan.trajectories[row]]
            spent = [{name: each[-1][name] for name in ("pairs", "passages", "mining", "training")} for each in works]
            rows[-1] |= {"rate": experiment.training.learning_rate, "grid": list(grid.items())}
            rows[-1] |= {name: float(np.mean([each[name] for each in spent])) for name in spent[0]}
            points = zip(seeds, works, strict=True)
            curves += [point | {"row": row, "seed": seed} for seed, own in points for point in own if row != WARM_UP]
        for seed, stage in zip(seeds, evaluated, strict=True):
            scores += [lines_of(stages, stage.name, measure, row=row, seed=seed) for measure in (MEASURE, RECALL)]
    used = chain.from_iterable(trajectory.rows for each in plan.trajectories.values() for trajectory in each)
    row, short = BASELINES[table := table_of(plan)]
    seeds, steps = plan.experiments[row].seeds, plan.experiments[row].training.steps
    made = made_by({row.stage.name for row in used}, seeds=seeds, budget=f"{steps} further steps of {short}")
    return {"table": table, "rows": rows, "curves": curves, "made": made}, pd.concat(scores)


def work(trajectory, stages):
    """The points of an arm's dev curve under one seed, up to its end (list of dict): pairs and passages read so far,
    and seconds of mining and training, as if the arm ran alone."""
    points, done, seen = [], dict.fromkeys(("pairs", "passages", "mining", "training"), 0.0), set()
    for train in trajectory.trains:
        facts, training = stages.facts(train.name), train.settings.training
        mined = {stage.name: stage for stage in mining_stages([train])}
        done["mining"] += sum(seconds(stages.artefact(name)) for name in sorted(mined.keys() - seen))
        seen |= mined.keys()
        texts = 1 + training.negatives_per_query if "passage" in training.trains else 0
        begun, first = dict(done), facts["first_step"]
        curve = pd.read_csv(stages.artefact(train.name).path("dev.tsv"), sep="\t").to_numpy()
        for step, score in curve:
            read = (step - first) * training.batch_queries
            share = (step - first) / facts["steps"]
            done |= {"pairs": begun["pairs"] + read, "passages": begun["passages"] + read * texts}
            done["training"] = begun["training"] + share * facts["train_seconds"]
            points.append(done | {"score": score, "seconds": done["mining"] + done["training"]})
    return points


def page(data, scores):
    """The whole page (text) of the parts and the `read_scores`."""
    texts = [HEAD, "" if data else "**No part has been run to its end yet.**\n"]
    for name, part in data.items():
        if min(row["seeds"] for row in part["rows"] if row["row"] != "BM25") < 3:
            texts.append(f"**{name} is a pilot**: it shows that all arms run to the end, and nothing can be concluded "
                         "from it. It has one rate, which was not tuned, and each p compares only these checkpoints. "
                         "Its seconds measure nothing: `python bench/arms.py --collections pilot --here` had one "
                         "thread at low priority on a busy machine.\n\n")  # fmt: skip
        table = part["table"]
        texts += [arms_text(name, part, scores[name]), "\n", contrasts_text(name, table, scores[name]), "\n"]
        if table == NAME:
            texts += [exploratory_text(name, scores[name]), "\n"]
        texts += [smallest_text(part["smallest"]), made_text(part["made"]), "\n"]
    return wrapped_lines("".join(texts)) + (CAPTION if data else "")


def wrapped_lines(text):
    """Text whose paragraphs are wrapped; tables and headings stay."""
    lines = text.split("\n")
    return "\n".join(wrapped(line)[:-1] if len(line) > 120 and line[:1] not in "|#" else line for line in lines)


def arms_text(name, part, scores):
    """The table of the arms."""
    (baseline, short), rows, edge = BASELINES[part["table"]], [], ""
    base, most = scores[baseline, MEASURE], max(row["seeds"] for row in part["rows"])
    for row in part["rows"]:
        ours = scores[row["row"], MEASURE]
        means = [scores[row["row"], measure].values_QR.mean(axis=0) for measure in (MEASURE, RECALL)]
        cells = [plus_minus(own.mean(), own.std(ddof=1) if len(own) > 1 else np.nan) for own in means]
        shared = of_shared_seeds(ours, base) if row["row"] not in (baseline, "BM25") else None
        less = shared and shared[0].values_QR.mean() - shared[1].values_QR.mean()
        spent = [number(row.get(what), ",.0f") for what in ("pairs", "passages", "mining", "training")]
        rate = number(row.get("rate"), "g")
        if row.get("grid") and row["rate"] in (GRID[0], GRID[-1]):
            rate, edge = f"{rate} ‡", "\n‡ An end of the grid: a rate beyond it may be better.\n"
        label = row["label"] + (f", {row['seeds']} seeds" if 1 < row["seeds"] < most else "")
        rows.append([label, rate, *cells, number(less, "+.3f"), *spent])
    return markdown([name, *(column.format(short) for column in COLUMNS)], rows) + edge


def contrasts(table, scores):
    """[(contrast (dict), its two `Scores`, `Comparison`, Holm's p)] of the contrasts of a table whose arms have run;
    scores: {(row, measure): `Scores`}. Holm's correction is over all contrasts; one that has not run counts with p = 1.
    """
    fixed = CONTRASTS["contrasts"][table]
    run = compared(fixed, MEASURE, scores)
    corrected = holm([found.p for *_, found in run] + [1.0] * (len(fixed) - len(run)))[: len(run)]
    return [(*each, p) for each, p in zip(run, corrected, strict=True)]


def compared(asked, measure, scores):
    """[(contrast (dict), its two `Scores`, `Comparison`)] of the asked contrasts whose arms have run, by a measure."""
    run = [each for each in asked if {(each["ours"], measure), (each["theirs"], measure)} <= scores.keys()]
    pairs = [of_shared_seeds(*(scores[each[side], measure] for side in ("ours", "theirs"))) for each in run]
    return [(each, pair, compare(*pair)) for each, pair in zip(run, pairs, strict=True)]


def of_shared_seeds(ours, theirs):
    """Two `Scores`, of the seeds that both have (list): arms of a seed share its warm-up, so they are tested seed by
    seed."""
    seeds = tuple(seed for seed in ours.seeds if seed in theirs.seeds)
    return [Scores(each.values_QR[:, [each.seeds.index(seed) for seed in seeds]], seeds) for each in (ours, theirs)]


def half_width(ours, theirs):
    """Half of the 95 % interval of the difference of two `Scores`: as far from it, the test that gives p is just not
    significant."""
    centred_QR = ours.values_QR - (ours.values_QR.mean() - theirs.values_QR.mean())

    def above(shift):
        return crossed_p_value(ours._replace(values_QR=centred_QR + shift), theirs) - LEVEL

    return brentq(above, 1e-6, 1.0)


def interval(difference, ours, theirs):
    """The 95 % interval of the difference of two `Scores` as text."""
    half = half_width(ours, theirs)
    return " to ".join(number(difference + way * half, "+.3f") for way in (-1, 1))


def contrasts_text(name, table, scores):
    """The table of the contrasts that were fixed beforehand."""
    rows = []
    for asked, pair, found, p in contrasts(table, scores):
        said = "no" if p >= LEVEL else "higher" if found.difference > 0 else "lower"
        between = interval(found.difference, *pair) if found.method == "crossed" else ""
        cells = [number(found.difference, "+.3f"), between, number(found.p, ".2g"), number(p, ".2g")]
        rows.append([f"{asked['name']}: {asked['asks']}?", *cells, said])
    run = {row[0] for row in rows}
    for asked in CONTRASTS["contrasts"][table]:
        if (asked_in_words := f"{asked['name']}: {asked['asks']}?") not in run:
            rows.append([asked_in_words, "", "", "", "", "not run yet"])
    return markdown([f"{name}, fixed beforehand", "difference", "95 % interval", "p", "p, Holm", "significant"], rows)


def exploratory_text(name, scores):
    """The table of the contrasts of the arms by every measure, those that were asked afterwards too; p is as it is."""
    more, by_name, heads = CONTRASTS["exploratory"], {}, []
    for measure in more["measures"]:
        heads += [measure, "p"]
        for asked, _, found in compared(CONTRASTS["contrasts"][NAME] + more["contrasts"], measure, scores):
            cells = by_name.setdefault(f"{asked['name']}: {asked['asks']}?", [])
            cells += [number(found.difference, "+.3f"), number(found.p, ".2g")]
    return markdown([f"{name}, exploratory", *heads], [[name, *cells] for name, cells in by_name.items()])


def smallest_differences(table, scores):
    """{contrast: the smallest true difference that is found} of the contrasts of a table that have run with enough
    seeds (JSON)."""
    return {
        asked["name"]: smallest(ours.values_QR - theirs.values_QR)
        for asked, (ours, theirs), found, _ in contrasts(table, scores)
        if found.method == "crossed"
    }


def smallest_text(found):
    """Return a text on the `smallest_differences` of a part."""
    if not found:
        return ""
    said = "; ".join(f"{name} {difference:g}" for name, difference in sorted(found.items()))
    return ("Smallest true difference that four of five simulated trials mark, before Holm's correction, if queries "
            f"and seeds vary as in these scores (arms of a seed share its warm-up): {said}.\n\n")  # fmt: skip


def figure(data, scores):
    """A row of panels for each part (Vega-Lite), means over seeds: dev scores against pairs, passages and seconds, and
    test scores of the last checkpoints against seconds."""
    import altair as alt

    from teleport.report.charts import CONFIG as STYLE
    from teleport.report.charts import FREE

    def panel(values, mark, axis, split):
        y = alt.Y("score:Q", title=f"{split} {MEASURE}", scale=FREE["scale"])
        chart = alt.Chart(alt.Data(values=values), mark=mark, width=300, height=260)
        return chart.encode(alt.X(f"{axis}:Q", title=AXES[axis]), y, alt.Color("arm:N", title=None))

    rows = []
    for name, part in ((name, each) for name, each in data.items() if each["table"] == "arms"):
        arms = [row for row in part["rows"] if row["row"] not in ("BM25", WARM_UP)]
        labels = {row["row"]: row["label"] for row in arms}
        curves = pd.DataFrame(part["curves"])
        curves["point"] = curves.groupby(["row", "seed"]).cumcount()
        panels = []
        for axis in AXES:
            means = curves.groupby(["row", "point"], sort=False)[[axis, "score"]].mean().reset_index()
            values = means.assign(arm=means["row"].map(labels)).to_dict("records")
            panels.append(panel(values, alt.MarkDef("line", point=True), axis, "dev"))
        spent = {row["row"]: row["mining"] + row["training"] for row in arms}
        means = {row: scores[name][row, MEASURE].values_QR.mean() for row in spent}
        values = [{"arm": labels[row], "seconds": spent[row], "score": means[row]} for row in spent]
        panels.append(panel(values, alt.MarkDef("point", filled=True, size=80), "seconds", SPLIT))
        rows.append(alt.hconcat(*panels).properties(title=name))
    return alt.vconcat(*rows).to_dict() | {"config": STYLE} if rows else None


def write():
    """Take the finished parts that lack no row or seed of the saved ones, and write data, page and figure."""
    made, lines = measured()
    saved = read_saved(DATA / f"{NAME}.json")
    new = {name: part for name, part in json.loads(json.dumps(made)).items() if covers(part, saved.get(name, {}))}
    data = dict(sorted((saved | new).items()))  # as the file will have them
    if new:
        old = pq.read_table(SCORES).to_pandas() if SCORES.is_file() else lines[:0]
        write_scores(SCORES, pd.concat([old[~old["part"].isin(new)], lines[lines["part"].isin(new)]]))
    scores = read_scores(SCORES)
    for name, part in data.items():
        if "smallest" not in part:  # minutes
            part["smallest"] = smallest_differences(part["table"], scores[name])
    write_json(DATA / f"{NAME}.json", data)
    write_text(PAGE, page(data, scores))
    if chart := figure(data, scores):
        draw(chart, DATA / f"{NAME}.svg")
    print(f"written: {PAGE}, with {len(new)} parts from results/arms")
    for name in made.keys() - new.keys():
        print(f"{name} stays as it was: results/arms lacks rows or seeds of it")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    write()
