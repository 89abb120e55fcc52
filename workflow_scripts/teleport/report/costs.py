"""What single stages cost, from their manifests: the figures of the kind `costs` (ANCE, Table 5)."""

from collections.abc import Callable
from typing import NamedTuple

SECONDS = 3600


class Cost(NamedTuple):
    """A figure: the roles of the stages that it needs, and what it is of their lists of Artefacts, in that order."""

    roles: tuple
    of: Callable


def seconds(stage):
    """What a stage took, with the shards and killed runs of its encoding, as if one job ran after another."""
    return stage.manifest["provenance"]["wall_seconds"] + stage.facts.get("earlier_seconds", 0.0)


def costs(run, figure):
    """A figure from the finished stages of a run ({role: [Artefact]})."""
    cost = COSTS[figure]
    return float(cost.of(*(run[role] for role in cost.roles)))


def passage_ms(passages):
    """Milliseconds to encode a passage, on one device."""
    return 1000 / passages[0].facts["passages_per_second"]


def query_ms(collection, queries):
    """Milliseconds to encode a query, of all splits; of a stage that has passages too, what these leave."""
    facts, spent = queries[0].facts, queries[0].facts["encode_seconds"]
    passages = collection[0].facts["num_passages"] if "passages_per_second" in facts else 0
    if passages:
        spent -= passages / facts["passages_per_second"]
    return 1000 * max(0.0, spent) / (facts["texts"] - passages)


def search_ms(search):
    """Milliseconds to search for a query, of many at once."""
    return 1000 / search[0].facts["lines_per_second"]


def index_gigabytes(index):
    """What is searched: the file of an index, or the vectors where it is flat; in 1e9 bytes."""
    written = sum(file["bytes"] for name, file in index[0].manifest["files"].items() if name == "index.faiss")
    return (written or index[0].facts["bytes"]) / 1e9


def steps(train):
    """Steps of a training stage."""
    return train[0].facts["steps"]


COSTS = {
    "encode seconds": Cost(("passages",), lambda passages: seconds(passages[0])),
    "encode ms per passage": Cost(("passages",), passage_ms),
    "encode ms per query": Cost(("collection", "queries"), query_ms),
    "index seconds": Cost(("index",), lambda index: seconds(index[0])),
    "index GB": Cost(("index",), index_gigabytes),
    "search ms per query": Cost(("search",), search_ms),
    "encode and search ms per query": Cost(
        ("collection", "queries", "search"),
        lambda collection, queries, search: query_ms(collection, queries) + search_ms(search),
    ),
    # Of the searches and the merge; the vectors and the index have figures of their own.
    "mining seconds per step": Cost(
        ("mining", "train"), lambda mining, train: sum(map(seconds, mining)) / steps(train)
    ),
    "training seconds per step": Cost(("train",), lambda train: train[0].facts["train_seconds"] / steps(train)),
}
