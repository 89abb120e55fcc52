"""The section that compares two systems: scores of every query of a split, and both top tens of some."""

from itertools import chain

import numpy as np

from teleport.report.page.negatives import sample

TOP = 10
DRAWN = 4  # one in so many of the queries shown in full is drawn at random, the others differ most between systems


def compared_rows(reader, spec):
    """The finished rows of all tables, each once: [{label, runs: {split: [evaluate stages]}}]."""
    found = {}
    for table in spec["tables"]:
        episodes = {}
        for row in table["rows"]:
            episodes.setdefault(row["system"], set()).add(row["episode"])
        for row in table["rows"]:
            if all(reader.finished(name) for name in chain(*row["runs"].values())):
                several = len(episodes[row["system"]]) > 1
                label = f"{row['system']}, episode {row['episode']}" if several else row["system"]
                found.setdefault(tuple(chain(*row["runs"].values())), {"label": label, "runs": row["runs"]})
    return list(found.values())


def mean_scores(reader, row, split):
    """{measure: float64 [queries of the split]}, means over seeds, NaN for a query without a score."""
    by_seed = [reader.scores(name, split) for name in row["runs"][split]]
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


def write_comparison(reader, spec, data, texts):
    """Write the data of the section, `diff/N.js` per system and `q/top-SPLIT-ROW.js` per query; returns its index."""
    rows, index = compared_rows(reader, spec), {"splits": {}}
    index["systems"] = [row["label"] for row in rows]
    for split in spec["splits"]:
        here = [number for number, row in enumerate(rows) if split in row["runs"]]
        if not here:
            continue
        scores = {number: mean_scores(reader, rows[number], split) for number in here}
        first = spec["measures"][split][0]
        shown = compared_queries(np.array([scores[number][first] for number in here]), spec["queries"], split)
        ids = reader.column(f"queries.{split}.parquet", "query_id")
        judged = np.flatnonzero(~np.isnan(scores[here[0]][first]))
        index["splits"][split] = {
            "measures": spec["measures"][split],
            "systems": here,
            "queries": [[int(row), ids[int(row)].as_py()] for row in judged],
            "shown": shown.tolist(),
        }
        for number in here:
            values = {m: rounded(v[judged]) for m, v in scores[number].items()}
            data.put(f"diff/{split}-{number}", values)
        write_top_tens(reader, {number: rows[number] for number in here}, split, shown, data, texts)
    return index


def rounded(values):
    return [None if np.isnan(value) else round(float(value), 5) for value in values]


def write_top_tens(reader, rows, split, shown, data, texts):
    """Write q/top-SPLIT-ROW.js for each of the queries `shown`: text, positives, and every system's top ten."""
    searches = {n: reader.input(row["runs"][split][0], "run") for n, row in rows.items()}
    runs = {n: reader.search(name) for n, name in searches.items()}
    lines = {n: {int(query): line for line, query in enumerate(run.rows)} for n, run in runs.items()}
    ids, queries = (reader.column(f"queries.{split}.parquet", name) for name in ("query_id", "text"))
    positives = reader.positives(split=split)
    for row in shown.tolist():
        tops = {}
        for number, run in runs.items():
            line = lines[number].get(row)
            tops[number] = [] if line is None else top_of(run, line, reader.names(searches[number]), texts)
        content = {"id": ids[row].as_py(), "text": queries[row].as_py(), "tops": tops}
        data.put(f"q/top-{split}-{row}", content | {"positives": [texts.number(p) for p in positives[row]]})


def top_of(run, line, names, texts):
    """[[page number of the passage, score]] of the first passages on one line of a `Run`; names: see `Reader.names`."""
    found = zip(run.ids[line, :TOP].tolist(), run.scores[line, :TOP].tolist(), strict=True)
    return [
        [texts.number(names.get(passage, passage)), float(f"{score:.5g}")] for passage, score in found if passage >= 0
    ]
