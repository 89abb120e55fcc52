"""The curves of a training as events for TensorBoard, where that package is installed.

They lie in results/tensorboard/KEY, beside the artefacts and no part of them: the stage is the same without. What the
resume state has is written anew by every attempt, so that no step is there twice.
"""

import math
import shutil
from contextlib import closing, contextmanager

from teleport.training.curves import CURVES

FLUSH_SECONDS = 10


def open_writer(folder):
    """A `SummaryWriter` to an empty folder; None without the package `tensorboard`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    shutil.rmtree(folder, ignore_errors=True)
    return SummaryWriter(folder, flush_secs=FLUSH_SECONDS)


@contextmanager
def tracked(job, trainer, state):
    """Within the block, a function that writes the steps and dev scores of `state` that were not written yet."""
    writer = open_writer(job.folder.parents[2] / "tensorboard" / job.key) if trainer.processes.rank == 0 else None
    if writer is None:
        yield lambda: None
        return
    written = written_dev = 0

    def track():
        nonlocal written, written_dev
        for place in range(written, len(state.curves)):
            step = state.first_step + place
            for name, value in scalars(trainer, state, place).items():
                if not math.isnan(value):
                    writer.add_scalar(name, value, step + 1)
        for step, score in state.dev[written_dev:]:
            writer.add_scalar(job.settings.dev.name, score, step)
        written, written_dev = len(state.curves), len(state.dev)

    with closing(writer):
        yield track


def scalars(trainer, state, place):
    """{name: value} of one step of the state: learning rate, curves, and what a live search found."""
    found = dict(zip(trainer.live.measures, state.found[place], strict=True)) if trainer.live else {}
    rate = trainer.rate(state.first_step + place)
    return {"learning_rate": rate} | dict(zip(CURVES, state.curves[place], strict=True)) | found
