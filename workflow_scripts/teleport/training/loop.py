"""The loop of a training, which dual encoders and cross-encoders share: steps, dev evaluations, saved states, and the
facts of the manifest. What it trains is a `step.Steps`."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np

from teleport.encoder.precision import dtype_name
from teleport.running.log import PROGRESS_SECONDS, log
from teleport.training.clusters import cluster_facts
from teleport.training.resume import save_state, sigterm
from teleport.training.selection import is_exhausted
from teleport.training.step_metrics import tracked


class Clock:
    """The seconds that steps take, which go on from those of earlier attempts."""

    def __init__(self, seconds):
        self.started = time.monotonic() - seconds

    def seconds(self):
        return time.monotonic() - self.started

    @contextmanager
    def paused(self):
        """The seconds of the block do not count."""
        seconds = self.seconds()
        yield
        self.started = time.monotonic() - seconds


class Unread:
    """Steps that the device may still compute: reading the values of one waits for it."""

    def __init__(self, trainer, state):
        self.trainer, self.state, self.steps = trainer, state, []

    def read(self, keep):
        """Note the values of all steps but the last `keep` in the state, so that a step can follow another at once."""
        while len(self.steps) > keep:
            metrics = self.steps.pop(0)
            self.state.curves.append(self.trainer.finish(metrics))
            if metrics.search:
                means, seconds = metrics.search
                self.state.search_means.append(means)
                self.state.search_seconds += seconds


def train(job, trainer, state, stop, selection):
    """Do the steps from `state.step` to `stop`; save the state every `job.save_every` seconds and on SIGTERM. The loss
    of a step is read after the next step was sent to the device, or when the state is saved or evaluated."""
    processes, clock, unread = trainer.processes, Clock(state.seconds), Unread(trainer, state)
    saved, logged, written = time.monotonic(), None, None
    with sigterm() as received, tracked(job, trainer, state) as track, ThreadPoolExecutor(1) as thread:
        if selection.dev and not state.dev:
            with clock.paused():
                selection.evaluate(state)
        if processes.rank == 0:  # the rate is measured from here on
            job.progress(state.step - state.first_step, stop - state.first_step, "steps")
        for step in range(state.step, stop):
            if is_exhausted(state.dev, trainer.training.patience):
                break
            unread.steps.append(trainer.step(step))
            # SIGTERM reaches the processes at different times: all stop after the step in which the first one has it.
            (stopping,) = processes.totals(bool(received))
            state.real_tokens += trainer.real_tokens(unread.steps[-1].batch)
            state.seconds, now = clock.seconds(), time.monotonic()
            saving, ending = stopping or now - saved >= job.save_every, step + 1 == stop
            evaluating = selection.is_due(step + 1 - state.first_step, stop - state.first_step)
            unread.read(keep=0 if saving or ending or evaluating else 1)
            if state.curves and (logged is None or now - logged >= PROGRESS_SECONDS or ending):
                logged, loss, rate = now, state.curves[-1][0], trainer.rate(state.step - 1)
                log.info("step %d: loss %.4f, learning rate %.3g", state.step, loss, rate)
            if evaluating:
                with clock.paused():
                    selection.evaluate(state)
            track()
            if processes.rank == 0:
                job.progress(step + 1 - state.first_step, stop - state.first_step, "steps")
                if saving and written:
                    written.result()  # raises the thread's exception
                if saving:
                    state.memory = trainer.memory.tensors() if trainer.memory else {}
                    written = save_state(job.resume, state, trainer.encoders, trainer.optimizer, thread)
            saved = time.monotonic() if saving else saved
            if stopping:
                if written:  # by the first process alone
                    written.result()
                log.info("SIGTERM: state saved after step %d; run again to continue there", step + 1)
                raise SystemExit(143)


def facts(trainer, state):
    """Return the facts of the training for the manifest (plain JSON). steps: of this stage; first_step, end_step: steps
    since the training began, before and after this stage"""
    losses = [loss for loss, *_ in state.curves]
    first, last = losses[:10], losses[-10:]
    searched = {"engine": trainer.live.engine, "search_seconds": state.search_seconds} if trainer.live else {}
    if (clusters := trainer.data.clusters) is not None:
        searched |= cluster_facts(clusters[trainer.data.rows], trainer.training.batch_queries)
    if others := range(1, len(trainer.parts)):
        searched |= {"also": [of_part(trainer, number, state) for number in others]}
    return searched | {
        "first_step": state.first_step,
        "end_step": state.step,
        "steps": len(state.curves),
        "schedule_steps": trainer.total,
        "stopped_early": state.step < trainer.total,
        "first_loss": sum(first) / len(first),
        "last_loss": sum(last) / len(last),
        "queries": len(trainer.data.rows),
        "queries_without_negatives": trainer.data.without_negatives,
        "queries_without_positives": trainer.data.without_positives,
        "real_tokens": state.real_tokens,
        "train_seconds": state.seconds,
        "attempts": state.attempts,
        "precision": dtype_name(trainer.trained[0].dtype),
        "device": str(trainer.device),
        "compiled": trainer.trained[0].compiled,
        "processes": trainer.processes.size,
    }


def of_part(trainer, number, state):
    """Return the facts of another collection for the manifest (plain JSON)."""
    data, numbers = trainer.parts[number].data, trainer.turns[0][state.first_step : state.step]
    counts = {"queries": len(data.rows), "queries_without_negatives": data.without_negatives}
    counts |= {"queries_without_positives": data.without_positives, "steps": int(np.count_nonzero(numbers == number))}
    return counts
