"""Kinds of `figures` that are of single queries: maps, and sorted scores."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from teleport.refusal import Refusal
from teleport.report.page.drawings import Figure
from teleport.report.page.negatives import sample
from teleport.report.page.queries import shared_map

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
        passages = np.asarray(pool.items.passages[pool.offsets[row] : pool.offsets[row + 1]])
    else:
        run = reader.search(stage)
        passages = np.asarray(run.ids[np.flatnonzero(run.rows == row)]).ravel()
    known = reader.facts(reader.collection)["num_passages"]
    return [each for each in dict.fromkeys(passages.tolist()) if 0 <= each < known][:number]


def maps(reader, name, figure):
    """{suffix: Figure}: a map for each query and plane; the planes of a query are one, so that places compare."""
    planes, shown = figure["behind"]["planes"], figure["behind"]["shown"]
    if not all(map(reader.finished, [stage for _, *stages in (*planes, *shown) for stage in stages])):
        return {}
    ids, texts = (reader.queries(figure["split"], column) for column in ("query_id", "text"))
    positives, figures = reader.positives(split=figure["split"]), {}
    vectors = [
        (reader.vectors(queries, f"queries.{figure['split']}.npy"), reader.vectors(passages, "passages.npy"))
        for _, queries, passages in planes
    ]
    pools = [stage for _, stage in shown if stage.startswith("merge/")]
    for row in rows_of(reader, figure, name, pools).tolist():
        parts = {}
        for label, stage in shown:
            for passage in found_of(reader, stage, row, figure["passages"]):
                parts.setdefault(passage, []).append(label)
        relevant = positives[row].tolist()
        chosen = [*relevant, *(passage for passage in parts if passage not in relevant)]
        if any(passages is None or len(passages) <= max(chosen) for _, passages in vectors):
            continue  # removed, or of chunks
        points = shared_map(np.array([np.vstack([queries[[row]], passages[chosen]]) for queries, passages in vectors]))
        points = np.round(points / max(1e-9, float(np.abs(points).max())), 3)
        doc_ids = {passage: doc_id for passage, (doc_id, *_) in reader.passages(set(chosen)).items()}
        for (label, *_), places in zip(planes, points.tolist(), strict=True):
            rows = [
                {
                    "x": x,
                    "y": y,
                    "what": "relevant" if at < len(relevant) else " and ".join(parts[passage]),
                    "shape": "relevant" if at < len(relevant) else "passage",
                    "passage": doc_ids[passage],
                }
                for at, (passage, (x, y)) in enumerate(zip(chosen, places[1:], strict=True))
            ]
            rows.append(dict(zip("xy", places[0], strict=True)) | dict.fromkeys(("what", "shape"), "query"))
            rows[-1]["passage"] = "the query"
            text = f"Under {label}: {texts[row].as_py()}. Principal components of the vectors of all maps of the query."
            figures[f"{ids[row].as_py()}-{label}"] = Figure("plane", rows, f"Query {ids[row].as_py()}.", text)
    return figures


def scores(reader, name, figure):
    """{suffix: Figure}: a chart for each system."""
    figures, rows = {}, rows_of(reader, figure, name)
    ids = reader.queries(figure["split"], "query_id")
    for label, search, queries, passages in figure["behind"]:
        if not all(map(reader.finished, (search, queries, passages))):
            continue
        vectors = reader.vectors(passages, "passages.npy")
        if vectors is None:
            continue
        run, mean = reader.search(search), mean_of(vectors)
        lines, of_queries = [], reader.vectors(queries, f"queries.{figure['split']}.npy")
        for row in rows.tolist():
            found = np.asarray(run.scores[np.flatnonzero(run.rows == row)], np.float64).ravel()[: figure["depth"]]
            less = found[np.isfinite(found)] - np.asarray(of_queries[row], np.float64) @ mean
            lines += [
                {"query": ids[row].as_py(), "rank": rank, "score": score} for rank, score in enumerate(less.tolist(), 1)
            ]
        text = f"{label}: {len(rows)} queries of {figure['split']}, a line each."
        figures[label] = Figure("scores", lines, "Sorted scores.", text, "ANCE, Figure 3")
    return figures


def mean_of(vectors_PD):
    """float64 [D]: the mean of all vectors, block by block; its product with a query is the mean of all scores."""
    total = np.zeros(vectors_PD.shape[1])
    for start in range(0, len(vectors_PD), BLOCK):
        total += np.asarray(vectors_PD[start : start + BLOCK], np.float64).sum(axis=0)
    return total / max(1, len(vectors_PD))
