"""Kinds of `figures` that are of single queries: maps, and sorted scores."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from teleport.refusal import Refusal
from teleport.report.charts import Figure
from teleport.report.maps import map_rows, places
from teleport.report.page.negatives import sample

BLOCK = 2**16  # passages whose vectors are summed at a time


def rows_of(reader, figure, name, pools=()):
    """The rows of the queries of a figure (int64): those of its ids, or as many as it says, drawn at random.

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


def found_of(reader, stage, row, number):
    """At most `number` passages (list of rows) that a search found for a query, or that its pool has."""
    if stage.startswith("merge/"):
        pool = reader.pool(stage)
        passages = np.asarray(pool.items.passages[pool.offsets[row] : pool.offsets[row + 1]]).tolist()
    else:
        passages = reader.found(stage, row)
    known = reader.facts(reader.collection)["num_passages"]
    return [each for each in dict.fromkeys(passages) if each < known][:number]


def maps(reader, name, figure):
    """{suffix: Figure}: a map for each query and plane; the planes of a query are one, so that places compare."""
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
            for passage in found_of(reader, stage, row, figure["passages"]):
                before = parts.get(passage)
                parts[passage] = before if before == "relevant" else f"{before} and {label}" if before else label
        chosen, query_id = list(parts), ids[row].as_py()
        on_planes = places(scorers, row, chosen)
        doc_ids = {passage: doc_id for passage, (doc_id, *_) in reader.passages(set(chosen)).items()}
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
            found = np.asarray(run.scores[np.flatnonzero(run.rows == row)], np.float64).ravel()[: figure["depth"]]
            less = found[np.isfinite(found)] - np.asarray(scorer.queries[row], np.float64) @ mean
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
