"""Forgetting: the arms of config/forgetting.yaml, and their contrasts over seeds, from what is finished.

    python bench/forgetting.py [--page docs/results.md]

The tables go to results/tables/forgetting/contrasts.csv and between the marks in the page. A contrast is the mean of
the differences that two arms have with the same seeds; its p is two-sided, by all changes of their signs.
"""

import re
from pathlib import Path

import numpy as np
import pandas as pd

from rounds import REPOSITORY, parser
from teleport.evaluation.significance import paired_p_value
from teleport.plan.plan import Plan
from teleport.report.render import NONE, cell, csv_text
from teleport.running.artefact import STAGES, Artefact, is_finished
from teleport.running.files import write_text
from teleport.settings.read import load_files

CONFIG, PAGE = REPOSITORY / "config/forgetting.yaml", REPOSITORY / "docs/results.md"
EPISODES = [2, 3, 4]  # whose forgotten shares are averaged: episode 1 has no older negatives
PLANNED = ("q-momentum", "q")  # fixed with the configuration, before anything was run
MORE = [("q-momentum", "softer")]  # is it the memory, or that its negatives are softer?
MEASURES = {"forgotten": "forgotten, 2 to 4", "RR@10": "RR@10 of dev after 4"}
BEGIN, END = "<!-- made by bench/forgetting.py -->\n", "<!-- until here -->\n"


def of_arm(trajectories):
    """A line per seed that has finished EPISODES: the forgotten share of each episode, and MEASURES (frame)."""
    lines = {}
    for trajectory in trajectories:
        pairs = [(episode.analyses["forgetting"], episode.runs["dev"]) for episode in trajectory.episodes[1:]]
        done = {n: pair for n, pair in enumerate(pairs, 1) if all(is_finished(stage.name) for stage in pair)}
        if set(EPISODES) <= set(done):
            facts = {n: [Artefact(STAGES / stage.name).facts for stage in pair] for n, pair in done.items()}
            shares = {n: forgotten["rate"] for n, (forgotten, _) in facts.items()}
            means = np.mean([shares[n] for n in EPISODES]), facts[EPISODES[-1]][1]["means"]["RR@10"]
            lines[trajectory.seed] = shares | dict(zip(MEASURES, means, strict=True))
    return pd.DataFrame.from_dict(lines, orient="index")


def contrast(ours, theirs):
    """(seeds, mean difference, standard deviation, p) of two arms ({seed: value}), over the seeds that both have.

    Of fewer than two seeds p and the deviation are NaN.
    """
    differences = (ours - theirs).dropna()
    if len(differences) < 2:
        return len(differences), differences.mean(), np.nan, np.nan
    p = paired_p_value(differences, np.zeros(len(differences)), 2**20, 0)  # more than the changes of 20 signs: all
    return len(differences), differences.mean(), differences.std(), p


def contrasts(arms):
    """A line for every pair: each arm against the first one of its table, and those in MORE (frame)."""
    first = next(iter(arms))
    pairs = [(name, first) for name in arms if name != first] + [pair for pair in MORE if set(pair) <= set(arms)]
    columns = ["arm", "against", "measure", "seeds", "difference", "deviation", "p", "planned"]
    lines = [
        (*pair, measure, *contrast(*(arms[name][measure] for name in pair)), pair == PLANNED and measure == "forgotten")
        for pair in pairs
        for measure in MEASURES
    ]
    return pd.DataFrame(lines, columns=columns)


def markdown(heads, rows):
    """A table whose first column has words."""
    lines = [heads, [":--", *["--:"] * (len(heads) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def of_table(plan, table):
    """(the table's Markdown, the frame of its contrasts) of arms with a finished seed; none without the first."""
    ablation = plan.config.ablations[table]
    frames = {name: of_arm(plan.trajectories[name]) for name in ablation.experiments}
    arms = {name: frame for name, frame in frames.items() if len(frame)}
    if next(iter(frames)) not in arms:
        return "", pd.DataFrame()
    labels, shown = {name: plan.experiments[name].label for name in arms}, contrasts(arms)
    numbers = sorted({name for arm in arms.values() for name in arm if isinstance(name, int)})
    columns, heads = [*numbers, *MEASURES], [*(f"forgotten in {n}" for n in numbers), *MEASURES.values()]
    rows = [
        [
            labels[name],
            str(len(arm)),
            *(cell(arm[name].mean(), arm[name].std(), ".3f") if name in arm else NONE for name in columns),
        ]
        for name, arm in arms.items()
    ]
    text = markdown([ablation.title, "seeds", *heads], rows) + "\n"
    lines = []
    for row in shown.itertuples():
        name = f"{labels[row.arm]} − {labels[row.against]}" + (
            " (**the contrast fixed beforehand**)" if row.planned else ""
        )
        values = [f"{row.difference:+.3f}", cell(row.deviation, None, ".3f"), cell(row.p, None, ".2g")]
        lines.append([name, MEASURES[row.measure], str(row.seeds), *values])
    return text + markdown(["difference", "of", "seeds", "mean", "deviation", "p"], lines), shown.assign(table=table)


def made_by(plan):
    """A sentence on commit, processor, threads and the seconds of all finished stages."""
    made = [Artefact(STAGES / name).manifest["provenance"] for name in plan.stages if is_finished(name)]
    commits = sorted({str(each["git_commit"])[:7] for each in made})
    machines = sorted({f"{each['hardware']['cores']} cores of {each['hardware']['processor']}" for each in made})
    minutes = sum(each["wall_seconds"] for each in made) / 60
    threads = sorted({each["threads"] for each in made})
    return (
        f"Commit {', '.join(commits)}; {'; '.join(machines)}; {len(made):,} stages, {minutes:.0f} minutes of "
        f"{' or '.join(map(str, threads))} of them.\n"
    )


def main():
    options = parser(__doc__)
    options.add_argument("--page", type=Path, default=PAGE)
    page, plan = options.parse_args().page, Plan(*load_files([str(CONFIG)]))
    texts, frames = zip(*(of_table(plan, table) for table in plan.config.ablations), strict=True)
    write_text(Path("results/tables/forgetting/contrasts.csv"), csv_text(pd.concat(frames)))
    section = "\n".join([*filter(None, texts), made_by(plan)])
    print(section)
    old = page.read_text(encoding="utf-8")
    marked = re.escape(BEGIN) + ".*?" + re.escape(END)
    page.write_text(re.sub(marked, lambda _: BEGIN + section + END, old, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main()
