"""The costs of the analyses: a function (stage, counts, place) → Cost per kind."""

import math

from teleport.analyses.budget import ERROR_PAIRS, ERROR_ROWS
from teleport.costs import BASE, NEIGHBOUR_BYTES, PAIR_BYTES, Cost, search_flop
from teleport.evaluation.costs import MEASURES_BASE, ranks
from teleport.negatives.costs import MERGED, pool_size


def contrast(stage, counts, place):
    """Two runs are measured and compared."""
    rows = 2 * ranks(stage, counts)
    return Cost(counts.queries[stage.settings.split] * 40, MEASURES_BASE + PAIR_BYTES * rows, work={"rows": rows})


def forgetting(stage, counts, place):
    """Two runs of the training queries are compared."""
    rows = 2 * math.prod(counts.run(stage.inputs["after"]))
    return Cost(memory=MEASURES_BASE + rows * NEIGHBOUR_BYTES, work={"rows": rows})


def negatives_overlap(stage, counts, place):
    """The lists of a run beside the pool."""
    lines, depth = counts.run(stage.inputs["queries"])
    negatives = stage.inputs["negatives"]
    rows = lines * (depth + pool_size(negatives.inputs.get("negatives", negatives)))  # a relabelling reads a pool
    return Cost(memory=BASE + rows * NEIGHBOUR_BYTES, work={"rows": MERGED * rows})


def errors(stage, counts, place):
    """All products on the CPU, and the vectors once more for every 8,192 positives."""
    passages, dim, vectors = counts.vectors(stage.inputs["passages"])
    pairs = counts.positives[stage.settings.split]
    work = {"host_flop": search_flop(pairs, passages, dim), "read": vectors * -(-pairs // ERROR_PAIRS)}
    block = min(pairs, ERROR_PAIRS) * min(counts.passages, ERROR_ROWS) * 4
    return Cost(pairs * 24, memory=BASE + vectors + block, work=work)
