"""Length of a training schedule, and the learning rate of each of its steps."""

import math

from teleport.runtime.log import log


def schedule_steps(training, data):
    """Steps of the full schedule: `training.steps`, or `training.epochs` passes over the queries of a `TrainingSet`.

    The last incomplete batch of a pass is dropped (released code: drop_last). Raises ValueError when not even one
    batch can be filled.
    """
    if data.steps_per_epoch == 0:
        triples = f" with {training.negatives_per_query} triples each" if training.triples else ""
        raise ValueError(
            f"training.batch_queries is {training.batch_queries}, but only {len(data.rows)} training queries{triples} "
            f"can be trained on ({data.without_negatives} are without negatives, {data.without_positives} without a "
            "positive): lower training.batch_queries, or give more queries judgments or negatives."
        )
    return training.steps or training.epochs * data.steps_per_epoch


def end_of_segment(training, total, first):
    """The step before which a stage stops that begins at step `first` of a schedule of `total` steps.

    `training.stop_after_steps` counts the steps of this stage alone. Raises ValueError when no step is left.
    """
    if first >= total:
        raise ValueError(
            f"training.steps is {total}, but the episodes that this one continues have done {first} steps already: "
            "raise training.steps, let earlier episodes stop sooner (training.stop_after_steps), or leave this one out."
        )
    if (training.stop_after_steps or 0) > total - first:
        log.warning(
            "training.stop_after_steps is %d, but the schedule ends after %d", training.stop_after_steps, total - first
        )
    return min(total, first + (training.stop_after_steps or total))


def learning_rate(step, total, training):
    """The rate of step 0, 1, ..., total - 1: linear from the base to the peak in the warm-up, then linear back.

    `total` is the length of the full schedule, also when training stops earlier (ANCE-Tele's Appendix C.2 stops after
    20,000 steps, its released code plans 188,601): that ends just after the warm-up, at 99.3 % of the peak. The same
    rule as transformers' `linear` scheduler; with `cycle_steps`, where each cycle is such a schedule, as torch's
    CyclicLR (triangular, steps up: the warm-up, steps down: the rest of the cycle).
    """
    length = training.cycle_steps or total
    warmup = training.warmup_steps if training.warmup_ratio is None else math.ceil(length * training.warmup_ratio)
    base, place = training.base_learning_rate, step % length
    height = training.learning_rate - base
    if place < warmup:
        return base + height * place / warmup
    return base + height * (length - place) / (length - warmup)
