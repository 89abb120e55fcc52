"""Length of a training schedule, and the learning rate of each of its steps."""

import math

from teleport.runtime.log import log


def schedule_steps(training, data):
    """Steps of the full schedule: `training.steps`, or `training.epochs` passes over the queries of a `TrainingSet`.

    The last incomplete batch of a pass is dropped (released code: drop_last). Raises ValueError when not even one
    batch can be filled.
    """
    steps_per_epoch = len(data.rows) // training.batch_queries
    if steps_per_epoch == 0:
        raise ValueError(
            f"training.batch_queries is {training.batch_queries}, but only {len(data.rows)} training queries can be "
            f"trained on ({data.without_negatives} are without negatives, {data.without_positives} without a "
            "positive): lower training.batch_queries, or give more queries judgments or negatives."
        )
    return training.steps or training.epochs * steps_per_epoch


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


def learning_rate(step, total, peak, warmup_ratio):
    """The rate of step 0, 1, ..., total - 1: linear from 0 to `peak` during the warm-up, then linear towards 0.

    `total` is the length of the full schedule, also when training stops earlier (ANCE-Tele's Appendix C.2 stops after
    20,000 steps, its released code plans 188,601): that ends just after the warm-up, at 99.3 % of the peak. The same
    rule as transformers' `linear` scheduler.
    """
    warmup = math.ceil(total * warmup_ratio)
    if step < warmup:
        return peak * step / warmup
    return peak * (total - step) / (total - warmup)
