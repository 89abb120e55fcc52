"""docs/measured/comparison.md: methods at equal budgets, of what bench/comparison.py has finished (results.py)."""

import json
from itertools import chain

import numpy as np
import pandas as pd

from comparison import COLLECTIONS, MEASURE, PARTS, STARTS, TABLE, files, plan_of, read_in_training, trained
from results import made_by, made_text, markdown, number, plus_minus, wrapped
from teleport.evaluation.significance import Scores, compare, holm
from teleport.plan.mining import is_mined
from teleport.report.rows import cost_stages, named
from teleport.report.stages import Stages
from teleport.report.table import mean_cost
from teleport.running.artefact import is_finished

SPLIT, RECALL, BASELINE, LEVEL = "test", "R@100", "in-batch", 0.05
# What the papers have: the first system above the second, by their main measure on MS MARCO passages, dev.
ORDERINGS = [
    ("bm25", "in-batch", "STAR and ADORE, Table 2: .309, .264"),
    ("ance-lag-1", "bm25", "ANCE, Table 1: .330, .299"),
    ("ance-lag-1", "dpr", "ANCE, Table 1: .330, .311"),
    ("star", "ance-lag-1", "STAR and ADORE, Table 2: .340, .338"),
    ("adore", "bm25", "STAR and ADORE, Table 2: .329, .309"),
    ("ance-tele", "q-neg", "ANCE-Tele, Table 3, BERT: 36.0, 28.7"),
    ("ance-tele", "ance-lag-0", "ANCE-Tele, Table 3, BERT: 36.0, 33.5"),
    ("dpr", "q-neg", "ANCE-Tele, Table 3, BERT: 32.4, 28.7"),
]
COLUMNS = ["rate", MEASURE, RECALL, "less In-batch", "p", "p, Holm", "mining, s", "training, s", "passages encoded"]
PANEL_SPACING = 70  # of the figure, in pixels: the names of the points at the right end need it


def measured():
    """{collection and start: `of_part`} of the parts whose baseline is finished."""
    parts = {}
    for path in sorted(PARTS.glob("*.json")):
        part = json.loads(path.read_text(encoding="utf-8"))
        plan = plan_of(part["files"])
        if set(evaluations(plan)) >= {BASELINE}:
            parts[path.stem] = of_part(plan, part)
    return parts


def evaluations(plan):
    """{system: [the evaluate stage (name) of each seed]} of the systems of the table that have finished all seeds."""
    found = {"BM25": [plan.bm25_runs[SPLIT].name]} if plan.bm25_runs else {}
    for name in (*plan.config.ablations[TABLE].also, *plan.config.ablations[TABLE].experiments):
        of_seeds = [trajectory.episodes[-1].runs[SPLIT].name for trajectory in plan.trajectories[name]]
        found[name] = list(dict.fromkeys(of_seeds))  # what nothing has trained has one, whatever the seed
    return {name: names for name, names in found.items() if all(map(is_finished, names))}


def of_part(plan, part):
    """Rows, orderings and the contrast of mined with in-batch negatives of a collection and a start (JSON)."""
    stages, evaluated, systems = Stages("."), evaluations(plan), trained(plan)
    by_query = {name: [stages.query_scores(stage) for stage in names] for name, names in evaluated.items()}
    frames = {name: pd.concat([scores[MEASURE] for scores in of_seeds], axis=1) for name, of_seeds in by_query.items()}
    order = frames[BASELINE].index
    seeds = {name: tuple(plan.experiments[name].seeds) if name in systems else () for name in frames}
    scores = {name: Scores(frame.loc[order].to_numpy(), seeds[name]) for name, frame in frames.items()}
    rows = []
    for name in evaluated:
        row = {"row": name, "label": getattr(plan.experiments.get(name), "label", name), "seeds": len(seeds[name])}
        row |= of_scores(MEASURE, frames[name])
        row |= of_scores(RECALL, pd.concat([each[RECALL] for each in by_query[name]], axis=1))
        if seeds[name]:
            row |= costs(plan.trajectories[name], stages) | {"rate": plan.experiments[name].training.learning_rate}
            row |= {"dev": part["dev"].get(name), "mined": mines(plan.trajectories[name][0])}
        if seeds[name] and name != BASELINE:
            row |= contrast(scores[name], scores[BASELINE])
        rows.append(row)
    mined = [row["row"] for row in rows if row.get("mined")]
    orderings = [
        {"ours": ours, "theirs": theirs, "paper": paper} | contrast(scores[ours], scores[theirs])
        for ours, theirs, paper in ORDERINGS
        if {ours, theirs} <= scores.keys()
    ]
    content = {"rows": rows, "orderings": orderings, "missing": [name for name in systems if name not in evaluated]}
    if mined:
        mean = Scores(np.mean([scores[name].values_QR for name in mined], axis=0), seeds[mined[0]])
        content["mined"] = {"systems": len(mined)} | contrast(mean, scores[BASELINE])
    used = chain.from_iterable(plan.trajectories[name] for name in evaluated if name in plan.trajectories)
    names = {row.stage.name for trajectory in used for row in trajectory.rows}
    passages, queries = read_in_training(plan.trajectories[BASELINE][0])
    budget = f"{passages + queries:,} passages read in training; rates {', '.join(f'{r:g}' for r in part['rates'])}"
    return content | {"made": made_by(names, seeds=seeds[BASELINE], budget=budget)}


