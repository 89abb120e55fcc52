"""The rules for negatives of a pool that are probably positives. A stage `relabel` loads one of these modules by its
name in settings/registry.py.

`labels(judged, **settings)` of each gets `negatives.relabel.Judged`, a block of queries with their negatives, and
returns one of these integers for each negative [N]. numpy is imported inside the functions, because loading a
configuration loads these files.
"""

KEPT, DROPPED, POSITIVE, WITHOUT_QUERY = range(4)  # the last one: the query loses all its negatives
NAMES = {DROPPED: "dropped", POSITIVE: "positive", WITHOUT_QUERY: "query dropped"}
