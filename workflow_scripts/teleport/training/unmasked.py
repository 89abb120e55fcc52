"""Counts a query's known positives among the other passages of its batch, where a loss takes them for negatives. The
plan loads this module for a training with a loss over the batch and without the mask `known_positives`."""

import numpy as np

from teleport.arrays import pair_keys
from teleport.running.log import log
from teleport.training.data import other_positives

BATCHES, QUERIES = 50, 5000  # counted at most: the first batches, and fewer if they are large
WARNED = 0.01  # share of the queries that have some


def count(trainer, first, stop):
    """Count in the first batches of the steps from `first` to `stop` of a `dual_encoder.Trainer`, and warn if more than
    WARNED of the queries have known positives there. Returns the facts (dict)."""
    training, rows, numbers = trainer.training, [], []
    batches = min(stop - first, BATCHES, max(1, QUERIES // training.batch_queries))
    for step in range(first, first + batches):
        data, (collection, own_step) = trainer.data_of(step), trainer.turn(step)
        for micro_batch in data.batch(own_step).split(training.accumulate):
            rows.append(pair_keys(np.int64(collection), micro_batch.queries_Q))  # each collection numbers its own
            numbers.append(unmasked(micro_batch, data))
    rows, numbers = np.concatenate(rows), np.concatenate(numbers)
    share = len(np.unique(rows[numbers > 0])) / len(np.unique(rows))
    per_query = numbers.mean()
    if share > WARNED:
        log.warning(
            "%.1f %% of the queries have other known positives among the passages of their batch, %.2f a query "
            "(batches counted: %d): add known_positives to training.masks, which leaves them out",
            *(100 * share, per_query, batches),
        )
    names = ("known_positives_in_batch", "queries_with_known_positives_in_batch", "counted_batches")
    return dict(zip(names, (float(per_query), float(share), batches), strict=True))


def unmasked(batch, data):
    """int64 [Q]: how many passages of a `data.Batch` are known positives of each row's query, besides its own positive
    and those that `positive: all` leaves out. data: its `data.TrainingSet`"""
    own_Q = 1 + (other_positives(batch).sum(axis=1) if data.training.positive == "all" else 0)
    return np.array([np.isin(batch.passages_P, data.known_positives(row)).sum() for row in batch.queries_Q]) - own_Q
