"""The costs of measuring and comparing runs: a function (stage, counts, place) → Cost per kind."""

from teleport.collection.costs import looking_for_answers
from teleport.costs import BASE, ID_BYTES, NEIGHBOUR_BYTES, PAIR_BYTES, Cost
from teleport.settings.measures import coverage_cutoffs

RUN_BYTES = 15  # a line of a compressed run: 12 with MS MARCO's numbers for ids, 24 with names of functions
MEASURES_BASE = 0.3e9  # memory of a process that has loaded the libraries of the measures


def check(stage, counts, place):
    """Counts of the collection are compared: only the cost of a process."""
    return Cost()


def ranks(stage, counts):
    """The number of lines of an evaluated run of the stage's split."""
    return counts.plan.config.evaluation.depth * counts.queries[stage.settings.split]


def evaluate(stage, counts, place):
    """A run is measured and written compressed; one process searches for answers."""
    rows, work, texts, cutoffs = ranks(stage, counts), {}, 0.0, coverage_cutoffs(stage.settings.measures)
    if cutoffs:
        work, texts = looking_for_answers(max(cutoffs.values()) * counts.queries[stage.settings.split], counts)
    return Cost(rows * RUN_BYTES, MEASURES_BASE + PAIR_BYTES * rows + texts, work=work | {"rows": rows})


def external(stage, counts, place):
    """A run from elsewhere, assumed as deep as ours; each line is a few Python objects before it is in an array."""
    rows = ranks(stage, counts)
    return Cost(rows * NEIGHBOUR_BYTES, BASE + (rows + counts.passages / 3) * ID_BYTES, work={"rows": rows})
