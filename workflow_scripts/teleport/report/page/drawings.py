"""The rows of each chart of experiments and systems, for the page and for a paper's figure files."""

from itertools import chain, pairwise

import numpy as np
import pandas as pd

from teleport.report.charts import SOURCE_COLOURS, Figure, shown
from teleport.report.figures import over_seeds
from teleport.report.page.curves import NAMED, column_points
from teleport.report.page.negatives import GAP_BINS, RANK_BIN
from teleport.report.render import shortened
from teleport.settings.measures import better

CURVES = ("loss", "learning_rate", "gradient_norm", "positive_score", "negative_score")  # first, in this order
LAYERS = ("lower_layers", "middle_layers", "upper_layers", "last_layer")  # gradient norms that are drawn together
MOST_LINES = 10  # systems in one chart of lines
FORGOTTEN = "|{q : r(q, after) < r(q, before)}|"  # ANCE-Tele, §5.4
DIAMONDS = " Diamonds: the paper's own."
LABEL_GAP = 0.07  # between the names of lines, in heights of their chart: 10 names fit


def system_figures(table, published):
    """The systems of a table by each of its columns, best first: [Figure]; published: as `published_measures` gives."""
    figures = []
    for column in table["columns"]:
        cells = [(row["label"], row["cells"][column]) for row in table["rows"] if column in row["cells"]]
        cells.sort(key=lambda each: (-better(column) or 1) * each[1]["mean"])
        rows = [{"label": label, "mean": cell["mean"]} | intervals(cell, column) for label, cell in cells]
        seeded = any(row["seed_low"] is not None for row in rows)
        order = "Best first" if better(column) > 0 else "Fewest first"
        text = f"{order}. Thin lines: 95 % intervals over queries{'; thick: over seeds' * seeded}."
        ghosts = [
            {"label": label, "mean": value, "paper": True, "what": title}
            for label, cell in cells
            for title, value in published.get((tuple(cell["stages"]), cell["measure"]), ())
        ]
        text += DIAMONDS * bool(ghosts)
        figures.append(Figure("systems", rows + ghosts, f"{column}.", text, axes={"x": column}))
    return figures


def intervals(cell, column):
    """{low, high, seed_low, seed_high} of a figure, within the bounds of its measure; None where it has no interval."""
    ends, most = {}, np.inf if better(column) < 0 or cell["mean"] > 1 else 1.0  # above 1: counts, such as NumRet
    for prefix, half in (("", cell["over_queries"]), ("seed_", cell["over_seeds"])):
        for end, sign in (("low", -1), ("high", 1)):
            ends[prefix + end] = None if half is None else min(most, max(0.0, cell["mean"] + sign * half))
    return ends


def episode_figures(table):
    """The first column of a table by episode, of systems with several, ten systems to a chart: [Figure]."""
    column, lines = table["columns"][0], {}
    points = [(row["system"], row["episode"], row["cells"].get(column)) for row in table["rows"]]
    points += [(system, 0, start) for system, start in table["starts"].items()]
    for system, episode, cell in points:
        if cell and episode is not None:
            point = {"system": system, "episode": episode, "mean": cell["mean"]} | intervals(cell, column)
            lines.setdefault(system, {}).setdefault(episode, point)
    lines = [[line[episode] for episode in sorted(line)] for line in lines.values() if len(line) > 1]
    groups = [lines[at : at + MOST_LINES] for at in range(0, len(lines), MOST_LINES)]
    text = "Episode 0 is the checkpoint that training starts from. Lines: 95 % intervals over queries."
    paper, axes = "ANCE-Tele, Figures 2 and 8a", {"y": column}
    return [Figure("episodes", labelled(each), f"{column} by episode.", text, paper, axes) for each in groups]


def labelled(lines):
    """The rows of some lines; the last row of each has `at`, where its name is written, apart from other names."""
    rows, lasts = list(chain(*lines)), sorted((line[-1] for line in lines), key=lambda row: row["mean"])
    ends = [row[end] for row in rows for end in ("mean", "low", "high") if row[end] is not None]
    low, high = (min(ends), max(ends)) if max(ends) > min(ends) else (ends[0] - 0.05, ends[0] + 0.05)
    for row, place in zip(lasts, spread([row["mean"] for row in lasts], low, high), strict=True):
        row["at"] = place
    return rows


