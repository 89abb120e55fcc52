"""The losses that a step minimises: a mean, a scalar. A stage `train` loads one of these modules by its name. Its
functions are

loss(scores_QP, positive_columns_Q, own_columns_QN, **seen, **settings)  of the passages of a batch
    scores: float, scaled, -inf where a passage is left out; int64 columns of the positive and of own negatives
num_pairs(counted_QP, positive_columns_Q, own_columns_QN)  of how many pairs it is the mean, where not of queries
    counted: bool, False where a passage is left out; all numpy
loss(scores_QK, positive_QK, negative_QK, **settings)  of the lists of a live search
    scores: float, of passages in the order of their ranks; bool, on the CPU: which are positives, negatives, or neither

What a loss of a batch sees besides, its arguments name: a teacher's scores or vectors, other pairs (`training.seen`).
One that sees a teacher has a `scoring.Scored` as settings. `require_scores(name, scores, **settings)`, if it is there,
refuses scores that it cannot learn from.
"""
