"""Answer coverage, `Cov@5`, `Cov@20`, ...: the share of questions with an answer-bearing passage in the first k.

What DPR calls top-k accuracy and ANCE-Tele R@k. It is `Success@k` with answer strings in the place of judgments, and
counts every question of the split that has answers, judged or not.
"""

import numpy as np

from teleport.collection.answers import find_answers
from teleport.collection.reader import read_answers


def score_coverage(collection, split, ids_QK, rows, cutoffs):
    """Coverage of a run: ({name: float64 [A] of 0 and 1}, query rows int64 [A]), A questions that have answers.

    `collection` is the Artefact of a collection stage, `ids_QK` int32 the run's passages in the order of ranks (-1:
    none), `rows` the query row of each line, `cutoffs` {name: k}. A question that the run lacks scores 0. Raises
    ValueError when the split has no answers.
    """
    answers_Q = read_answers(collection, split)
    ids_QK = ids_QK[:, : max(cutoffs.values())]
    found_QK = find_answers(collection.path("corpus.parquet"), ids_QK, [answers_Q[row] for row in rows])
    ranks_Q = np.full(len(answers_Q), np.inf)  # of the first passage with an answer, from 1
    ranks_Q[rows] = np.where(found_QK.any(axis=1), found_QK.argmax(axis=1) + 1, np.inf)
    answered = np.flatnonzero([bool(answers) for answers in answers_Q])
    return {name: (ranks_Q[answered] <= k).astype(np.float64) for name, k in cutoffs.items()}, answered
