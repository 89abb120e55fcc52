"""The masks that say which passages of a batch are no negatives of a query. A stage `train` loads these modules by
name. Each has one of

mask(batch, data, **settings)  of a `data.Batch` and its `data.TrainingSet`: bool numpy [Q, P], True where left out
mask_scores(scores_QP, positive_columns_Q, own_columns_QN, **settings)  of scaled scores: bool, as torch's, likewise

and leaves in the positive of the query itself. What it sees besides, its arguments name (`training.seen`): the first
kind the function `score` alone. One that sees a teacher has a `scoring.Scored` as settings.
"""
