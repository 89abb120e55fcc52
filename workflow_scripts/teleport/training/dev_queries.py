"""The queries of a dev set, of the training of a dual encoder or of a cross-encoder."""

import numpy as np

from teleport.evaluation.evaluate import read_judgments
from teleport.evaluation.measures import Judgments
from teleport.reader import read_positives
from teleport.seed import derive_seed


def draw_queries(lengths, most, rng):
    """Return the rows, ascending, of at most `most` queries that have a positive. lengths: int [all queries], how many
    positives each has"""
    judged = np.flatnonzero(lengths)
    return np.sort(rng.permutation(judged)[:most])


def open_queries(job):
    """(generator of the dev set's draws; positives of all queries of its split, `Ragged`; the rows of its queries,
    int64; their `Judgments`) of a job."""
    dev, split = job.settings.dev, job.inputs[f"split.{job.settings.dev.split}"]
    rng = np.random.default_rng(derive_seed(job.settings.seed, "dev", dev.split))
    positives, judgments = read_positives(split, dev.split), read_judgments(job, dev.split)
    rows_Q = draw_queries(positives.lengths, dev.queries, rng)
    return rng, positives, rows_Q, Judgments(*(column[np.isin(judgments.queries, rows_Q)] for column in judgments))