def spread(places, low, high):
    """Places (ascending) moved apart by LABEL_GAP of the way from low to high, and kept between these: [float]."""
    gap, moved = LABEL_GAP * (high - low), []
    for place in places:
        moved.append(max(place, moved[-1] + gap if moved else low))
    for at in reversed(range(len(moved))):
        moved[at] = min(moved[at], moved[at + 1] - gap if at + 1 < len(moved) else high)
    return moved


def training_figures(curves):
    """Figures of every column that an experiment's trainings wrote; curves: of all its seeds, as `training_curves`
    gives."""
    order = sorted(curves.columns.drop(NAMED), key=lambda name: CURVES.index(name) if name in CURVES else len(CURVES))
    text, figures, layers = "The steps of all episodes, one after another.", [], []
    for name in order:
        rows = column_points(curves, name)
        if name in LAYERS:
            layers += [row | {"layer": spelled(name)} for row in rows]
        else:
            paper = "ANCE-Tele, Figure 2" if name == "loss" else ""
            figures.append(Figure("curve", rows, f"{spelled(name)}.", text, paper, {"y": spelled(name)}))
    title, text = "Gradient norm by layer", f"{text} Means over thirds of the layers."
    return shown(*figures, Figure("layers", layers, f"{title}.", text, "ANCE, Figure 4", {"y": title}))


def spelled(name):
    """A name of the code as words, the first with a capital letter."""
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]


def negatives_figures(negatives):
    """Return the figures ([Figure]) of one experiment and seed: the sources of its negatives, the episodes in which
    they first occur, and their scores beside the positive's. negatives: of `negatives_of`"""
    trained, mined = "the pool", "all that was mined"
    since, pairs = "Since when", "Pairs of a query and a passage, by the episode in which they first occur."
    shares = "The share of one episode's pairs that another episode also has."
    sources = "Negatives in each episode's pool, by source; momentum keeps those of earlier episodes."
    pools = negatives["pools"]
    by_source = [row for episode, pool in pools.items() for row in source_rows({"episode": episode}, pool)]
    some = f" Of {len(pools)} episodes {MOST_LINES}." * (len(pools) > MOST_LINES)
    new = (
        "Negatives that no earlier episode had, among all mined ones, or in the pools if an episode mined only a part; "
        "coloured: those that were neighbours of the positive one episode before."
    )
    return shown(
        Figure("sources", by_source, "Sources.", sources, "ANCE-Tele, Figure 9"),
        Figure("first", first_rows(negatives, "trained"), f"{since}: {trained}.", pairs, "ANCE-Tele, Figure 9"),
        Figure("overlap", overlap_rows(negatives, "trained"), f"Overlap between episodes: {trained}.", shares),
        Figure("overlap", overlap_rows(negatives, "mined"), f"Overlap between episodes: {mined}.", shares),
        Figure("first", first_rows(negatives, "mined"), f"{since}: {mined}.", pairs, "ANCE-Tele, Figures 5 and 10"),
        Figure("new", new_rows(negatives), "New negatives.", new, "ANCE-Tele, Figure 7"),
        Figure("ranks", rank_rows(negatives), "Ranks.", f"By tens of ranks in the retrieval; without momentum.{some}"),
        gap_figure(negatives),
    )


def parts(named, field, counts):
    """A row per part of a stacked bar, each of `named`; counts: {value of `field`: number}, in their order."""
    total, rows = max(1, sum(counts.values())), enumerate(counts.items())
    return [{**named, field: part, "count": n, "share": n / total, "order": at} for at, (part, n) in rows]


def source_rows(named, pool):
    """A row per source of a pool, in the order of their colours."""
    names = dict.fromkeys([*SOURCE_COLOURS, *pool["sources"]])
    return parts(named, "source", {name: pool["sources"][name] for name in names if name in pool["sources"]})