def of_scores(measure, frame):
    """{measure: mean, "MEASURE sd": deviation over seeds} of a frame of queries x seeds."""
    means = frame.mean()
    return {measure: float(means.mean()), f"{measure} sd": float(means.std()) if len(means) > 1 else None}


def contrast(ours, theirs):
    """{difference, p} of two `Scores`, over queries and seeds."""
    found = compare(ours, theirs)
    return {"difference": found.difference, "p": found.p}


def mines(trajectory):
    """Whether a checkpoint has mined negatives of a `Trajectory`, beforehand or at every step."""
    return any(map(is_mined, trajectory.pools)) or any(train.settings.live for train in trajectory.trains)


def costs(trajectories, stages):
    """{seconds of mining and of training, passages encoded for the mining}, means over seeds, as if each ran alone."""
    of_seeds, passages = [], []
    for trajectory in trajectories:
        spent = cost_stages(trajectory.trains)
        encoded = [stage for stage in spent["mining"] if stage.kind == "encode" and stage.settings.of == "passages"]
        of_seeds.append(named(spent))
        passages.append(len(encoded) * stages.facts(trajectory.plan.corpus.name)["num_passages"])
    mining, training = mean_cost(of_seeds, stages)
    return {"mining": mining, "training": training, "encoded": float(np.mean(passages))}


def names_of(part):
    """(collection, start) of the name of a part."""
    return next((c, s) for c in COLLECTIONS for s in STARTS if part.endswith(f"{c}-{s}"))


def section(data):
    """The text between the marks: of each start the sentence, the tables, the orderings; and what has not run."""
    texts = []
    for start in STARTS:
        parts = {names_of(name)[0]: part for name, part in data.items() if names_of(name)[1] == start}
        if parts:
            texts += [sentences(start, parts), *tables(start, parts), orderings(parts)]
            texts += [made_text(part["made"]) for part in parts.values()]
    if data:
        texts.insert(1, "![RR@10 of each system by the passages that its mining encodes](comparison.png)\n")
    return "\n".join(filter(None, [*texts, missing(data)]))


def sentences(start, parts):
    """Whether mined negatives are better than in-batch ones, by rule: of each collection the mean of all systems that
    mine against In-batch, p by queries and seeds, Holm over the collections of a start."""
    told = {name: part["mined"] for name, part in parts.items() if "mined" in part}
    lines = []
    for (name, found), p in zip(told.items(), holm([found["p"] for found in told.values()]), strict=True):
        said = "cannot be told from in-batch ones here"
        if p < LEVEL:
            said = f"are {'better' if found['difference'] > 0 else 'worse'} than in-batch ones here"
        facts = f"{MEASURE} {found['difference']:+.3f} in the mean of {found['systems']} systems, p {p:.2g}"
        lines.append(wrapped(f"* {name}, start {start}: **mined negatives {said}** ({facts})."))
    return "".join(lines)


