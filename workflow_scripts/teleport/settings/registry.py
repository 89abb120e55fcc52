"""The names that a configuration may use for negative sources and losses, and the modules behind them.

A new source or loss is one module and one line here. No stage imports this table: a new line changes no stage's code.
"""

from typing import NamedTuple


class Source(NamedTuple):
    """The module that reads a source, its bit in a pool's `sources`, and what is planned first (plan/sources.py)."""

    module: str
    flag: int
    needs: str | None = None


# In the order in which a pool lists its negatives.
SOURCES = {
    "query": Source("teleport.negatives.sources.retrieval", 1, "query neighbours"),
    "lookahead": Source("teleport.negatives.sources.retrieval", 2, "positive neighbours"),
    "momentum": Source("teleport.negatives.sources.momentum", 4, "last pool"),
    "bm25": Source("teleport.negatives.sources.retrieval", 8, "bm25"),
    "random": Source("teleport.negatives.sources.random", 16),
    "file": Source("teleport.negatives.sources.retrieval", 32, "file"),
}

LOSSES = {
    "softmax": "teleport.training.losses.softmax",
    "nll": "teleport.training.losses.nll",
    "ranknet": "teleport.training.losses.ranknet",
    "hardest": "teleport.training.losses.hardest",
}