def share_figure(contents):
    """Sources of the last pool of every system; contents: {label: `negatives_of` its first seed}."""
    last = {label: list(negatives["pools"].values())[-1] for label, negatives in contents.items()}
    rows = [row for label, pool in last.items() for row in source_rows({"label": label}, pool)]
    return Figure("shares", rows, "Sources of every system.", "The pool of the last episode.", "ANCE-Tele, Figure 9")


def first_rows(negatives, level):
    """A row per episode and episode of first encounter; level: trained or mined, of which there may be none."""
    rows = []
    for episode, line in zip(negatives["pools"], negatives[level]["first"], strict=True) if level in negatives else ():
        counts = {first: count for first, count in zip(negatives["pools"], line, strict=True) if count}
        rows += parts({"episode": episode}, "first", counts)
    return rows


def heat_rows(names, columns, values):
    """A row per cell; values: per name a list by columns."""
    lines = zip(names, values, strict=True)
    return [{"of": of, "by": by, "value": v} for of, line in lines for by, v in zip(columns, line, strict=True)]


def overlap_rows(negatives, level):
    """The shares of an episode's pairs that another episode has, too; [] for a single episode."""
    if level not in negatives or len(negatives["pools"]) < 2:
        return []
    pools = negatives["pools"]
    return heat_rows([f"episode {number}" for number in pools], pools, negatives[level]["overlap"])


def new_rows(negatives):
    """New negatives by whether they were near: of all that was mined, or of the pools if some episode has no search."""
    level, rows = negatives.get("mined") or negatives["trained"], []
    for episode, (new, near) in zip(list(negatives["pools"])[1:], level["new"], strict=True):
        counts = {} if near is None else {"near the positive before": near, "elsewhere": new - near}
        rows += parts({"episode": episode}, "near", counts)
    return rows


def drawn_pools(negatives):
    """{episode: pool} of at most MOST_LINES evenly spaced episodes, the first and the last included. There are no more
    colours."""
    pools = list(negatives["pools"].items())
    places = np.linspace(0, len(pools) - 1, min(len(pools), MOST_LINES)).round().astype(int)
    return dict(pools[place] for place in places)


def rank_rows(negatives):
    """A row per episode, source and ten ranks, and one where the last ten end, so that their step is drawn."""
    return [
        {"episode": episode, "source": source, "rank": at * RANK_BIN + 1, "count": count}
        for episode, pool in drawn_pools(negatives).items()
        for source, bins in pool["ranks"].items()
        for at, count in enumerate([*bins, *bins[-1:]])
    ]


def gap_figure(negatives):
    """The score gaps without the first and last bin, which hold everything beyond. The caption has their shares."""
    rows, beyond, queries = [], [], 0
    for episode, pool in drawn_pools(negatives).items():
        if counts := pool.get("gaps"):
            shares = np.array(counts) / pool["scored"]
            middles = (GAP_BINS[:-1] + GAP_BINS[1:]) / 2
            queries = max(queries, pool["scored_queries"])
            beyond.append(f"{shares[0]:.1%} / {shares[-1]:.1%} in episode {episode}")
            inner = zip(middles[1:-1].tolist(), shares[1:-1].tolist(), strict=True)
            rows += [{"episode": episode, "gap": gap, "share": share} for gap, share in inner]
    text = (
        f"How far negatives score below the positive under the model that mined them, for {queries:,} queries. Left "
        "of the dashed line: 95 % of the positive's score or more, suspected false negatives. Outside the plot, above "
        f"and below: {', '.join(beyond)}."
    )
    return Figure("gaps", rows, "Score gaps.", text)


def swing_figure(contents):
    """Negatives that swing; contents: {label: `negatives_of` its first seed}."""
    rows = []
    for label, negatives in contents.items():
        level = negatives.get("mined") or negatives["trained"]
        numbers = list(level["pairs"])  # of the episodes that have a pool
        for first, count in level["swings"].items():
            letter = {2: "class A: ", 3: "class B: "}.get(first, "")
            _, out, again = numbers[numbers.index(first) :][:3]
            name = f"{label}, {letter}in {first}, out {out}, in {again}"
            rows.append({"name": name, "count": count, "share": count / max(1, level["pairs"][first])})
    text = "Mined in one episode, not in the next, and again in the one after; classes A and B are the paper's."
    return Figure("swings", rows, "Negatives that swing.", text, "ANCE-Tele, Figure 6 and Table 10")


