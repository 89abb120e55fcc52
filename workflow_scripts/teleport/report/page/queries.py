"""Single queries: which are shown in full, the life of their negatives, and the top tens that systems give them."""

from collections import Counter
from itertools import chain

import numpy as np
from scipy.linalg import eigh

from teleport.report.page.drawings import Figure, shown
from teleport.report.page.forgetting import swing_sizes
from teleport.report.page.negatives import SUSPECT, products, sample, source_name, vectors_of
from teleport.report.verdicts import labels_of

TOP = 10
DRAWN = 4  # one in so many of the queries shown in full is drawn at random, the others differ most between systems
GROUPS = ("gain", "loss", "swing", "random")
MAPPED = 48  # negatives on the map of a query, those in most pools first
LEAST_SHOWN = 20  # training queries
MOST_DRAWN = 4  # experiments of which a query's page has charts; of more, it has tables alone
MOST_CELLS = 8_000  # of the tables of all training queries: fewer queries are shown where each has more


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


def compared_queries(scores_RQ, number, split):
    """The rows of the queries of a split whose top tens are shown (sorted): those that differ most, and some drawn.

    scores_RQ: the first measure of every system, NaN for queries without a score
    """
    judged = np.flatnonzero(~np.isnan(scores_RQ).any(axis=0))
    if number == "all" or len(judged) <= number:
        return judged
    spread = np.ptp(scores_RQ[:, judged], axis=0)
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
    tops = {row: {} for row in full.tolist()}
    for number, system in enumerate(rows):
        if split in system["runs"]:
            name = reader.input(system["runs"][split][0], "run")
            run, names = reader.search(name), reader.names(name)
            lines = {row: line for line, row in enumerate(run.rows.tolist())}
            for row in full.tolist():
                found = run.ids[lines[row], :TOP].tolist() if row in lines else []
                tops[row][number] = [names.get(passage, passage) for passage in found if passage >= 0]
    return tops


def ranking_table(tops):
    """[(passage, {system: rank})] of all that some system has in its top ten, those that most have first."""
    ranks = {}
    for system, passages in tops.items():
        for rank, passage in enumerate(passages, 1):
            ranks.setdefault(passage, {})[system] = rank
    weight = {passage: sum(1 / rank for rank in found.values()) for passage, found in ranks.items()}
    return sorted(ranks.items(), key=lambda each: (-weight[each[0]], str(each[0])))


def selected(rows, values, number):
    """The training queries that are shown in full: {row: [groups]}, drawn from `rows`, `number` ("all", or at most).

    values: per experiment the scores of `rows` at each of its checkpoints, float [C, Q]; a group has the queries with
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


def query_life(reader, trajectory, row, flags):
    """What one experiment gave one training query, episode by episode.

    {"episodes": [number], "positive": {episode: (rank, score)}, "lines": {passage: {episode: {source, first, then, now,
    score, suspect}}}, "pools": [(stages, passages)]}. then: the rank in the search that found the passage; now, score:
    by the model that mined the episode; None where there is none.
    """
    life = {"episodes": [], "positive": {}, "lines": {}, "pools": []}
    for number, stages in enumerate(trajectory["episodes"], 1):
        if not reader.finished(stages["pool"]):
            continue
        pool = reader.pool(stages["pool"])
        slots = slice(pool.offsets[row], pool.offsets[row + 1])
        items = [np.asarray(field[slots]).tolist() for field in pool.items]
        now, positives = ranks_now(reader, stages["query"], row), reader.positives(stages["positives"])[row].tolist()
        scores, positive = scores_now(reader, stages, row, items[0], positives[:1])
        ranks = [now[passage] for passage in positives if passage in now]
        life["episodes"].append(number)
        life["positive"][number] = min(ranks, default=None), positive
        for passage, source, first, rank, _, score in zip(*items, scores, strict=True):
            suspect = None not in (score, positive) and score >= positive - abs(positive) * (1 - SUSPECT)
            named = {"source": source_name(source, flags), "first": first, "then": rank or None, "score": score}
            named |= {"now": now.get(passage), "suspect": suspect}
            life["lines"].setdefault(passage, {}).setdefault(number, named)
        life["pools"].append((stages, items[0]))
    return life


def scores_now(reader, stages, row, passages, positives):
    """([score of each passage], score of the first positive) by the model that mined; None without vectors."""
    queries, vectors = vectors_of(reader, stages)
    if vectors is None or not passages:
        return [None] * len(passages), None
    candidates = np.array([*passages, *positives])
    scores = [float(f"{score:.5g}") for score in products(queries, np.full(len(candidates), row), vectors, candidates)]
    return scores[: len(passages)], scores[-1] if positives else None


def ranks_now(reader, name, row):
    """{passage: rank} of the neighbours of a training query in a retrieval; empty without one."""
    if not reader.finished(name):
        return {}
    run = reader.search(name)
    line = np.searchsorted(run.rows, row)
    found = run.ids[line].tolist() if row in run.rows[line : line + 1] else []
    return {passage: rank for rank, passage in enumerate(found, 1) if passage >= 0}


def life_figures(reader, life, row, name_of, address):
    """The life of a query's negatives, and its map: [Figure]; name_of, address: passage → its id, its place."""
    rows = [
        {"episode": number, "rank": line["now"] or line["then"], "what": part_of(line), "passage": name_of(passage)}
        | {"url": address(passage)}
        for passage, lines in life["lines"].items()
        for number, line in lines.items()
        if line["now"] or line["then"]
    ]
    for number, (rank, _) in life["positive"].items():
        if rank:
            rows.append({"episode": number, "rank": rank, "what": "positive", "passage": "the positive"})
    text = (
        "Each dot is a negative of an episode, at its rank by the model that mined the episode (where that has it no "
        "more: in the search that found it). The thick line is the positive: negatives above it outrank it."
    )
    return shown(Figure("life", rows, "The life of its negatives.", text), map_figure(reader, life, row, name_of))


