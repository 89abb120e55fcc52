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


class Loss(NamedTuple):
    """The module of a loss, and what it takes: a score matrix ("columns"), or what a live search found ("lists")."""

    module: str
    takes: str = "columns"


LOSSES = {
    "softmax": Loss("teleport.training.losses.softmax"),
    "nll": Loss("teleport.training.losses.nll"),
    "ranknet": Loss("teleport.training.losses.ranknet"),
    "hardest": Loss("teleport.training.losses.hardest"),
    "lambda": Loss("teleport.training.losses.lambda_loss", "lists"),
    "ranknet-list": Loss("teleport.training.losses.ranknet_list", "lists"),
}

LIVE = "teleport.training.live"  # what searches at every step, where negatives.live asks for it
DEV = "teleport.training.dev"  # what ranks dev queries while training goes on, where training.evaluate_every says so
