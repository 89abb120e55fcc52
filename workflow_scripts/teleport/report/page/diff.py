"""The section that compares two systems: scores of every query of a split, and both top tens of some."""

from collections import Counter
from itertools import chain

import numpy as np

from teleport.report.page.negatives import sample

TOP = 10
DRAWN = 4  # one in so many of the queries shown in full is drawn at random, the others differ most between systems


def compared_rows(reader, spec):
    """The finished rows of all tables, each once: [{label, runs: {split: [evaluate stages]}}]."""
    rows = {}
    for table in spec["tables"]:
        episodes = Counter(system for system, _ in {(row["system"], row["episode"]) for row in table["rows"]})
        for row in table["rows"]:
            names = tuple(chain(*row["runs"].values()))
            if all(map(reader.finished, names)):
                several = episodes[row["system"]] > 1
                label = f"{row['system']}, episode {row['episode']}" if several else row["system"]
                rows.setdefault(names, {"label": label, "runs": row["runs"]})
    return list(rows.values())


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
    rows = compared_rows(reader, spec)
    index = {"splits": {}, "systems": [row["label"] for row in rows]}
    for split in spec["splits"]:
        runs = {number: row["runs"][split] for number, row in enumerate(rows) if split in row["runs"]}
        if not runs:
            continue
        scores = {number: mean_scores(reader, names, split) for number, names in runs.items()}
        firsts = np.array([of_system[spec["measures"][split][0]] for of_system in scores.values()])
        shown, judged = compared_queries(firsts, spec["queries"], split), np.flatnonzero(~np.isnan(firsts[0]))
        ids = reader.queries(split, "query_id")
        index["splits"][split] = {
            "measures": spec["measures"][split],
            "systems": list(runs),
            "queries": [[row, ids[row].as_py()] for row in judged.tolist()],
            "shown": shown.tolist(),
        }
        for number, of_system in scores.items():
            data.put(f"diff/{split}-{number}", {name: rounded(values[judged]) for name, values in of_system.items()})
        write_top_tens(reader, runs, split, shown, data, texts)
    return index


def mean_scores(reader, names, split):
    """{measure: float64 [queries of the split]}, means over evaluate stages (seeds), NaN without a score."""
    by_seed = [reader.scores(name, split) for name in names]
    return {measure: np.mean([scores[measure] for scores in by_seed], axis=0) for measure in by_seed[0]}


def rounded(values):
    """Five decimals, None for NaN (list)."""
    return [None if np.isnan(value) else round(float(value), 5) for value in values]


def write_top_tens(reader, runs, split, shown, data, texts):
    """Write q/top-SPLIT-ROW.js for each query `shown`; runs: {number of a system: its evaluate stage per seed}."""
    searches = {number: reader.input(names[0], "run") for number, names in runs.items()}
    lines = {n: {row: i for i, row in enumerate(reader.search(name).rows.tolist())} for n, name in searches.items()}
    ids, queries = (reader.queries(split, name) for name in ("query_id", "text"))
    positives = reader.positives(split=split)
    for row in shown.tolist():
        tops = {number: top_of(reader, name, lines[number].get(row), texts) for number, name in searches.items()}
        content = {"id": ids[row].as_py(), "text": queries[row].as_py(), "tops": tops}
        data.put(f"q/top-{split}-{row}", content | {"positives": list(map(texts.number, positives[row]))})


def top_of(reader, search, line, texts):
    """[[page number of the passage, score]] of the first passages on one line of a search; [] without one (None)."""
    run, names = reader.search(search), reader.names(search)
    top = () if line is None else zip(run.ids[line, :TOP].tolist(), run.scores[line, :TOP].tolist(), strict=True)
    return [[texts.number(names.get(p, p)), float(f"{score:.5g}")] for p, score in top if p >= 0]
