"""One of several training processes, for test_training_parallel: loss and gradients of a step, of its own part.

python training_process.py JOBS OUTPUT

JOBS is a JSON list of [root, stage specification]. OUTPUT.RANK.npz has "0/loss" and "0/NAME" of the first in float32,
and "0d/loss" and "0d/NAME" of the first in float64.
"""

import json
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from teleport.encoder.side import Frozen
from teleport.running.job import Job
from teleport.training import train
from teleport.training.data import read_training_set
from teleport.training.parallel import joined

STEP = 1


def gradients_of(job, processes, double):
    """{"loss": …, name: gradient} of a step before clipping, summed over the processes.

    double: whether the encoders compute in float64, where sums in another order leave next to no trace.
    """
    with patch.object(train, "Frozen", DoubleFrozen if double else Frozen):
        made = train.make_trainer(job, read_training_set(job, 1), 12, 1, processes)
    if double:
        made.encoders.double()
    made.optimizer.step = made.optimizer.zero_grad = lambda: None
    if made.memory:  # there is something to remember
        made.step(STEP - 1)
        made.encoders.zero_grad()
    loss = made.finish(made.step(STEP))[0]
    named = made.encoders.named_parameters()
    found = {name: p.grad.numpy() for name, p in named if p.grad is not None}
    return found | {"loss": np.float64(loss)}


class DoubleFrozen(Frozen):
    """A frozen side whose vectors are float64."""

    def vectors(self, rows, token_budget):
        return super().vectors(rows, token_budget).double()


def main(jobs, output):
    torch.set_num_threads(1)
    found = {}
    with joined() as processes:
        for number, (root, spec) in enumerate(json.loads(jobs)):
            for prefix, double in ((f"{number}", False), (f"{number}d", True)):
                arrays = gradients_of(Job(spec, root=Path(root)), processes, double)
                found |= {f"{prefix}/{name}": array for name, array in arrays.items()}
        found["totals"] = np.array(processes.totals(1, processes.rank, 10 * processes.rank))
        found["rank"] = np.array(processes.rank)
    np.savez(f"{output}.{processes.rank}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
