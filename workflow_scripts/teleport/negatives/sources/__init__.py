"""Where negatives are drawn from. A stage `merge` loads these modules by the names that settings/registry.py gives.

`open_source(job, name, known)` of each returns an object that numbers a query's candidates by slots 0, 1, ...:

    widths_Q                       int64 [all queries]: how many slots each query has
    candidates(first, last)        bool [Q, S]: the slot may be drawn
    passages(first, last)          int32 [Q, S]: the passage in each slot; any number where there is no candidate
    take(first, last, slots_QN)    `Items` [Q, N]: what is in the slots that were drawn

`name` is the source's key in `job.settings.sources` and, where it reads a stage, that stage's role; `known` (Ragged)
has the passages that are never negatives of a query. `first` and `last` bound a block of query rows. Shapes: Q queries
of the block, S slots, N drawn slots.
"""
