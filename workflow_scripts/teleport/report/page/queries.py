"""Single queries: which are shown in full, their scores, and the top tens that systems give them."""

from itertools import chain

import numpy as np

from teleport.report.page.forgetting import swing_sizes
from teleport.report.page.negatives import finished_pools, sample

TOP = 10
DRAWN = 4  # one in so many of the queries shown in full is drawn at random, the others differ most between systems
LEAST_SHOWN = 10  # training queries
MOST_CELLS = 4_000  # of the tables of all training queries: fewer queries are shown where each has more


def compared_rows(tables):
    """The rows of all tables (as `page_table` gives them), each once; where two are called alike, the second has the
    title of its table too. Every row of a table gets its `number` among them."""
    rows, taken = {}, set()
    for title, row in ((table["title"], row) for table in tables for row in table["rows"]):
        evaluations = tuple(chain(*row["runs"].values()))  # what tells systems apart, whatever a table calls them
        if evaluations not in rows:
            label = f"{row['label']} ({title})" if row["label"] in taken else row["label"]
            rows[evaluations] = row | {"label": label, "number": len(rows)}
            taken.add(label)
        row["number"] = rows[evaluations]["number"]
    return list(rows.values())


def compared_queries(rows, scores, number, split):
    """Those of some queries of a split whose top tens are shown (sorted): that differ most, and some drawn.

    scores: of `rows` by the first measure, float [systems, queries]
    """
    if number == "all" or len(rows) <= number:
        return rows
    far = rows[np.argsort(-np.ptp(scores, axis=0), kind="stable")[: number - number // DRAWN]]
    others = np.setdiff1d(rows, far)
    return np.union1d(far, others[sample(len(others), number // DRAWN, f"compared {split}")])


def split_contents(reader, spec, rows):
    """{split: {systems, rows, scores: {measure: float [systems, rows]}, full}} of those with a system.

    rows: as `compared_rows` gives; systems: numbers of those with the split; in the content, the rows of the queries
    that all of them have scores for; full: of those in full
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
            first = next(iter(scores.values()))
            judged = np.flatnonzero(~np.isnan(first).any(axis=0))
            full = compared_queries(judged, first[:, judged], spec["queries"], split).tolist()
            scores = {name: values[:, judged] for name, values in scores.items()}
            contents[split] = {"systems": systems, "rows": judged.tolist(), "scores": scores, "full": full}
    return contents


def tops_of(reader, evaluation, rows):
    """{query row: [passages, best first]} of the search that an evaluate stage has scored."""
    search = reader.input(evaluation, "run")
    names = reader.names(search)
    return {row: [names.get(passage, passage) for passage in reader.found(search, row)[:TOP]] for row in rows}


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
    """At most `number` queries ("all" is not cut), LEAST_SHOWN or so few that their tables stay within MOST_CELLS."""
    if number == "all":
        return number
    episodes = chain.from_iterable(finished_pools(reader, trajectory).values() for trajectory in trajectories)
    pools = [each["pool"] for each in episodes]
    per_query = sum(reader.facts(pool)["negatives"] / max(1, len(reader.pool(pool).offsets) - 1) for pool in pools)
    return min(number, max(LEAST_SHOWN, int(MOST_CELLS / max(1.0, per_query))))
