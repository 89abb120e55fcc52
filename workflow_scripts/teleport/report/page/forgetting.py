"""The section on forgetting: the queries of train and of every split that lose ranks from checkpoint to checkpoint."""

import functools

import numpy as np

from teleport.analyses.forgetting import DEPTH, forgets, reciprocal_ranks
from teleport.report.page.negatives import MOST_QUERIES, sample
from teleport.settings.measures import better

TRACED = 10  # queries whose scores are drawn one by one (ANCE-Tele Figures 3 and 8d)
STATES = ("kept", "learned", "swung back", "forgotten", "missed")  # in the lists of queries by their first letters
MOST_PRODUCTS = 1e9  # of a query and a passage: the page ranks positives if no search did


class Traces:
    """Per-query scores of checkpoints, computed once per stage; rows: the training queries that are looked at, of
    `total`."""

    def __init__(self, reader):
        self.reader = reader
        finished = reader.finished(reader.splits.get("train"))
        self.total = len(reader.queries("train")) if finished else 0
        self.rows = sample(self.total, MOST_QUERIES, "negatives")
        self.searched, self.ranked = functools.cache(self.searched), functools.cache(self.ranked)

    def training(self, trajectory):
        """(checkpoints, float [E, Q], their rows): the reciprocal rank of training queries, as the paper measures
        forgetting, to the `depth` of the shallowest search and by the positives of the last episode (`matched`)."""
        searches = {int(n): name for n, name in trajectory["searches"].items() if self.reader.finished(name)}
        depth, matched = self.depth(trajectory), self.matched(trajectory)
        values = {n: self.searched(name, depth, matched) for n, name in searches.items()}
        for n, names in trajectory["vectors"].items():  # such as the last checkpoint, which nothing was mined with
            if int(n) not in values and (ranked := self.ranked(*names, depth, matched)) is not None:
                values[int(n)] = ranked
        scores_EQ = np.reshape([values[n] for n in sorted(values)], (len(values), len(self.rows)))
        return sorted(values), scores_EQ, self.rows

    def depth(self, trajectory):
        """The depth to which all checkpoints are compared: the paper's, or that of a search that is shallower."""
        searches = [name for name in trajectory["searches"].values() if self.reader.finished(name)]
        return min([DEPTH, *(self.reader.search(name).ids.shape[1] for name in searches)])

    def matched(self, trajectory):
        """The last finished stage that matched answers, whose positives count for all checkpoints; None without one."""
        stages = (each["positives"] for each in reversed(trajectory["episodes"]))
        return next(filter(self.reader.finished, stages), None)

    def searched(self, name, depth, matched):
        """float64 [Q]: reciprocal ranks of `rows` under a retrieval, 0 for a query that it does not have."""
        run, ranks = self.reader.search(name), np.zeros(len(self.rows))
        _, lines, ours = np.intersect1d(run.rows, self.rows, assume_unique=True, return_indices=True)
        ranks[ours] = self.reciprocal_ranks(run.ids[lines, :depth], self.rows[ours], matched)
        return ranks

    def ranked(self, queries, passages, depth, matched):
        """Return the same as `searched`, from the vectors of two encode stages; None without them, or with too many."""
        scorer = self.reader.scorer(queries, passages)
        if scorer is None or len(self.rows) * len(scorer) > MOST_PRODUCTS:
            return None
        from teleport.search.exact import Exact

        index = Exact(scorer.vectors)
        queries_QD = np.asarray(scorer.queries[self.rows], np.float32)
        return self.reciprocal_ranks(index.search(queries_QD, min(depth, len(scorer)))[0], self.rows, matched)

    def reciprocal_ranks(self, ids_QK, rows, matched):
        """Return the reciprocal ranks of the positives of training queries (`rows`) among the passages of their
        search."""
        positives = self.reader.positives(matched)
        return reciprocal_ranks(ids_QK, [positives[row] for row in rows])

    def evaluated(self, trajectory, split, measure):
        """(checkpoints, float [E, Q], their rows): a measure on the judged queries of a split."""
        runs = [(n, run[split]) for n, run in enumerate(trajectory["runs"]) if self.reader.finished(run.get(split))]
        values = [self.reader.scores(name, split)[measure] for _, name in runs]
        scores_EQ = np.reshape(values, (len(runs), len(self.reader.queries(split))))
        judged = np.flatnonzero(~np.isnan(scores_EQ).any(axis=0))
        return [n for n, _ in runs], scores_EQ[:, judged], judged


