"""The rules for negatives of a pool that are probably positives. A stage `relabel` loads one of these modules by its
name in settings/registry.py.

`labels(judged, **settings)` of each gets `negatives.relabel.Judged`, a block of queries with their negatives, and
returns an integer for each negative [N], one of these. numpy is imported where it computes, because loading a
configuration loads these files.
"""

KEPT, DROPPED, POSITIVE, WITHOUT_QUERY = range(4)  # the last one: the query loses all its negatives
NAMES = {DROPPED: "dropped", POSITIVE: "positive", WITHOUT_QUERY: "query dropped"}
