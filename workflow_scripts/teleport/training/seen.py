"""The inputs that a loss or a mask may read besides the scores of a step. It gets those that its arguments name:

scale: `encoder.scale`, the factor on the scores
judged_QN: float32 [Q, 1 + N], scores of each positive and its own negatives by the judge in `scores`: the miner, a
    teacher, or JUDGMENTS, whose scores are grades divided by the highest one, 0 for a pair that is not judged
query_query_QQ, passage_passage_QP: scaled scores of each query with all queries, and of each query's positive with all
    passages of the batch; two passages of several chunks score by their best pair of chunks
vectors: the vectors of the batch's queries [Q, D] and of its passages [P, D]; with chunks [C, D], a row per chunk
shares_M: float32 [Q + C], the weight of each of these rows: 1, or 1 / the number of chunks of its passage
teacher_vectors: the vectors of the same texts by the judge in `scores`, float32
guide_QP: float32 [Q, P], the inner products of the `teacher_vectors`, of a passage's best chunk
score: for a mask that is a function of the batch: function (query rows, passage rows) → float32, by the same judge

All but `score` and `scale` are tensors on the device; tensors of the model have their graph. The settings ask this
module what a loss needs, so functions import numpy only when they compute.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

SCORES, VECTORS = "scores", "vectors"  # what a training reads from a teacher
JUDGMENTS = "judgments"  # in the place of a teacher that gives scores: the grades of the training queries


class Step(NamedTuple):
    """What a loss or a mask can read of a step. batch: a `data.Batch`; encoded: its `encoded.Encoded`; columns: of the
    positives and own negatives, on the device; on_device: function of a numpy array → tensor"""

    batch: Any
    encoded: Any
    columns: tuple
    scale: float
    on_device: Callable


def judged(step, teacher):
    """float32 [Q, 1 + N]: the scores of each query's positive, then of its own negatives."""
    import numpy as np

    batch = step.batch
    columns_QN = np.column_stack([batch.positive_columns_Q, batch.own_columns_QN])
    rows_QN = np.broadcast_to(batch.queries_Q[:, None], columns_QN.shape)
    scores = teacher.score(rows_QN.ravel(), batch.passages_P[columns_QN].ravel())
    return step.on_device(scores.reshape(columns_QN.shape))


def encoded_by(teacher, step):
    """The `Encoded` of the batch by a teacher, float32 without a graph."""
    import numpy as np

    from teleport.maxp import Padding, chunk_rows, most_chunks, offsets_among
    from teleport.training.encoded import Encoded

    passages_P, offsets = step.batch.passages_P, teacher.offsets
    rows = teacher.queries[step.batch.queries_Q], teacher.passages[chunk_rows(passages_P, offsets)]
    queries_QD, chunks_CD = (step.on_device(np.asarray(vectors, np.float32)) for vectors in rows)
    most = most_chunks(offsets_among(passages_P, offsets))  # of the batch: the collection may have millions of passages
    padding = Padding.of(passages_P, offsets, most, step.on_device)
    return Encoded(queries_QD, padding.pad(chunks_CD), padding)


def guide(step, teacher):
    encoded = encoded_by(teacher, step)
    return encoded.products(encoded.queries_QD)


# {argument: (what it needs from a teacher, function (Step, Teacher) → its value)}
SEEN = {
    "scale": (None, lambda step, _: step.scale),
    "judged_QN": (SCORES, judged),
    "query_query_QQ": (None, lambda step, _: step.scale * step.encoded.queries_QD @ step.encoded.queries_QD.T),
    "passage_passage_QP": (None, lambda step, _: step.scale * step.encoded.products_of(step.columns[0])),
    "vectors": (None, lambda step, _: step.encoded.of_texts()),
    "shares_M": (None, lambda step, _: step.encoded.shares()),
    "teacher_vectors": (VECTORS, lambda step, teacher: encoded_by(teacher, step).of_texts()),
    "guide_QP": (VECTORS, guide),
    "score": (SCORES, lambda _, teacher: teacher.score),
}


def names_seen(function):
    """Return the names of `SEEN` that a function has as arguments (list)."""
    return [name for name in inspect.signature(function).parameters if name in SEEN]


def needed(function):
    """Return what a function needs from a teacher: SCORES, VECTORS, both or neither (set)."""
    return {SEEN[name][0] for name in names_seen(function)} - {None}


def look(names, teacher, step):
    """{argument: value} of what a loss or a mask reads from a `Step`."""
    return {name: SEEN[name][1](step, teacher) for name in names}
