"""The losses that a step minimises, each a mean (scalar). A stage `train` loads one of these modules by name. Its
functions are

loss(scores_QP, positive_columns_Q, own_columns_QN, **seen, **settings)  for the passages of a batch
    scores: float, scaled, -inf for a passage that is left out; int64 columns of the positive and of own negatives
num_pairs(counted_QP, positive_columns_Q, own_columns_QN)  the number of pairs, if the loss is a mean over pairs
    counted: bool, False for a passage that is left out; all numpy
loss(scores_QK, positive_QK, negative_QK, **settings)  for the lists of a live search
    scores: float, of passages in the order of their ranks; bool, on the CPU: which are positives, negatives, or neither

Further arguments of a batch loss name what else it reads: a teacher's scores or vectors, other pairs (`training.seen`).
A loss that reads a teacher has a `section.Scored` as settings. The function `require_scores(name, scores, **settings)`,
if present, refuses scores that the loss cannot learn from.
"""