def rate_figure(sets, measure, ghosts=()):
    """Forgetting rates, means over seeds; sets: {label: [an item of `forgetting_of` for one set of queries, per seed]}.

    ghosts: [[label, step, rate]] of a paper
    """
    rows = []
    for label, seeds in sets.items():
        by_step = {}  # of the seeds that have both checkpoints; a step over a missing one is left out
        steps = (zip(pairwise(seed["checkpoints"]), seed["rates"], strict=True) for seed in seeds)
        for (before, step), rate in chain.from_iterable(steps):
            if step == before + 1:
                by_step.setdefault(step, []).append(rate)
        for step, rates in sorted(by_step.items()):
            rows.append({"label": label, "step": step, "rate": over_seeds(rates)[0], "paper": False, "what": "here"})
    for label, step, rate in ghosts:
        if label in sets:
            rows.append({"label": label, "step": step, "rate": rate, "paper": True, "what": "the paper"})
    text = f"The share of queries that a system forgets in an episode, {FORGOTTEN} / |Q|. Means over seeds."
    text += DIAMONDS * any(row["paper"] for row in rows)
    axes = {"x": f"Share of queries whose {measure} falls"}
    return Figure("rates", rows, "Forgetting rate.", text, "ANCE-Tele, Figure 4 and Table 9", axes)


def state_rows(forgetting, experiment, listed):
    """A row per step and state of one set of queries, with the address of their list (None unless they are `listed`).
    forgetting: an item of `forgetting_of`"""
    rows = []
    for at, (before, after) in enumerate(pairwise(forgetting["checkpoints"])):
        of_step = parts({"step": f"{before} → {after}"}, "state", forgetting["states"][at])
        address = f"list.html#{forgetting['split']}/{experiment}/{at}/"
        rows += [row | {"url": address + row["state"] if listed else None} for row in of_step]
    return rows


def river_figure(forgetting, experiment, listed):
    """Return the figure of how all queries of a set change from checkpoint to checkpoint; listed: whether their lists
    exist."""
    text = "{queries:,} {split} queries under seed {seed}, by r, their {measure}. ".format_map(forgetting)
    text += (
        f"Forgotten, as in the paper: {FORGOTTEN}. Learned: r rises above its best. Swung back: r rises again, but "
        "not above its best. Kept, missed: r stays the same, above 0 or at 0."
    )
    if forgetting.get("matched"):
        text += " Positives that were found by answers are the last episode's, at every checkpoint."
    if without := ", ".join(map(str, forgetting.get("unranked", ()))):
        text += f" Without checkpoint {without}: no search ranked these queries, and vectors are missing or too many."
    text += " A click lists the queries." * listed
    rows = state_rows(forgetting, experiment, listed)
    return Figure("river", rows, "What becomes of queries.", text, "ANCE-Tele, §3")


def trace_figure(forgetting):
    """The scores of some queries after every episode."""
    names = [f"{at}. {shortened(text, 55)}" for at, text in enumerate(forgetting["traced"], 1)]
    rows = heat_rows(names, forgetting["checkpoints"], forgetting["traces"])
    title = f"{len(forgetting['traced'])} queries drawn at random."
    return Figure("traces", rows, title, f"{forgetting['measure']} after every episode.", "ANCE-Tele, Figures 3 and 8d")


def kind_figure(stages):
    """Time by kind of stage; stages: of `finished_stages`."""
    frame = pd.DataFrame({"kind": [name.split("/")[0] for name in stages], "stages": 1})
    frame["seconds"] = [stage["seconds"] for stage in stages.values()]
    totals = frame.groupby("kind", sort=False).sum().sort_values("seconds", ascending=False, kind="stable")
    rows = totals.reset_index().to_dict("records")
    return Figure("kinds", rows, "Time by kind of stage.", "Every stage of this configuration counts once.")
