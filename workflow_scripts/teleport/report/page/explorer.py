"""The explorer: training queries with their positives and, episode by episode, every negative that they were given."""

from collections import Counter

import numpy as np
from scipy.linalg import eigh

from teleport.report.page.forgetting import swing_sizes
from teleport.report.page.negatives import SUSPECT, products, source_name, vectors_of

GROUPS = ("gain", "loss", "swing", "random")
MAPPED = 48  # negatives on the map of a query, those in most pools first
MOST_NEGATIVES = 1_500_000  # that all files of the page may list together: fewer queries are shown where each has more


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
    """At most `number` queries ("all" is not cut), so few that their files stay within MOST_NEGATIVES."""
    if number == "all":
        return number
    pools = {e["pool"] for trajectory in trajectories for e in trajectory["episodes"] if reader.finished(e["pool"])}
    per_query = sum(reader.facts(pool)["negatives"] / max(1, len(reader.pool(pool).offsets) - 1) for pool in pools)
    return max(1, min(number, int(MOST_NEGATIVES / max(1.0, per_query))))


def write_explorer(reader, spec, traces, data, texts):
    """Write q/train-ROW.js of every query shown, for first seeds; returns the section's index, None without pools."""
    seeds = {each["name"]: each["seeds"][0] for each in spec["experiments"]}
    seeds = {n: seed for n, seed in seeds.items() if any(reader.finished(e["pool"]) for e in seed["episodes"])}
    if not seeds:
        return None
    values = {name: traces.training(seed) for name, seed in seeds.items()}
    compared = [scores_CQ for _, scores_CQ, _ in values.values() if len(scores_CQ)]
    groups = selected(traces.rows, compared, fitting(spec["queries"], reader, seeds.values()))
    queries, ids = (reader.queries("train", name) for name in ("text", "query_id"))
    index = {"queries": [], "experiments": [[e["name"], e["label"]] for e in spec["experiments"] if e["name"] in seeds]}
    index |= {"of": len(ids), "suspect": SUSPECT, "checkpoints": {name: values[name][0] for name in values}}
    for row in sorted(groups):
        positives = list(map(texts.number, reader.positives()[row]))
        content = {"id": ids[row].as_py(), "text": queries[row].as_py(), "positives": positives, "systems": {}}
        for name, seed in seeds.items():
            content["systems"][name] = query_content(reader, seed, row, spec["flags"], texts)
            if len(values[name][1]):
                trace_C = values[name][1][:, np.searchsorted(traces.rows, row)]
                content["systems"][name]["trace"] = np.round(trace_C, 4).tolist()
        data.put(f"q/train-{row}", content)
        index["queries"].append([row, content["id"], content["text"], groups[row]])
    return index


def query_content(reader, trajectory, row, flags, texts):
    """What one experiment gave one training query: {"episodes": [...], "map": {...}} (plain JSON)."""
    episodes, pools, before = [], [], None
    for number, stages in enumerate(trajectory["episodes"], 1):
        if not reader.finished(stages["pool"]):
            continue
        pool = reader.pool(stages["pool"])
        slots = slice(pool.offsets[row], pool.offsets[row + 1])
        lines, positive = listed(reader, stages, row, [np.asarray(field[slots]) for field in pool.items], flags)
        passages = pool.items.passages[slots].tolist()
        content = {"episode": number, "positive": positive, "negatives": []}
        for passage, line in zip(passages, lines, strict=True):
            state = None if before is None else ("kept" if passage in before else "new")
            content["negatives"].append([texts.number(passage), *line, state])
        gone = [texts.number(passage) for passage in dict.fromkeys(before or ()) if passage not in passages]
        episodes.append(content | {"gone": gone})
        pools.append((stages, passages))
        before = passages
    return {"episodes": episodes, "map": query_map(reader, pools, row, texts)}


def listed(reader, stages, row, items, flags):
    """([[source, first episode, rank then, score then, rank now, score now]], score of the first positive now).

    then: in the retrieval that found the passage; now: by the model that mined this episode, the rank among the query's
    own neighbours. None where there is no rank or score.
    """
    now, positives = ranks_now(reader, stages["query"], row), reader.positives(stages["positives"])[row]
    queries, vectors = vectors_of(reader, stages)
    scores_now, positive = [None] * len(items[0]), None
    if vectors is not None and len(items[0]):
        candidates = np.concatenate([items[0], positives[:1]])
        scores = [significant(score) for score in products(queries, np.full(len(candidates), row), vectors, candidates)]
        scores_now, positive = scores[: len(items[0])], scores[-1] if len(positives) else None
    columns = [*map(np.ndarray.tolist, items), scores_now]
    lines = [
        [source_name(source, flags), first, rank or None, significant(score), now.get(passage), score_now]
        for passage, source, first, rank, score, score_now in zip(*columns, strict=True)
    ]
    return lines, positive


def ranks_now(reader, name, row):
    """{passage: rank} of the neighbours of a training query in a retrieval; empty without one."""
    if not reader.finished(name):
        return {}
    run = reader.search(name)
    line = np.searchsorted(run.rows, row)
    found = run.ids[line].tolist() if row in run.rows[line : line + 1] else []
    return {passage: rank for rank, passage in enumerate(found, 1) if passage >= 0}


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
    times = Counter(passage for _, passages in pools for passage in dict.fromkeys(passages))
    positives = reader.positives()[row][:2].tolist()
    chosen = positives + [passage for passage, _ in times.most_common(MAPPED)]
    points = shared_map(np.array([np.vstack([queries[[row]], passages[chosen]]) for queries, passages in vectors]))
    points = np.round(points / max(1e-9, float(np.abs(points).max())), 3).tolist()
    return {"passages": list(map(texts.number, chosen)), "positives": len(positives), "points": points}


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
