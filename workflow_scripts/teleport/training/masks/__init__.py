"""The masks that say which passages of a batch are not negatives of a query. A stage `train` loads these modules by
name. Each has one of

mask(batch, data, **settings)  for a `data.Batch` and its `data.TrainingSet`: bool numpy [Q, P], True where left out
mask_scores(scores_QP, positive_columns_Q, own_columns_QN, **settings)  for scaled scores: the same, as a bool tensor

and keeps the query's own positive. Further arguments name what else it reads (`training.seen`); the first kind can read
`score` only. A mask that reads a teacher has a `section.Scored` as settings.
"""
