"""How candidates of a source are chosen. A stage `merge` loads one of these modules by its name.

`choose(candidates, count, **settings)` of each gets `negatives.draw.Candidates` and returns int64 [Q, N], N = `count`:
different available slots in any order; where a query has fewer, numbers from S on fill up. It is asked only where there
are more slots than wanted negatives. What is random in it comes from `candidates.random_QS()`.
"""
