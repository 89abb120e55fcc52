"""The sources of negatives. The stages `merge` and `score` load these modules by the names that settings/registry.py
gives.

`open_source(job, name, known)` of each returns an object that numbers a query's candidates by slots 0, 1, ...:

    widths_Q              int64 [all queries]: the number of slots of each query
    block(first, last)    `candidates.CandidateBlock`: the slots of query rows `first` to `last` - 1
    names                 only if its candidates come from an earlier pool: the sources whose bits they have

`name` is the source's key in `job.settings.sources` and, if it reads a stage, that stage's role; `known` (Ragged)
has the passages that are never negatives of a query.
"""
