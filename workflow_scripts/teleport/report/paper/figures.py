"""The kinds of `figures`: maps, sorted scores, curves, bars of a published table, histograms of errors, and tables of
single queries. Each is a function (reader, name, figure) → {suffix of the file: its content}."""

from itertools import accumulate

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from teleport.analyses.contrast import SAME
from teleport.reader import lines_of_ids
from teleport.refusal import Refusal
from teleport.report.analyses import errors_text
from teleport.report.charts import Figure
from teleport.report.page.curves import NAMED, column_points, training_curves
from teleport.report.page.maps import map_rows, places
from teleport.report.page.negatives import sample
from teleport.report.published import read_published
from teleport.report.published_table import make_lines
from teleport.report.render import NONE, Printed, shortened
from teleport.report.verdicts import PRINTED
from teleport.settings.measures import better

BLOCK = 2**16  # passages whose vectors are summed at a time
SNIPPET = 90  # characters of a title, or of a text without one


def rows_of(reader, figure, name, pools=()):
    """The rows of the queries of a figure (int64): those with its ids, or as many as it sets, drawn at random.

    pools: merge stages that must all have negatives of a query that is drawn
    """
    split, wanted = figure["split"], figure["queries"]
    ids = reader.queries(split, "query_id")
    if not isinstance(wanted, list):
        with_negatives = [np.diff(reader.pool(pool).offsets) > 0 for pool in pools]
        rows = np.flatnonzero(np.logical_and.reduce([np.ones(len(ids), bool), *with_negatives]))
        return rows[sample(len(rows), wanted, f"figure {name}")]
    rows = pc.index_in(pa.array(wanted), value_set=ids.cast(pa.string()))
    if rows.null_count:
        missing = wanted[rows.is_null().index(True).as_py()]
        raise Refusal(f"figures.{name}.queries: the split {split!r} has no query {missing!r}.")
    return rows.to_numpy()


def passages_of(reader, stage, row, number):
    """Return at most `number` passages (list of rows) of a query: the first of a search, or those of a pool."""
    if stage.startswith("merge/"):
        pool = reader.pool(stage)
        passages = np.asarray(pool.items.passages[pool.offsets[row] : pool.offsets[row + 1]]).tolist()
    else:
        passages = reader.retrieved(stage, row)
    known = reader.facts(reader.corpus)["num_passages"]
    return [each for each in dict.fromkeys(passages) if each < known][:number]


def maps(reader, name, figure):
    """{suffix: Figure}: a map for each query and plane; the maps of a query share their axes, so that positions
    compare."""
    planes, shown, split = figure["behind"]["planes"], figure["behind"]["shown"], figure["split"]
    scorers = [reader.scorer(*stages, split) for _, *stages in planes]
    if None in scorers or not all(reader.finished(stage) for _, stage in shown):
        return {}
    ids, texts = (reader.queries(split, column) for column in ("query_id", "text"))
    positives, figures = reader.positives(split=split), {}
    pools = [stage for _, stage in shown if stage.startswith("merge/")]
    for row in rows_of(reader, figure, name, pools).tolist():
        parts = dict.fromkeys(positives[row].tolist(), "relevant")
        for label, stage in shown:
            for passage in passages_of(reader, stage, row, figure["passages"]):
                before = parts.get(passage)
                parts[passage] = before if before == "relevant" else f"{before} and {label}" if before else label
        chosen, query_id = list(parts), ids[row].as_py()
        on_planes = places(scorers, row, chosen)
        doc_ids = {passage: doc_id for passage, (doc_id,) in reader.passages(set(chosen), ["doc_id"]).items()}
        named = [("query", "the query"), *((parts[passage], doc_ids[passage]) for passage in chosen)]
        relevant = sum(part == "relevant" for part in parts.values())  # the first ones
        for (label, *_), points in zip(planes, on_planes, strict=True):
            text = f"Under {label}: {texts[row].as_py()}. Principal components of the vectors of all maps of the query."
            rows = map_rows(points, named, relevant)
            figures[f"{query_id}-{label}"] = Figure("plane", rows, f"Query {query_id}.", text)
    return figures


