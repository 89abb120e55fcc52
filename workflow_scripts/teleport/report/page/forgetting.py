"""The section on forgetting: what queries lose from checkpoint to checkpoint, of the training and of every split."""

import numpy as np

from teleport.evaluation.forgetting import DEPTH, reciprocal_ranks
from teleport.report.page.learned import count_states, forgetting_rates
from teleport.report.page.negatives import MOST_QUERIES, sample
from teleport.runtime.arrays import Ragged

TRACED = 10  # queries whose scores are drawn one by one (ANCE-Tele Figures 3 and 8d)
FOUND = 10  # a query is found when its positive is among so many


class Traces:
    """Per-query scores of the checkpoints of every experiment and seed, computed once per stage.

    rows: the training queries that are looked at
    """

    def __init__(self, reader):
        self.reader, self.ranks = reader, {}
        number = len(reader.column("queries.train.parquet", "query_id")) if has_training_queries(reader) else 0
        self.rows = sample(number, MOST_QUERIES, "negatives")

    def training(self, trajectory):
        """(checkpoints, float [C, Q], their rows): RR@100 of training queries, as the paper measures forgetting."""
        searches = {int(n): name for n, name in trajectory["searches"].items() if self.reader.finished(name)}
        checkpoints = sorted(searches)
        return checkpoints, np.array([self.reciprocal_ranks(searches[n]) for n in checkpoints]), self.rows

    def reciprocal_ranks(self, name):
        if name not in self.ranks:
            run, positives = self.reader.search(name), self.reader.positives()
            lines = np.full(len(positives), -1)
            lines[run.rows] = np.arange(len(run.rows))
            found, rows = lines[self.rows] >= 0, self.rows
            values = np.zeros(len(rows))
            known = Ragged.grouped(*grouped_positives(positives, rows[found]), int(found.sum()))
            values[found] = reciprocal_ranks(run.ids[lines[rows[found]], :DEPTH], known)
            self.ranks[name] = values
        return self.ranks[name]

    def evaluated(self, trajectory, split, measure):
        """(checkpoints, float [C, Q], their rows): a measure on the judged queries of a split."""
        runs = [(n, run[split]) for n, run in enumerate(trajectory["runs"]) if self.reader.finished(run.get(split))]
        values = np.array([self.reader.scores(name, split)[measure] for _, name in runs])
        if not len(values):
            return [], values, self.rows
        judged = np.flatnonzero(~np.isnan(values).any(axis=0))
        return [n for n, _ in runs], values[:, judged], judged


def has_training_queries(reader):
    return "queries.train.parquet" in reader.artefact(reader.collection).manifest["files"]


def grouped_positives(positives, rows):
    """(new row of each positive, passage) of the queries `rows`, numbered anew in their order."""
    lengths = positives.lengths[rows]
    values = [positives[row] for row in rows]
    return np.repeat(np.arange(len(rows)), lengths), np.concatenate([*values, np.zeros(0, np.int32)])


def forgetting_of(traces, trajectory, splits, measures):
    """[{split, measure, checkpoints, rates, states, traced, traces}] of one experiment and seed (plain JSON).

    split "train": RR@100 of the training queries with each model that mined, as in the paper; other splits: their first
    measure. rates and states have an entry per step; traces: of a few queries drawn at random (`traced`), a list each.
    """
    sets = [("train", f"RR@{DEPTH}", *traces.training(trajectory))]
    sets += [(split, measures[split][0], *traces.evaluated(trajectory, split, measures[split][0])) for split in splits]
    found = []
    for split, measure, checkpoints, values, rows in sets:
        if len(checkpoints) < 2:
            continue
        threshold = 1 / FOUND if measure.startswith("RR") else 1e-9
        drawn = sample(values.shape[1], TRACED, f"traced {split}")
        said = {"split": split, "measure": measure, "checkpoints": checkpoints, "queries": values.shape[1]}
        said |= {"rates": np.round(forgetting_rates(values), 6).tolist(), "states": count_states(values >= threshold)}
        texts = traces.reader.column(f"queries.{split}.parquet", "text")
        said["traced"] = [texts[int(row)].as_py() for row in rows[drawn]]
        found.append(said | {"traces": np.round(values[:, drawn].T, 4).tolist()})
    return found
