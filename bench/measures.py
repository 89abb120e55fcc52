"""Measures: the stage `evaluate` from its arrays against ir-measures from dictionaries of scores.

python bench/measures.py [--queries 1000] [--depth 1000]
"""

import ir_measures
import numpy as np

from rounds import interleaved, parser, report
from teleport.evaluation.measures import score_queries

NAMES = ["RR@10", "nDCG@10", "R@100", "R@1000"]


def make_run(queries, depth):
    """(ids int32, scores float32) [queries, depth], and judgments: one relevant passage somewhere in most lists."""
    rng = np.random.default_rng(0)
    ids = (rng.integers(10**6, size=(queries, 1)) + 7919 * np.arange(depth)) % 10**6
    scores = np.sort(rng.random((queries, depth), np.float32))[:, ::-1]
    places = rng.integers(2 * depth, size=queries)
    relevant = [int(row[place]) if place < depth else 10**6 for row, place in zip(ids, places, strict=True)]
    return ids.astype(np.int32), scores, {str(q): {str(passage): 1} for q, passage in enumerate(relevant)}


def from_dictionaries(ids, scores, judgments):
    """Means by ir-measures from {query: {passage: score}}."""
    run = {
        str(q): dict(zip(map(str, row), values, strict=True))
        for q, (row, values) in enumerate(zip(ids.tolist(), scores.tolist(), strict=True))
    }
    found = ir_measures.calc_aggregate(list(map(ir_measures.parse_measure, NAMES)), judgments, run)
    return [found[ir_measures.parse_measure(name)] for name in NAMES]


def as_the_stage(ids, judgments):
    """Means from the stage's arrays."""
    ranking = {str(q): list(map(str, row)) for q, row in enumerate(ids.tolist())}
    scores = score_queries(ranking, judgments, NAMES)
    return [float(np.mean(list(scores[name].values()))) for name in NAMES]


def main(arguments=None):
    arguments = parser("Measures against ir-measures.", queries=1000, depth=1000).parse_args(arguments)
    ids, scores, judgments = make_run(arguments.queries, arguments.depth)
    peer = "ir-measures from dictionaries"
    variants = {
        peer: lambda: from_dictionaries(ids, scores, judgments),
        "stage": lambda: as_the_stage(ids, judgments),
    }
    difference = max(abs(a - b) for a, b in zip(*(run() for run in variants.values()), strict=True))
    seconds = interleaved(variants, arguments.rounds)
    report("measures", seconds, (peer,), arguments.queries, "queries", arguments, largest_difference=difference)


if __name__ == "__main__":
    main()