def scores(reader, name, figure):
    """{suffix: Figure}: a chart for each system."""
    figures, rows, split = {}, rows_of(reader, figure, name), figure["split"]
    ids = reader.queries(split, "query_id")
    for label, search, *stages in figure["behind"]:
        scorer = reader.scorer(*stages, split) if reader.finished(search) else None
        if scorer is None:
            continue
        run, mean, lines = reader.search(search), mean_of(scorer.vectors), []
        for row in rows.tolist():
            top_scores = np.asarray(run.scores[np.flatnonzero(run.rows == row)], np.float64).ravel()[: figure["depth"]]
            less = top_scores[np.isfinite(top_scores)] - np.asarray(scorer.queries[row], np.float64) @ mean
            lines += [
                {"query": ids[row].as_py(), "rank": n, "score": score} for n, score in enumerate(less.tolist(), 1)
            ]
        text = f"{label}: {len(rows)} queries of {split}, a line each."
        figures[label] = Figure("scores", lines, "Sorted scores.", text, "ANCE, Figure 3")
    return figures


def mean_of(vectors_PD):
    """float64 [D]: the mean of all vectors, block by block; its product with a query is the mean of all scores."""
    total = np.zeros(vectors_PD.shape[1])
    for start in range(0, len(vectors_PD), BLOCK):
        total += np.asarray(vectors_PD[start : start + BLOCK], np.float64).sum(axis=0)
    return total / max(1, len(vectors_PD))


def curves(reader, name, figure):
    """{suffix: Figure}: a chart of a column of the trainings, and one of a measure after every episode."""
    by_step, by_episode, read = [], [], []
    for label, seeds in figure["behind"]:
        read.append((label, seeds, training_curves(reader, seeds if figure["column"] else ())))
    written = {column for *_, points in read for column in points.columns.drop(NAMED)}
    if written and figure["column"] not in written:
        columns = ", ".join(sorted(written))
        raise Refusal(f"figures.{name}.column: these trainings wrote no {figure['column']!r}. They wrote {columns}.")
    for label, seeds, points in read:
        if figure["episode"] is not None:
            points = points[points["episode"] == figure["episode"]]
        for point in column_points(points, figure["column"]):
            named = {"label": label, "seed": point["seed"], "step": point["step"]}
            by_step.append(named | {"value": point["value"], "part": point["episode"]})
        for seed in seeds:
            named = {"label": label, "seed": seed["seed"]}
            by_episode += [named | point for point in measure_points(reader, seed, figure["measure"])]
    text = "By the number of steps, all episodes one after another."
    figures = {figure["column"]: Figure("lines", by_step, f"{figure['column']}.", text)}
    figures[figure["measure"]] = Figure("lines", by_episode, f"{figure['split']} {figure['measure']}.", text)
    return {suffix: each for suffix, each in figures.items() if suffix and each.rows}


def measure_points(reader, seed, measure):
    """Yield {step, value, part} of a measure of the checkpoints of a seed, by the steps of all trainings before."""
    trains = [each["train"] for each in seed["episodes"]]
    taken = [reader.facts(train)["steps"] if reader.finished(train) else 0 for train in trains]
    for step, run in zip(accumulate(taken, initial=0), seed["runs"], strict=False):
        if reader.finished(run):
            yield {"step": step, "value": reader.facts(run)["means"][measure], "part": 0}


def bars(reader, name, figure):
    """{suffix: Figure}: a chart for each column of a published table with finished figures."""
    spec, figures = figure["behind"], {}
    lines = make_lines(read_published(reader.root / spec["file"]), spec, reader)
    for column in dict.fromkeys(line["figure"] for line in lines if line["ours"] is not None):
        rows = [
            {"group": line["group"] or line["system"], "system": line["system"], "value": line[of], "paper": paper}
            for line in lines
            for of, paper in (("ours", False), ("published", True))
            if line["figure"] == column and line["verdict"] != "cited" and line[of] is not None
        ]
        figures[column] = Figure("bars", rows, f"{column}.", "Bars: here; diamonds: the paper's own.")
    return figures