def tables(start, parts):
    """A table for each collection; Holm over all systems and collections of a start."""
    tested = [row for part in parts.values() for row in part["rows"] if "p" in row]
    corrected = iter(holm([row["p"] for row in tested]))
    for name, part in parts.items():
        rows = []
        for row in part["rows"]:
            p = [number(row["p"], ".2g"), number(next(corrected), ".2g")] if "p" in row else ["–", "–"]
            cells = [number(row.get("rate"), "g"), *(plus_minus(row[m], row[f"{m} sd"]) for m in (MEASURE, RECALL))]
            cells += [number(row.get("difference"), "+.3f"), *p, number(row.get("mining"), ",.0f")]
            rows.append([row["label"], *cells, number(row.get("training"), ",.0f"), number(row.get("encoded"), ",.0f")])
        yield markdown([f"{name}, {start}", *COLUMNS], rows)


def orderings(parts):
    """What of the papers' orderings holds; Holm over all that are tested for a start."""
    tested = [(name, part, row) for name, part in parts.items() for row in part["orderings"]]
    lines = []
    for (name, part, row), p in zip(tested, holm([row["p"] for *_, row in tested]), strict=True):
        labels = {each["row"]: each["label"] for each in part["rows"]}
        said = "cannot be told" if p >= LEVEL else "holds" if row["difference"] > 0 else "the other way round"
        ours = f"{labels[row['ours']]} above {labels[row['theirs']]}"
        lines.append([ours, row["paper"], name, number(row["difference"], "+.3f"), number(p, ".2g"), said])
    return markdown(["ordering", "paper", "collection", "difference", "p, Holm", "here"], lines) if lines else ""


def missing(data):
    """A sentence on the systems, collections and starts without results."""
    absent = [f"{c}, {s}" for s in STARTS for c in COLLECTIONS if not any(names_of(p) == (c, s) for p in data)]
    labels = plan_of(files(COLLECTIONS[0], "layers-2")).experiments
    lacks = [
        f"{names_of(name)[0]}: {', '.join(labels[system].label for system in part['missing'])}"
        for name, part in data.items()
        if part["missing"]
    ]
    return wrapped(f"Not run: {'; '.join([*lacks, *absent])}.") if absent or lacks else ""


def figure(data):
    """Quality against cost of what has an encoder, a panel for each part (Vega-Lite, dict); None without data."""
    import altair as alt

    from teleport.report.charts import CONFIG as STYLE

    rows = []
    for name, part in data.items():
        systems = [row for row in part["rows"] if row["row"] != "BM25"]
        places = label_places([(row.get("encoded", 0.0), row[MEASURE]) for row in systems])
        for row, place in zip(systems, places, strict=True):
            spread = row[f"{MEASURE} sd"] or 0
            rows.append(
                {"part": ", ".join(names_of(name)), "system": row["label"], "encoded": row.get("encoded", 0.0)}
                | {"mean": row[MEASURE], "low": row[MEASURE] - spread, "high": row[MEASURE] + spread, "label": place}
            )
    if not rows:
        return None
    x = alt.X("encoded:Q", title="Passages encoded for the mining")
    scale = alt.Scale(zero=False)
    y = alt.Y("mean:Q", title=f"{MEASURE}, mean ± deviation over seeds", scale=scale)
    base = alt.Chart(alt.Data(values=rows)).encode(x=x, y=y).properties(width=520, height=320)
    bars = base.mark_rule(opacity=0.4).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    names = base.mark_text(align="left", dx=6, fontSize=9).encode(y=alt.Y("label:Q", scale=scale), text="system:N")
    layers = base.mark_circle(size=45, opacity=1) + bars + names
    panels = layers.facet(alt.Facet("part:N", title=None), columns=2, spacing=PANEL_SPACING)
    return panels.resolve_scale(x="independent", y="independent").to_dict() | {"config": STYLE}


def label_places(points):
    """Where on the y axis the names of points (x, y) stand: at their points, but apart where several have one x."""
    apart = (max(y for _, y in points) - min(y for _, y in points)) / 25  # about a line of text
    places = [0.0] * len(points)
    for column in {x for x, _ in points}:
        last = -np.inf
        for point in sorted((n for n, (x, _) in enumerate(points) if x == column), key=lambda n: points[n][1]):
            places[point] = last = max(points[point][1], last + apart)
    return places
