"""The draws from a source's candidates. A stage `merge` loads these modules by their names in settings/registry.py.

`choose(candidates, count, **settings)` of each gets `negatives.draw.Candidates` and returns int64 [Q, N], N = `count`:
different available slots in any order; if a query has fewer, numbers from S on fill the row. Its random numbers come
from `candidates.random_QS()`. numpy is imported inside functions, because loading a configuration loads these files.
"""
