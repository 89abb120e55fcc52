"""Single queries: which have a page, their scores, the top tens that systems give them, the life of their negatives."""

from collections import Counter
from itertools import chain

import numpy as np

from teleport.arrays import Run
from teleport.evaluation.evaluate import own_texts, without_own_text
from teleport.evaluation.names import Documents
from teleport.report.charts import Figure, shown
from teleport.report.page.forgetting import swing_sizes
from teleport.report.page.maps import map_rows, places
from teleport.report.page.negatives import SUSPECT, finished_pools, flat, sample, source_name

TOP = 10
DRAWN = 4  # every fourth query shown in full is drawn at random; the others differ most between systems
LEAST_SHOWN = 10  # training queries
MOST_CELLS = 4_000  # of the tables of all training queries: fewer queries are shown where each has more
MAPPED = 48  # negatives on the map of a query, those in most pools first
MOST_DRAWN = 4  # experiments with charts on a query's page; if there are more, it has only tables


def compared_rows(tables):
    """The rows of all tables (as `page_table` gives them), each once; if two have the same label, the second adds the
    title of its table. Every row of a table gets its `number` among them."""
    rows, taken = {}, set()
    for title, row in ((table["title"], row) for table in tables for row in table["rows"]):
        evaluations = tuple(chain(*row["runs"].values()))  # identify a system, whose name differs between tables
        if evaluations not in rows:
            label = f"{row['label']} ({title})" if row["label"] in taken else row["label"]
            rows[evaluations] = row | {"label": label, "number": len(rows)}
            taken.add(label)
        row["number"] = rows[evaluations]["number"]
    return list(rows.values())