def part_of(line):
    """The colour of a negative: its first source."""
    return line["source"].split(" + ")[0]


def map_figure(reader, life, row, name_of):
    """A query, its first positives and some negatives on one plane, an episode at a time; None for fewer than two."""
    vectors = [vectors_of(reader, stages) for stages, _ in life["pools"]]
    if len(vectors) < 2 or any(passages is None for _, passages in vectors):
        return None
    times = Counter({passage: len(lines) for passage, lines in life["lines"].items()})
    positives = reader.positives()[row][:2].tolist()
    chosen = positives + [passage for passage, _ in times.most_common(MAPPED)]
    points = shared_map(np.array([np.vstack([queries[[row]], passages[chosen]]) for queries, passages in vectors]))
    points = np.round(points / max(1e-9, float(np.abs(points).max())), 3).tolist()
    rows = []
    for number, places in zip(life["episodes"], points, strict=True):
        for at, (x, y) in reversed(list(enumerate(places))):
            what, shape, size, passage = "query itself", "query itself", 190, "the query"
            if at:
                passage, line = name_of(chosen[at - 1]), life["lines"].get(chosen[at - 1], {}).get(number)
                what, shape, size = part_of(line) if line else "another episode's", "negative", 55 if line else 30
            if 0 < at <= len(positives):
                what, shape, size = "positive", "positive", 150
            rows.append(
                {"episode": number, "x": x, "y": y, "what": what, "shape": shape, "size": size} | {"passage": passage}
            )
    text = (
        "Two principal components of the vectors of all episodes together, so that places compare; at most "
        f"{MAPPED} negatives, coloured by source where the episode has them."
    )
    first, last = life["episodes"][0], life["episodes"][-1]
    bind = {"input": "range", "min": first, "max": last, "step": 1, "name": "Episode "}
    return Figure("map", rows, "The neighbourhood.", text, "ANCE-Tele, Figure 6", {}, {"value": last, "bind": bind})


def shared_map(vectors_END):
    """float [E, N, 2]: where each of N texts lies under each of E checkpoints, on one plane (ANCE-Tele Figure 6).

    The plane is that of the largest variance of all E x N vectors together, their first two principal components; each
    axis points to where the vector of the first text under the first checkpoint has no negative coordinate, so that a
    page is the same whenever it is made.
    """
    flat = vectors_END.reshape(-1, vectors_END.shape[-1]).astype(np.float64)
    centred = flat - flat.mean(axis=0)
    small = len(centred) <= centred.shape[1]  # the smaller of the two products has the same first components
    product = centred @ centred.T if small else centred.T @ centred
    size = len(product)
    values, axes = eigh(product, subset_by_index=[max(0, size - 2), size - 1])
    points = axes * np.sqrt(np.maximum(values, 0)) if small else centred @ axes
    points = points[:, ::-1] * np.where(points[0, ::-1] < 0, -1.0, 1.0)
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1]))).reshape(*vectors_END.shape[:2], 2)
