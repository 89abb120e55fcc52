"""The explorer: training queries with their positives and, episode by episode, every negative that they were given."""

import numpy as np

from teleport.report.page.composition import source_names
from teleport.report.page.learned import swing_sizes
from teleport.report.page.negatives import SUSPECT, products, vectors_of
from teleport.report.page.shared_map import shared_map

GROUPS = ("gain", "loss", "swing", "random")
MAPPED = 48  # negatives on the map of a query, those in most pools first
MOST_NEGATIVES = 1_500_000  # that all files of the page may list together: fewer queries are shown where each has more


class Selection:
    """The training queries that are shown in full: {row: [groups]}, drawn from `rows`.

    values: per experiment the scores of `rows` at each of its checkpoints, float [C, Q]
    """

    def __init__(self, rows, values, number):
        self.groups, self.rows = {}, rows
        share = len(rows) if number == "all" else max(1, number // len(GROUPS))
        changes = [each[-1] - each[0] for each in values if len(each) > 1]
        swings = [swing_sizes(each) for each in values if len(each) > 2]
        if changes:
            self.add("gain", np.mean(changes, axis=0), share)
            self.add("loss", -np.mean(changes, axis=0), share)
        if swings:
            self.add("swing", np.mean(swings, axis=0), share)
        total = len(rows) if number == "all" else number
        for place in np.random.default_rng(0).permutation(len(rows)).tolist():
            if len(self.groups) >= total:
                break
            self.groups.setdefault(int(rows[place]), []).append("random")

    def add(self, group, values, number):
        """The queries with the largest positive values, at most `number`."""
        for place in np.argsort(-values, kind="stable")[:number].tolist():
            if values[place] > 0:
                self.groups.setdefault(int(self.rows[place]), []).append(group)


def explored_experiments(reader, spec):
    """[(name, label, trajectory)] of the experiments with finished pools, under their first seed."""
    found = [(each["name"], each["label"], each["seeds"][0]) for each in spec["experiments"]]
    return [each for each in found if any(reader.finished(episode["pool"]) for episode in each[2]["episodes"])]


def fitting(number, reader, experiments):
    """At most `number` queries ("all" is not cut), so few that their files stay within MOST_NEGATIVES."""
    if number == "all":
        return number
    pools = {e["pool"] for _, _, t in experiments for e in t["episodes"] if reader.finished(e["pool"])}
    per_query = sum(reader.facts(pool)["negatives"] / max(1, len(reader.pool(pool).offsets) - 1) for pool in pools)
    return max(1, min(number, int(MOST_NEGATIVES / max(1.0, per_query))))


def write_explorer(reader, spec, traces, data, texts):
    """Write q/train-ROW.js of every query that is shown; returns the index of the section, None without negatives."""
    experiments = explored_experiments(reader, spec)
    if not experiments:
        return None
    values = {name: traces.training(trajectory) for name, _, trajectory in experiments}
    compared = [each for _, each, _ in values.values() if len(each)]
    number = fitting(spec["queries"], reader, experiments)
    selection = Selection(traces.rows, compared, number)
    queries, ids = (reader.column("queries.train.parquet", name) for name in ("text", "query_id"))
    places = {int(row): place for place, row in enumerate(traces.rows)}
    index = {"queries": [], "experiments": [[name, label] for name, label, _ in experiments]}
    index |= {"of": len(ids), "suspect": SUSPECT, "checkpoints": {name: values[name][0] for name in values}}
    for row in sorted(selection.groups):
        content = {"id": ids[row].as_py(), "text": queries[row].as_py(), "systems": {}}
        content["positives"] = [texts.number(passage) for passage in reader.positives()[row]]
        for name, _, trajectory in experiments:
            content["systems"][name] = query_content(reader, trajectory, row, spec["flags"], texts)
            if len(values[name][1]):
                content["systems"][name]["trace"] = np.round(values[name][1][:, places[row]], 4).tolist()
        data.put(f"q/train-{row}", content)
        index["queries"].append([row, content["id"], content["text"], selection.groups[row]])
    return index


def query_content(reader, trajectory, row, flags, texts):
    """What one experiment gave one training query: {"episodes": [...], "map": {...}} (plain JSON)."""
    episodes, pools, before = [], [], None
    for number, stages in enumerate(trajectory["episodes"], 1):
        if not reader.finished(stages["pool"]):
            continue
        pool = reader.pool(stages["pool"])
        part = slice(pool.offsets[row], pool.offsets[row + 1])
        passages = np.asarray(pool.items.passages[part])
        lines, positive = listed(reader, stages, row, [np.asarray(field[part]) for field in pool.items], flags)
        said = {"episode": number, "stage": stages["pool"], "positive": positive, "negatives": []}
        for passage, line in zip(passages.tolist(), lines, strict=True):
            state = None if before is None else ("kept" if passage in before else "new")
            said["negatives"].append([texts.number(passage), *line, state])
        left = [] if before is None else [p for p in dict.fromkeys(before) if p not in set(passages.tolist())]
        said["gone"] = [texts.number(passage) for passage in left]
        episodes.append(said)
        before = passages.tolist()
        pools.append((stages, passages))
    return {"episodes": episodes, "map": query_map(reader, pools, row, texts)}


def listed(reader, stages, row, items, flags):
    """([[source, first episode, rank then, score then, rank now, score now]], score of the first positive now).

    then: in the retrieval that found the passage; now: by the model that mined this episode, the rank among the query's
    own neighbours. None where there is no rank or score.
    """
    passages, sources, firsts, ranks, scores = items
    names = source_names(sources, flags)
    now = ranks_now(reader, stages["query"], row)
    positives = reader.positives(stages["positives"])[row]
    queries, vectors = vectors_of(reader, stages)
    products_now, positive = [None] * len(passages), None
    if vectors is not None and len(passages):
        rows = np.full(len(passages), row)
        products_now = [significant(value) for value in products(queries, rows, vectors, passages)]
        if len(positives):
            positive = significant(products(queries, np.array([row]), vectors, np.asarray(positives[:1]))[0])
    lines = [
        [name, int(first), int(rank) or None, significant(score), now.get(passage), product]
        for name, first, rank, score, passage, product in zip(
            names, firsts, ranks, scores, passages.tolist(), products_now, strict=True
        )
    ]
    return lines, positive


def ranks_now(reader, name, row):
    """{passage: rank} of the neighbours of a training query in a retrieval; empty without one."""
    if not reader.finished(name):
        return {}
    run = reader.search(name)
    line = np.searchsorted(run.rows, row)
    if line == len(run.rows) or run.rows[line] != row:
        return {}
    return {passage: rank for rank, passage in enumerate(run.ids[line].tolist(), 1) if passage >= 0}


def significant(value):
    """Five significant digits (float), None for what is not a number."""
    return None if np.isnan(value) else float(f"{value:.5g}")


def query_map(reader, pools, row, texts):
    """The query, its first positives and some negatives on one plane for all episodes; None for fewer than two.

    {"passages": [page numbers, positives first], "positives": how many, "points": [[[x, y] of the query, then of each
    passage] per episode]}
    """
    vectors = [vectors_of(reader, stages) for stages, _ in pools]
    if len(pools) < 2 or any(passages is None for _, passages in vectors):
        return None
    times = {}
    for _, passages in pools:
        for passage in dict.fromkeys(passages.tolist()):
            times[passage] = times.get(passage, 0) + 1
    positives = reader.positives()[row][:2].tolist()
    chosen = positives + sorted(times, key=lambda passage: -times[passage])[:MAPPED]
    stacked = [
        np.vstack([np.asarray(queries[row : row + 1], np.float32), np.asarray(texts_PD[chosen], np.float32)])
        for queries, texts_PD in vectors
    ]
    points = shared_map(np.array(stacked))
    scale = max(1e-9, float(np.abs(points).max()))
    numbers = [texts.number(passage) for passage in chosen]
    return {"passages": numbers, "positives": len(positives), "points": np.round(points / scale, 3).tolist()}
