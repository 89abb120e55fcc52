"""Costs of scoring runs, ours and those from elsewhere, and of comparing them."""

from collections import Counter

from commands.forecast.costs.amounts import NEIGHBOUR_BYTES, run_lines
from commands.forecast.costs.cost import BASE, ID_BYTES, PAIR_BYTES, Cost

RUN_BYTES = 24  # a line of a compressed run; measured on 764 queries x 1,000


def evaluate_cost(stage, counts, plan):
    rows = plan.config.evaluation.depth * counts.queries.get(stage.settings.split, 0)
    return Cost(rows * RUN_BYTES, memory=0.3e9 + PAIR_BYTES * rows, work=Counter(run_rows=rows))


def external_cost(stage, counts, plan):
    """A run from elsewhere, as deep as ours; each line is a few Python objects before it is an array."""
    rows = plan.config.evaluation.depth * counts.queries.get(stage.settings.split, 0)
    size = rows * NEIGHBOUR_BYTES
    return Cost(size, memory=BASE + rows * ID_BYTES + counts.passages * ID_BYTES / 3, work=Counter(run_rows=rows))


def contrast_cost(stage, counts, plan):
    rows = 2 * plan.config.evaluation.depth * counts.queries.get(stage.settings.split, 0)
    return Cost(
        counts.queries.get(stage.settings.split, 0) * 40, memory=0.3e9 + PAIR_BYTES * rows, work=Counter(run_rows=rows)
    )


def forgetting_cost(stage, counts, plan):
    """Two searches of the training queries."""
    lines, depth = run_lines(stage.inputs["after"], counts)
    rows = 2 * lines * depth
    return Cost(memory=0.3e9 + rows * NEIGHBOUR_BYTES, work=Counter(run_rows=rows))
