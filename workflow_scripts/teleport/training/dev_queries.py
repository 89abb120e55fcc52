"""The queries of a dev set, in the training of a dual encoder or of a cross-encoder."""

import numpy as np

from teleport.evaluation.evaluate import read_judgments
from teleport.evaluation.measures import Judgments
from teleport.reader import read_positives
from teleport.seed import derive_seed


def draw_queries(lengths, most, rng):
    """Draw at most `most` queries that have a positive; returns their rows (int64 [Q], ascending). lengths: int [all
    queries], the number of positives of each"""
    judged = np.flatnonzero(lengths)
    return np.sort(rng.permutation(judged)[:most])


def open_queries(job):
    """The generator of a dev set's draws, the positives of all queries of its split (`Ragged`), the rows of its queries
    (int64 [Q]) and their `Judgments` (a tuple)."""
    dev, split = job.settings.dev, job.inputs[f"split.{job.settings.dev.split}"]
    rng = np.random.default_rng(derive_seed(job.settings.seed, "dev", dev.split))
    positives, judgments = read_positives(split, dev.split), read_judgments(job, dev.split)
    rows_Q = draw_queries(positives.lengths, dev.queries, rng)
    return rng, positives, rows_Q, Judgments(*(column[np.isin(judgments.queries, rows_Q)] for column in judgments))
