"""Single queries: which are shown in full, their scores, and the top tens that systems give them."""

from itertools import chain

import numpy as np

from teleport.report.page.forgetting import swing_sizes
from teleport.report.page.negatives import sample
from teleport.report.verdicts import labels_of

TOP = 10
DRAWN = 4  # one in so many of the queries shown in full is drawn at random, the others differ most between systems
GROUPS = ("gain", "loss", "swing", "random")
LEAST_SHOWN = 20  # training queries
MOST_CELLS = 6_000  # of the tables of all training queries: fewer queries are shown where each has more


def compared_rows(reader, spec):
    """The finished rows of all tables, each once: [{label, runs: {split: [evaluate stages]}}]."""
    rows = {}
    for table in spec["tables"]:
        for row, label in zip(table["rows"], labels_of(table["rows"]), strict=True):
            names = tuple(chain(*row["runs"].values()))
            if all(map(reader.finished, names)):
                rows.setdefault(names, {"label": label, "runs": row["runs"]})
    return list(rows.values())


def mean_scores(reader, names, split):
    """{measure: float64 [queries of the split]}, means over evaluate stages (seeds), NaN without a score."""
    by_seed = [reader.scores(name, split) for name in names]
    return {measure: np.mean([scores[measure] for scores in by_seed], axis=0) for measure in by_seed[0]}


def compared_queries(scores, number, split):
    """The rows of the queries of a split whose top tens are shown (sorted): those that differ most, and some drawn.

    scores: the first measure, float [systems, queries], NaN for queries without a score
    """
    judged = np.flatnonzero(~np.isnan(scores).any(axis=0))
    if number == "all" or len(judged) <= number:
        return judged
    spread = np.ptp(scores[:, judged], axis=0)
    far = judged[np.argsort(-spread, kind="stable")[: number - number // DRAWN]]
    others = np.setdiff1d(judged, far)
    return np.union1d(far, others[sample(len(others), number // DRAWN, f"compared {split}")])


def split_content(reader, spec, split, rows):
    """{systems, measures, scores: {measure: [[per system] per query]}, rows, full} of a split; None without a system.

    rows: as `compared_rows` gives; systems: numbers of those with the split; full: rows of the queries in full
    """
    systems = [number for number, row in enumerate(rows) if split in row["runs"]]
    if not systems:
        return None
    scores = [mean_scores(reader, rows[number]["runs"][split], split) for number in systems]
    measures = [name for name in spec["measures"][split] if all(name in of_system for of_system in scores)]
    firsts = np.array([of_system[measures[0]] for of_system in scores])
    judged = np.flatnonzero(~np.isnan(firsts).any(axis=0))
    by_measure = {name: np.array([of_system[name][judged] for of_system in scores]) for name in measures}
    full = compared_queries(firsts, spec["queries"], split)
    return {"systems": systems, "measures": measures, "scores": by_measure, "rows": judged, "full": full}


def tops_of(reader, rows, split, full):
    """{query row: {number of a system: [passages, best first]}} of the first seeds' searches."""
    tops = {row: {} for row in full}
    for number, system in enumerate(rows):
        if split in system["runs"]:
            name = reader.input(system["runs"][split][0], "run")
            names = reader.names(name)
            for row in full:
                tops[row][number] = [names.get(passage, passage) for passage in reader.found(name, row)[:TOP]]
    return tops


def selected(rows, values, number):
    """The training queries that are shown in full: {row: [groups]}, drawn from `rows`, `number` ("all", or at most).

    values: per experiment the scores of `rows` at each of its checkpoints, float [E, Q]; a group has the queries with
    the largest positive gains, losses or swings
    """
    changes = [each[-1] - each[0] for each in values if len(each) > 1]
    swings = [swing_sizes(each) for each in values if len(each) > 2]
    total = len(rows) if number == "all" else number
    share, groups = total if number == "all" else max(1, number // len(GROUPS)), {}
    for group, sizes, sign in (("gain", changes, 1), ("loss", changes, -1), ("swing", swings, 1)):
        means = sign * np.mean(sizes, axis=0) if sizes else np.zeros(0)
        for first in np.argsort(-means, kind="stable")[:share].tolist():
            if means[first] > 0:
                groups.setdefault(int(rows[first]), []).append(group)
    for drawn in np.random.default_rng(0).permutation(len(rows)).tolist():
        if len(groups) >= total:
            break
        groups.setdefault(int(rows[drawn]), []).append("random")
    return groups


def fitting(number, reader, trajectories):
    """At most `number` queries ("all" is not cut), LEAST_SHOWN or so few that their tables stay within MOST_CELLS."""
    if number == "all":
        return number
    pools = [e["pool"] for trajectory in trajectories for e in trajectory["episodes"] if reader.finished(e["pool"])]
    per_query = sum(reader.facts(pool)["negatives"] / max(1, len(reader.pool(pool).offsets) - 1) for pool in pools)
    return min(number, max(LEAST_SHOWN, int(MOST_CELLS / max(1.0, per_query))))


def with_pools(reader, spec):
    """{name: first seed} of the experiments with a finished pool."""
    seeds = {each["name"]: each["seeds"][0] for each in spec["experiments"]}
    return {n: seed for n, seed in seeds.items() if any(reader.finished(e["pool"]) for e in seed["episodes"])}
