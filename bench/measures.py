"""Measures: the stage `evaluate` from its arrays against ir-measures from dictionaries of scores.

python bench/measures.py [--queries 6980] [--depth 1000]

The time of ir-measures includes making its dictionary of the run. The sizes are those of MS MARCO's dev queries.
"""

import ir_measures
import numpy as np

from rounds import interleaved, parser, report
from teleport.evaluation.measures import Judgments, score_run

NAMES = ["RR@10", "nDCG@10", "R@100", "R@1000"]
PASSAGES = 10**6


def make_run(queries, depth):
    """(ids int32, scores float32) [queries, depth], and judgments: one relevant passage a query, in about half of the
    lists."""
    rng = np.random.default_rng(0)
    ids = (rng.integers(PASSAGES, size=(queries, 1)) + 7919 * np.arange(depth)) % PASSAGES
    scores = np.sort(rng.random((queries, depth), np.float32))[:, ::-1]
    ranks = rng.integers(2 * depth, size=queries)
    relevant = [int(row[rank]) if rank < depth else PASSAGES for row, rank in zip(ids, ranks, strict=True)]
    judgments = Judgments(np.arange(queries), np.array(relevant), np.ones(queries, np.int64))
    return ids.astype(np.int32), scores, judgments


def from_dictionaries(ids, scores, relevant):
    """Means by ir-measures from {query: {passage: score}}."""
    run = {
        str(q): dict(zip(map(str, row), values, strict=True))
        for q, (row, values) in enumerate(zip(ids.tolist(), scores.tolist(), strict=True))
    }
    means = ir_measures.calc_aggregate(list(map(ir_measures.parse_measure, NAMES)), relevant, run)
    return [means[ir_measures.parse_measure(name)] for name in NAMES]


def as_the_stage(ids, judgments):
    """Means from the stage's arrays."""
    rows = np.arange(len(ids))
    _, scores = score_run(ids, rows, judgments, NAMES)
    return [float(scores[name].mean()) for name in NAMES]


def main(arguments=None):
    arguments = parser("Measures against ir-measures.", queries=6980, depth=1000).parse_args(arguments)
    ids, scores, judgments = make_run(arguments.queries, arguments.depth)
    relevant = {str(q): {str(passage): 1} for q, passage in enumerate(judgments.passages.tolist())}
    peer = "ir-measures from dictionaries"
    variants = {peer: lambda: from_dictionaries(ids, scores, relevant), "stage": lambda: as_the_stage(ids, judgments)}
    difference = max(abs(a - b) for a, b in zip(*(run() for run in variants.values()), strict=True))
    seconds = interleaved(variants, arguments.rounds)
    report("measures", seconds, (peer,), arguments.queries, "queries", arguments, largest_difference=difference)


if __name__ == "__main__":
    main()
