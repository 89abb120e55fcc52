"""A page of a single query: its top tens, the life of its negatives; and what opens the queries without such a page."""

from collections import Counter

import numpy as np
import pandas as pd

from teleport.report.charts import Figure, shown
from teleport.report.maps import map_rows, places
from teleport.report.page.negatives import SUSPECT, finished_pools, first_source, flat, source_name
from teleport.report.page.queries import TOP

MAPPED = 48  # negatives on the map of a query, those in most pools first
MOST_DRAWN = 4  # experiments of which a query's page has charts; of more, it has tables alone
MOST_CHARACTERS = 1_000_000  # of the ids of passages that open the queries of a split which have no page of their own
ID_CHARACTERS = 9  # of an id and the space behind it, as in MS MARCO


def ranking_table(tops):
    """[(passage, {system: rank})] of all that some system has in its top ten, those that most have first."""
    ranks = {}
    for system, passages in tops.items():
        for rank, passage in enumerate(passages, 1):
            ranks.setdefault(passage, {})[system] = rank
    weight = {passage: sum(1 / rank for rank in found.values()) for passage, found in ranks.items()}
    return sorted(ranks.items(), key=lambda each: (-weight[each[0]], str(each[0])))


def light(reader, rows, full, positives, lists, sources=None):
    """What opens the queries `rows` that are not in `full`: passages by their ids, without texts (plain JSON).

    {columns, most, queries: {row: a text of ids per column}, sources: {row: a text of digits per column}}. lists:
    {column: {row: [passages, best first]}}, of which at most `most` stay, for MOST_CHARACTERS in all; the first column
    has the positives. sources: {column: {row: a digit per passage, the place of its source among all}} where passages
    have one.
    """
    others = sorted({*rows}.difference(full))
    most = max(1, min(TOP, MOST_CHARACTERS // max(1, ID_CHARACTERS * len(others) * len(lists))))
    cut = {row: [positives[row][:TOP].tolist(), *(of[row][:most] for of in lists.values())] for row in others}
    passages = {passage for columns in cut.values() for column in columns for passage in column}
    ids = reader.doc_ids({passage for passage in passages if not isinstance(passage, str)})
    texts = {row: [" ".join(ids.get(each, each) for each in column) for column in cut[row]] for row in others}
    digits = {row: ["", *(sources[column][row][:most] for column in lists)] for row in others} if sources else {}
    return {"columns": ["Positives", *lists], "most": most, "queries": texts, "sources": digits}


def mined_lists(reader, seeds, rows, names):
    """{"SYSTEM, episode N": {row: [its negatives, by their rank]}} of all finished pools, and their sources, as `light`
    takes them, each the first of its negative by its place in `names`; seeds: {label: seed}."""
    lists, sources, places = {}, {}, {name: str(at) for at, name in enumerate(names)}
    for label, seed in seeds.items():
        for number, stages in finished_pools(reader, seed).items():
            pool = reader.pool(stages["pool"])
            fields = flat(pool, np.array(rows), "passages", "ranks", "sources")
            frame = pd.DataFrame(dict(zip(("query", "passage", "rank", "source"), fields, strict=True)))
            frame["rank"] = frame["rank"].replace(0, np.inf)  # what no search found is last
            digits = {each: places[first_source(each, pool.bits)] for each in frame["source"].unique().tolist()}
            frame["source"] = frame["source"].map(digits)
            by_rank = frame.sort_values(["query", "rank"], kind="stable").drop_duplicates(["query", "passage"])
            column, of = f"{label}, episode {number}", by_rank.groupby("query")
            lists[column] = dict.fromkeys(rows, []) | of["passage"].agg(list).to_dict()
            sources[column] = dict.fromkeys(rows, "") | of["source"].agg("".join).to_dict()
    return lists, sources


def query_life(reader, trajectory, row):
    """What one experiment gave one training query, episode by episode.

    {pools: {episode: stages}, positive: {episode: (rank, score)}, lines: {passage: {episode: {source, what, then, now,
    score, suspect}}}}. what: its first source; then: the rank in the search that found the passage; now, score: by the
    model that mined the episode; None where there is none.
    """
    life = {"pools": finished_pools(reader, trajectory), "positive": {}, "lines": {}}
    for number, stages in life["pools"].items():
        pool = reader.pool(stages["pool"])
        fields = flat(pool, np.array([row]), "passages", "sources", "ranks")
        passages, sources, ranks = (field.tolist() for field in fields[1:])
        now = {passage: rank for rank, passage in enumerate(reader.found(stages["query"], row), 1)}
        positives = reader.positives(stages["positives"])[row].tolist()
        scores, positive = scores_now(reader, stages, row, passages, positives[:1])
        life["positive"][number] = min((now[known] for known in positives if known in now), default=None), positive
        for passage, source, rank, score in zip(passages, sources, ranks, scores, strict=True):
            suspect = None not in (score, positive) and score >= positive - abs(positive) * (1 - SUSPECT)
            line = {"source": source_name(source, pool.bits), "what": first_source(source, pool.bits)}
            line |= {"then": rank or None}
            line |= {"now": now.get(passage), "score": score, "suspect": suspect}
            life["lines"].setdefault(passage, {}).setdefault(number, line)
    return life


def scores_now(reader, stages, row, passages, positives):
    """([score of each passage], score of the first positive) by the model that mined; None without vectors."""
    scorer = reader.scorer(stages["queries"], stages["passages"])
    if scorer is None or not passages:
        return [None] * len(passages), None
    scores = [float(f"{score:.5g}") for score in scorer.score(row, np.array([*passages, *positives]))]
    return scores[: len(passages)], scores[-1] if positives else None


def life_figures(reader, life, row, named):
    """The life of a query's negatives, and its map: [Figure]; named: {passage: (its id, its place on the page)}."""
    rows = []
    for passage, lines in life["lines"].items():
        name, url = named[passage]
        for number, line in lines.items():
            said = {"episode": number, "rank": line["now"] or line["then"], "what": line["what"]}
            rows.append(said | {"passage": name, "url": url})
    for number, (rank, _) in life["positive"].items():
        rows.append({"episode": number, "rank": rank, "what": "positive", "passage": "the positive"})
    rows = [each for each in rows if each["rank"]]
    text = (
        "Each dot is a negative of an episode, at its rank by the model that mined the episode (where that has it no "
        "more: in the search that found it). The thick line is the positive: negatives above it outrank it."
    )
    return shown(Figure("life", rows, "The life of its negatives.", text), map_figure(reader, life, row, named))


def map_figure(reader, life, row, named):
    """A query, its first positives and some negatives on one plane, an episode at a time; None for fewer than two."""
    scorers = [reader.scorer(stages["queries"], stages["passages"]) for stages in life["pools"].values()]
    if len(scorers) < 2 or None in scorers:
        return None
    times = Counter({passage: len(lines) for passage, lines in life["lines"].items()})
    positives = reader.positives()[row][:2].tolist()
    chosen = positives + [passage for passage, _ in times.most_common(MAPPED)]
    rows, elsewhere = [], {"what": "another episode's"}
    for number, points in zip(life["pools"], places(scorers, row, chosen), strict=True):
        what = ["positive"] * len(positives)
        what += [life["lines"][passage].get(number, elsewhere)["what"] for passage in chosen[len(positives) :]]
        names = [named[passage][0] for passage in chosen]
        texts = [("query itself", "the query"), *zip(what, names, strict=True)]
        rows += [{"episode": number} | each for each in map_rows(points, texts, len(positives))]
    text = (
        "Two principal components of the vectors of all episodes together, so that places compare; at most "
        f"{MAPPED} negatives, coloured by source where the episode has them."
    )
    bind = {"input": "range", "min": min(life["pools"]), "max": max(life["pools"]), "step": 1, "name": "Episode "}
    episode = {"value": max(life["pools"]), "bind": bind}
    return Figure("map", rows[::-1], "The neighbourhood.", text, "ANCE-Tele, Figure 6", changes=episode)
