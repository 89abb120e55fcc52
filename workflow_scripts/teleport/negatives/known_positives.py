"""Finds passages that are never negatives of a query: those known to be relevant, and those with an answer."""

import numpy as np

from teleport.answers import find_answers
from teleport.arrays import Ragged
from teleport.reader import positives_of_job, read_answers, read_positives, united, with_same_text
from teleport.running.log import Progress


def known_passages(job):
    """Return the passages that a merge removes from every source (`Ragged`: passages of each training query, ascending,
    each once): those judged at least `relevant_grade`, and the training positives, but none of them with `remove:
    answers`: then sources remove passages by `have_answers`, and a judged passage without an answer can be a negative.
    With `same_text` their copies too, and the query's own text."""
    trained_on = positives_of_job(job, "train")
    if job.settings.remove == "answers":
        known = Ragged(np.zeros_like(trained_on.offsets), np.zeros(0, np.int32))
    else:
        known = united(read_positives(job.inputs["split.train"], "train", job.settings.relevant_grade), trained_on)
    if job.settings.same_text:
        return with_same_text(job.inputs["corpus"], job.inputs["split.train"], "train", known)
    return known


def are_known(passages_LK, rows_L, known):
    """bool [L, K]: the passage is in `known` (Ragged) for the query row of its line."""
    start_L, stop_L = known.offsets[rows_L], known.offsets[rows_L + 1]
    known_LK = np.zeros(passages_LK.shape, bool)
    for number in range((stop_L - start_L).max(initial=0)):
        lines = np.flatnonzero(stop_L - start_L > number)
        known_LK[lines] |= passages_LK[lines] == known.values[start_L[lines] + number][:, None]
    return known_LK


def have_answers(job, passages_LK, rows_L):
    """bool [L, K]: the text of the passage has an answer to the question in the query row of its line."""
    answers_Q = read_answers(job.inputs["split.train"], "train")
    corpus = job.input("corpus", "corpus.parquet")
    answers_L, progress = [answers_Q[row] for row in rows_L], Progress(job.progress.path)  # with a separate rate
    return find_answers(corpus, passages_LK, answers_L, job.threads, progress)


def pool_has_answers(job, pool):
    """bool [all negatives]: the passage has an answer to the query. All at once, so that the corpus is read once."""
    rows = np.repeat(np.arange(len(pool.offsets) - 1), np.diff(pool.offsets))
    return have_answers(job, np.asarray(pool.items.passages)[:, None], rows)[:, 0]
