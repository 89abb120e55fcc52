"""Several collections in one training: each batch comes from one of them, by the weights of `also`.

The first collection has the roles of any train job; the roles of collection 1, 2, ... of `also` begin with `also-N.`.
"""

from typing import Any, NamedTuple

import numpy as np

from teleport.settings.training import ALSO


class Part(NamedTuple):
    """One collection's part of a training: the sides of its texts, its `data.TrainingSet` and its `Objective`."""

    queries: Any
    passages: Any
    data: Any
    objective: Any


class JobOf:
    """A train job with the inputs of collection `number` (1, 2, ...) instead of those of the first one."""

    def __init__(self, job, number):
        self.number, prefix = number, ALSO.format(number)
        self.inputs = {role.removeprefix(prefix): of for role, of in job.inputs.items() if role.startswith(prefix)}
        self.settings, self.loads, self.load, self.threads = job.settings, job.loads, job.load, job.threads

    def input(self, role, name):
        return self.inputs[role].path(name)

    def facts(self, role):
        return self.inputs[role].facts


def turns(weights, steps):
    """Return the collection of each step's batch, and how many batches it had before: two int64 arrays [steps].

    weights: of all collections, which sum to 1. Each step takes the collection that is furthest below its share, so
    that each stays near its share at all times.
    """
    had, numbers, batches = np.zeros(len(weights), np.int64), np.empty(steps, np.int64), np.empty(steps, np.int64)
    weights = np.asarray(weights, np.float64)
    for step in range(steps):
        turn = int(np.argmax(weights * (step + 1) - had))
        numbers[step], batches[step] = turn, had[turn]
        had[turn] += 1
    return numbers, batches