def compared_queries(rows, scores, number, split):
    """Return the queries of a split whose top tens are shown (sorted): those that differ most, and some drawn.

    scores: of `rows` by the first measure, float [systems, queries]
    """
    if number == "all" or len(rows) <= number:
        return rows
    far = rows[np.argsort(-np.ptp(scores, axis=0), kind="stable")[: number - number // DRAWN]]  # NaN comes last
    others = np.setdiff1d(rows, far)
    return np.union1d(far, others[sample(len(others), number // DRAWN, f"compared {split}")])


def split_contents(reader, spec, rows):
    """{split: {systems, rows, scores: {measure: float [systems, rows]}, full}} of the splits that some system has.

    rows: as `compared_rows` gives. In the result, systems: numbers of those with the split; rows: of the queries that
    all of them have some measure of; scores: NaN without one, as a question without judgments has coverage alone; full:
    those of these that are shown in full
    """
    contents = {}
    for split in spec["splits"]:
        systems = [number for number, row in enumerate(rows) if split in row["runs"]]
        if systems:
            by_seed = [[reader.scores(name, split) for name in rows[number]["runs"][split]] for number in systems]
            scores = {  # means over seeds, NaN without a score
                name: np.array([np.mean([seed[name] for seed in seeds], axis=0) for seeds in by_seed])
                for name in spec["measures"][split]
            }
            judged = np.flatnonzero(np.any([~np.isnan(values).any(axis=0) for values in scores.values()], axis=0))
            first = next(iter(scores.values()))[:, judged]
            full = compared_queries(judged, first, spec["queries"], split).tolist()
            scores = {name: values[:, judged] for name, values in scores.items()}
            contents[split] = {"systems": systems, "rows": judged.tolist(), "scores": scores, "full": full}
    return contents


def tops_of(reader, evaluation, rows):
    """{query row: [passages, best first]} of the list that an evaluate stage has scored: without the query's own text,
    and a document as its first passage."""
    search, settings = reader.input(evaluation, "run"), reader.artefact(evaluation).manifest["settings"]
    names = reader.names(search)
    if not (settings.get("ignore_own_text") or settings.get("collapse")):
        return {row: [names.get(passage, passage) for passage in reader.retrieved(search, row)[:TOP]] for row in rows}
    run, doc_ids = reader.search(search), reader.all_doc_ids(search)
    of = np.isin(run.rows, rows)
    run = Run(*(np.asarray(each[of]) for each in run))
    documents = Documents(doc_ids, settings["separator"]) if settings["collapse"] else None
    if settings.get("ignore_own_text"):  # left out of the manifest if it is false
        same, query_ids = reader.same_texts(settings["split"]), reader.queries(settings["split"], "query_id")
        run = without_own_text(run, own_texts(same, query_ids, doc_ids, documents))
    ids_QK = run.ids
    if documents:
        ids_QK, _ = documents.collapse(ids_QK, run.scores, settings["collapse"])
        ids_QK = np.where(ids_QK >= 0, np.flatnonzero(documents.first_P)[ids_QK], -1)
    tops = {row: ids[ids >= 0][:TOP].tolist() for row, ids in zip(run.rows.tolist(), ids_QK, strict=True)}
    return {row: [names.get(passage, passage) for passage in tops.get(row, ())] for row in rows}


def selected(rows, values, number):
    """The training queries that are shown in full, some of `rows`: at most `number`, or "all" (sorted list).

    values: per experiment the scores of `rows` at each of its checkpoints, float [E, Q]. A quarter each are those with
    the largest gains, losses and swings, the others are drawn at random.
    """
    if number == "all":
        return rows.tolist()
    changes = [each[-1] - each[0] for each in values if len(each) > 1]
    swings, chosen = [swing_sizes(each) for each in values if len(each) > 2], set()
    for sizes, sign in ((changes, 1), (changes, -1), (swings, 1)):
        means = sign * np.mean(sizes, axis=0) if sizes else np.zeros(0)
        largest = np.argsort(-means, kind="stable")[: max(1, number // 4)]
        chosen.update(rows[largest[means[largest] > 0]].tolist())
    drawn = np.random.default_rng(0).permutation(rows).tolist()
    left = [row for row in drawn if row not in chosen][: max(0, number - len(chosen))]
    return sorted(chosen.union(left))


def fitting(number, reader, trajectories):
    """Return how many queries are shown: at most `number` ("all" is not cut), and so few that their tables stay within
    MOST_CELLS, but at least LEAST_SHOWN."""
    if number == "all":
        return number
    episodes = chain.from_iterable(finished_pools(reader, trajectory).values() for trajectory in trajectories)
    pools = [each["pool"] for each in episodes]
    per_query = sum(reader.facts(pool)["negatives"] / max(1, len(reader.pool(pool).offsets) - 1) for pool in pools)
    return min(number, max(LEAST_SHOWN, int(MOST_CELLS / max(1.0, per_query))))


def ranking_table(tops):
    """[(passage, {system: rank})] of the passages in any system's top ten, those in most of them first."""
    ranks = {}
    for system, passages in tops.items():
        for rank, passage in enumerate(passages, 1):
            ranks.setdefault(passage, {})[system] = rank
    weight = {passage: sum(1 / rank for rank in by_system.values()) for passage, by_system in ranks.items()}
    return sorted(ranks.items(), key=lambda each: (-weight[each[0]], str(each[0])))


def query_life(reader, trajectory, row):
    """Return the negatives and positives of one training query in one experiment, episode by episode.

    {pools: {episode: stages}, searched: [episodes whose search has the query], positives: of the last of them (or the
    judged ones), positive: {episode: (rank, score)},
    lines: {passage: {episode: {source, what, then, now, score, suspect}}}}. what: its first source; then: the rank in
    the search that retrieved the passage; now, score: by the model that mined the episode; None where there is none.
    """
    life = {"pools": finished_pools(reader, trajectory), "searched": [], "positive": {}, "lines": {}}
    life["positives"] = reader.positives()[row].tolist()
    for number, stages in life["pools"].items():
        pool = reader.pool(stages["pool"])
        fields = flat(pool, np.array([row]), "passages", "sources", "ranks")
        passages, sources, ranks = (field.tolist() for field in fields[1:])
        now = {passage: rank for rank, passage in enumerate(reader.retrieved(stages["query"], row), 1)}
        life["searched"] += [number] if now else []
        life["positives"] = positives = reader.positives(stages["positives"])[row].tolist()
        scores, positive = scores_now(reader, stages, row, passages, positives[:1])
        life["positive"][number] = min((now[known] for known in positives if known in now), default=None), positive
        for passage, source, rank, score in zip(passages, sources, ranks, scores, strict=True):
            suspect = None not in (score, positive) and score >= positive - abs(positive) * (1 - SUSPECT)
            name = source_name(source, pool.bits)
            line = {"source": name, "what": name.partition(" + ")[0], "then": rank or None}
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
            point = {"episode": number, "rank": line["now"] or line["then"], "what": line["what"]}
            rows.append(point | {"passage": name, "url": url})
    for number, (rank, _) in life["positive"].items():
        rows.append({"episode": number, "rank": rank, "what": "positive", "passage": "the positive"})
    rows = [each for each in rows if each["rank"]]
    text = (
        "Each dot is a negative of an episode, at its rank by the model that mined the episode (or, if that no longer "
        "ranks it, in the search that retrieved it). The thick line is the positive: negatives above it outrank it."
    )
    return shown(Figure("life", rows, "Its negatives by episode.", text), map_figure(reader, life, row, named))


def mapped_positives(life):
    """The first positives of a `query_life`, which its map shows."""
    return life["positives"][:2]


def map_figure(reader, life, row, named):
    """A query, its first positives and some negatives on one plane, an episode at a time; None for fewer than two."""
    scorers = [reader.scorer(stages["queries"], stages["passages"]) for stages in life["pools"].values()]
    if len(scorers) < 2 or None in scorers:
        return None
    times = Counter({passage: len(lines) for passage, lines in life["lines"].items()})
    positives = mapped_positives(life)
    chosen = positives + [passage for passage, _ in times.most_common(MAPPED)]
    rows, elsewhere = [], {"what": "another episode's"}
    for number, points in zip(life["pools"], places(scorers, row, chosen), strict=True):
        what = ["positive"] * len(positives)
        what += [life["lines"][passage].get(number, elsewhere)["what"] for passage in chosen[len(positives) :]]
        names = [named[passage][0] for passage in chosen]
        texts = [("query itself", "the query"), *zip(what, names, strict=True)]
        rows += [{"episode": number} | each for each in map_rows(points, texts, len(positives))]
    text = (
        "Two principal components of the vectors of all episodes together, so that positions are comparable; at most "
        f"{MAPPED} negatives, coloured by source if the episode uses them."
    )
    bind = {"input": "range", "min": min(life["pools"]), "max": max(life["pools"]), "step": 1, "name": "Episode "}
    episode = {"value": max(life["pools"]), "bind": bind}
    return Figure("map", rows[::-1], "The neighbourhood.", text, "ANCE-Tele, Figure 6", changes=episode)