def histogram(reader, name, figure):
    """{suffix: Figure}: for each system the shares of queries, and of all errors, by the errors of a query."""
    figures = {}
    for label, stage in figure["behind"]:
        decades = reader.facts(stage)["histogram"] if reader.finished(stage) else []
        rows = [
            {"errors": errors_text(decade["from"]), "of": of, "share": decade[of]}
            for decade in decades
            for of in ("queries", "errors")
        ]
        if rows:
            figures[label] = Figure("histogram", rows, "Pairwise errors.", f"{label}.", "STAR and ADORE, Figure 3")
    return figures


# ---- Tables of queries that a system wins and loses, and where its list first differs from the reference's


def cases(reader, name, figure):
    """{suffix: (Printed, DataFrame of its values)} of each system."""
    finished = [behind for behind in figure["behind"] if reader.finished(behind[1])]
    return {behind[0]: case_table(reader, name, figure, *behind) for behind in finished}


def case_table(reader, name, figure, label, stage, against):
    """(the `Printed` table, its DataFrame) of the queries that a system wins and loses against another."""
    frame, facts = pq.read_table(reader.artefact(stage).path("contrast.parquet")).to_pandas(), reader.facts(stage)
    frame = frame.assign(difference=frame["value"] - frame["reference_value"])
    frame = chosen(frame, name, figure, better(facts["measure"]) or 1)
    split = reader.artefact(stage).manifest["settings"]["split"]
    queries = reader.artefact(reader.splits[split]).path(f"queries.{split}.parquet")
    corpus = reader.artefact(reader.corpus).path("corpus.parquet")
    frame.insert(1, "query", texts_by_id(queries, "query_id", frame["query_id"]))
    for side in ("", "reference_"):
        at = frame.columns.get_loc(f"{side}doc_id") + 1
        frame.insert(at, f"{side}text", texts_by_id(corpus, "doc_id", frame[f"{side}doc_id"]))
    measure, cells = facts["measure"], pd.DataFrame({"Query": frame["query_id"] + ": " + frame["query"]})
    cells[f"{measure}, {label}"] = frame["value"].map("{:.2f}".format)
    cells[f"{measure}, {against}"] = frame["reference_value"].map("{:.2f}".format)
    cells["Rank"] = frame["rank"].map(lambda rank: str(rank) if rank else NONE)
    for side, of in (("", label), ("reference_", against)):
        cells[of] = [passage(*line) for line in frame[[f"{side}doc_id", f"{side}text", f"{side}grade"]].to_numpy()]
    cells = cells.map(lambda text: text.replace("*", PRINTED["*"]))  # of texts: two stars would make them bold
    notes = [
        f"{facts['num_queries']:,} {split} queries: {label} wins {facts['wins']}, loses {facts['losses']} against "
        f"{against}, and {facts['ties']} are ties.",
        "Rank: the first at which the two lists have different passages; these with the beginning of their titles, or "
        "texts, and their grades.",
    ]
    return Printed(name, f"Queries that {label} wins and loses against {against}", cells, notes, wide=True), frame


def chosen(frame, name, figure, way):
    """The lines of the queries that a figure names, or of the largest differences: won first, then lost. way: -1 if
    the smaller value wins, else 1"""
    if figure["queries"]:
        by_id = frame.set_index("query_id", drop=False)
        if missing := [each for each in figure["queries"] if each not in by_id.index]:
            raise Refusal(f"figures.{name}.queries: {missing[0]!r} is not a judged query of the compared split.")
        return by_id.loc[figure["queries"]].reset_index(drop=True)
    order = frame.sort_values(["difference", "query_id"], ascending=[way < 0, True], kind="stable")
    gains = way * order["difference"]
    won, lost = order[gains > SAME], order[gains < -SAME][::-1]
    return pd.concat([won[: figure["won"]], lost[: figure["lost"]]]).reset_index(drop=True)


def texts_by_id(path, key, ids):
    """The title, or else the text, of some queries or passages by their ids (list); "" for an unknown id."""
    lines = lines_of_ids(path, key, ids.dropna().unique())
    texts = {each: " ".join((line.get("title") or line["text"]).split()) for each, line in lines.items()}
    return [texts.get(each, "") for each in ids]


def passage(doc_id, text, grade):
    """A passage in a cell: its id, how it begins, and its grade (text)."""
    if pd.isna(doc_id):
        return NONE
    return f"{doc_id}: {shortened(text, SNIPPET)} ({'unjudged' if pd.isna(grade) else int(grade)})"