def forgetting_of(traces, trajectory, splits, measures):
    """[{split, measure, checkpoints, queries, rates, states, rows, paths, …}] of one experiment and seed (plain JSON).

    split "train": RR@100 of the training queries with each model that mined, as in the paper, or RR at the depth of a
    search that is shallower; other splits: their first measure where more is better. rates and states have an entry per
    step; paths: the states of each query (`rows`), a letter per step; ways: its scores, as text; unranked: checkpoints
    without ranks of training queries; matched: whether answers found their positives; traces: the scores of a few
    queries drawn at random (`traced`), a list each.
    """
    sets = [("train", f"RR@{traces.depth(trajectory)}", *traces.training(trajectory))]
    firsts = {split: next((name for name in measures[split] if better(name) > 0), None) for split in splits}
    sets += [(split, name, *traces.evaluated(trajectory, split, name)) for split, name in firsts.items() if name]
    contents = []
    for split, measure, checkpoints, values, rows in sets:
        if len(checkpoints) < 2 or split in {each["split"] for each in contents}:
            continue
        drawn, texts = sample(len(rows), TRACED, f"traced {split}"), traces.reader.queries(split)
        content = {"split": split, "measure": measure, "checkpoints": checkpoints, "queries": len(rows)}
        content |= {"seed": trajectory["seed"], "rows": rows.tolist(), "paths": paths(values)}
        if split == "train":
            content["matched"] = traces.matched(trajectory) is not None
            # Such as the last one, where it has more vectors than MOST_PRODUCTS allow.
            content["unranked"] = sorted({*map(int, trajectory["vectors"])}.difference(checkpoints))
        content["ways"] = [way_text(each, measure) for each in values.T.tolist()]
        content["states"] = count_states(values)
        content["rates"] = [round(counts["forgotten"] / len(rows), 6) for counts in content["states"]]
        content["traced"] = [texts[row].as_py() for row in rows[drawn].tolist()]
        content["traces"] = np.round(values[:, drawn].T, 4).tolist()
        contents.append(content)
    return contents


def states(values_EQ):
    """The state of each query at each step from one checkpoint to the next: indices into STATES, int [E - 1, Q].

    By its score r. forgotten: r falls, as in the paper; learned: r rises above all earlier values; swung back: r rises,
    but not above its best; kept, missed: r stays, above 0 or at 0.
    """
    before, after = values_EQ[:-1], values_EQ[1:]
    best = np.maximum.accumulate(values_EQ, axis=0)[:-1]
    conditions = {"forgotten": forgets(before, after), "learned": after > best, "swung back": after > before}
    conditions["kept"] = after > 0
    return np.select(list(conditions.values()), [*map(STATES.index, conditions)], STATES.index("missed"))


def paths(values_EQ):
    """The states of each query, a letter per step: [str]."""
    letters = np.array([state[0] for state in STATES])[states(values_EQ)]
    return ["".join(path) for path in letters.T.tolist()]


def way_text(values, measure):
    """Return the scores of a query at each checkpoint as text; reciprocal ranks are shown as ranks, "1 → 12 → –"."""
    if measure.startswith("RR"):
        return " → ".join(f"{1 / value:.0f}" if value else "–" for value in values)
    return " → ".join(f"{value:.2f}" for value in values)


def count_states(values_EQ):
    """[{state: number of queries}], one per step; the share of the forgotten is the rate of Figure 4 and Table 9."""
    return [{state: int((line == n).sum()) for n, state in enumerate(STATES)} for line in states(values_EQ)]


def swing_sizes(values_EQ):
    """How far each query's score went and came back: the sum of its steps, less the distance from first to last (float
    [Q])."""
    way = np.abs(np.diff(values_EQ, axis=0)).sum(axis=0)
    return way - np.abs(values_EQ[-1] - values_EQ[0])
