"""How candidates of a source are chosen. A stage `merge` loads these modules by their names in settings/registry.py.

`choose(candidates, count, **settings)` of each gets `negatives.draw.Candidates` and returns int64 [Q, N], N = `count`:
different available slots in any order; where a query has fewer, numbers from S on fill up. What is random in it comes
from `candidates.random_QS()`. numpy is imported where it computes, because loading a configuration loads these files.
"""
