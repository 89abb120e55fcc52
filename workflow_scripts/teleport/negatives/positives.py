"""Stage `positives`: the positives of the training questions of an episode, as released for NQ and TriviaQA. A question
keeps its judged positives, if any. Otherwise it gets one: the best-ranked passage with an answer among the neighbours
that this episode retrieved. So it can change with the checkpoint."""

import numpy as np

from teleport.arrays import Ragged, Run, save_array
from teleport.negatives.known_positives import have_answers
from teleport.reader import read_positives
from teleport.settings.section import NoSettings as Settings  # noqa: F401


def run(job):
    """Write offsets.npy int64 [Q + 1] and passages.npy int32: the values of the lists of all queries (`Ragged`). Facts:
    the numbers of questions with a judged positive (`given`), one from the retrieval (`found`) or none (`without`)."""
    given, retrieved = read_positives(job.inputs["split.train"], "train"), Run.read(job, "queries")
    lines = np.flatnonzero(given.lengths[retrieved.rows] == 0)  # of questions without a judged positive
    rows, ids_QK = retrieved.rows[lines], retrieved.ids[lines]
    answers_QK = have_answers(job, ids_QK, rows)
    hits = np.flatnonzero(answers_QK.any(axis=1))
    best = ids_QK[hits, answers_QK[hits].argmax(axis=1)]
    passages = np.concatenate([given.values, best]).astype(np.int32)
    positives = Ragged.grouped(np.concatenate([given.rows, rows[hits]]), passages, len(given))
    save_array(job.output("offsets.npy"), positives.offsets)
    save_array(job.output("passages.npy"), positives.values)
    counts = {"given": int(np.count_nonzero(given.lengths)), "found": len(hits)}
    return counts | {"without": len(given) - sum(counts.values())}
